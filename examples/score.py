"""Measures which of several texts a model finds more probable.

NOIDLE_URL=redis://… python examples/score.py MODEL "To be, or not to be" "Be not to or be, to"
"""

import sys

from noidle import Client

model, *texts = sys.argv[1:]

with Client() as client:
    # all are sent before the first is waited for
    jobs = client.submit_many({"kind": "score", "model": model, "text": text} for text in texts)
    for text, job in zip(texts, jobs, strict=True):
        print(f"perplexity {job.result().perplexity:8.2f}  {text}")
