"""Replays traces of requests in virtual time through the policy that runs in production, beside
plain rules and a lower bound. Knows nothing of Redis, Celery, engines' programs or tensors."""
