"""Talks to a model, which remembers what was said: each turn is a job with the whole conversation.

NOIDLE_URL=redis://… python examples/chat.py MODEL "Which engine is idle?" "And why?"
"""

import sys

from noidle import Client

model, *questions = sys.argv[1:]
messages = [{"role": "system", "content": "You answer in one sentence."}]

with Client() as client:
    for question in questions:
        messages.append({"role": "user", "content": question})
        job = client.chat(messages, model=model, max_tokens=64, job_class="interactive")
        print(f"> {question}")
        for piece in job.stream():
            print(piece, end="", flush=True)
        print()
        messages.append({"role": "assistant", "content": job.result().text or ""})
