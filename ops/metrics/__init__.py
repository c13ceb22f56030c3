"""What a host, its processes and its devices measure: the figures pools publish and people read.
What cannot be read is absent, never zero. Knows nothing of Redis or Celery."""
