"""A model in this process, without a cluster: found, opened, asked, and how quick it was. Knows
nothing of Redis, routers or pools."""
