"""The router's bench: traces replayed under every policy, how long a decision takes, how long a
large simulation takes, what a job costs Redis. Knows nothing of engines."""
