"""Composes jobs with Celery's own chain and group.

A job answers with its result, which is no job: in a chain the next job is immutable, or a task
of your own stands between and turns the one into the other.

NOIDLE_URL=redis://… python examples/celery_canvas.py MODEL
"""

import os
import sys

from celery import Celery, Signature, chain, group

url = os.environ["NOIDLE_URL"]
model = sys.argv[1]
app = Celery("producer", broker=url, backend=url)


def ask(prompt: str) -> Signature:
    job = {"kind": "generate", "model": model, "prompt": prompt, "max_tokens": 8}
    return app.signature("noidle.route", args=(job,), queue="route", immutable=True)


many = group(ask(f"question {number}") for number in range(4)).apply_async()
for result in many.get(timeout=120):
    print(f"group: {result['text']!r} on {result['pool']}")

last = chain(ask("first"), ask("second")).apply_async()
print(f"chain: {last.parent.get(timeout=120)['text']!r}, then {last.get(timeout=120)['text']!r}")
