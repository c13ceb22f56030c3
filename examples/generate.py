"""Asks a model and prints its answer while it is made.

NOIDLE_URL=redis://… python examples/generate.py MODEL "To be, or not to be"
"""

import sys

from noidle import Client

model, prompt = sys.argv[1:]

with Client() as client:
    job = client.generate(prompt, model=model, max_tokens=64, job_class="interactive")
    for piece in job.stream():
        print(piece, end="", flush=True)
    print()

    result = job.result()
    print(
        f"{len(result.tokens or ())} tokens by {result.model} {result.revision}"
        f" on {result.pool}, the first after {result.times.ttft_ms:.0f} ms"
    )
    print(job.explain())
