"""Sends a job with nothing but Celery; noidle need not be installed.

NOIDLE_URL=redis://… python examples/plain_celery.py MODEL
"""

import os
import sys

from celery import Celery

url = os.environ["NOIDLE_URL"]
app = Celery("producer", broker=url, backend=url)

sent = app.send_task(
    "noidle.route",
    args=[{"kind": "generate", "model": sys.argv[1], "prompt": "To be", "max_tokens": 16}],
    queue="route",
)
result = sent.get(timeout=120)
print(f"{sent.id}: {result['text']!r} on {result['pool']}")
