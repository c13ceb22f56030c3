"""Decides which pool runs which job, from the job board and what pools publish.
Knows nothing of Celery workers, engines or tensors."""
