"""The execution paths: engine programs, the processes that hold them, and the protocol
between. Knows nothing of Redis, Celery or routing."""
