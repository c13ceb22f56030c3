"""Celery processes: routers that host the pump, pools that hold an engine. Knows nothing of tensors."""
