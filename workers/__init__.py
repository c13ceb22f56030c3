"""The cluster's processes: pools that lend slots to jobs, and routers that choose among pools.
Knows Celery, Redis and engine processes; nothing of tensors or of how metrics are read."""
