"""Flower, built by a command of ours: authentication on, memory bounded, no button that does
nothing. Knows nothing of pools beyond what Celery's events tell."""
