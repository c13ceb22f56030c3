"""Trains a mini model on a text of yours, watches it learn, then asks it.

NOIDLE_URL=redis://… python examples/train_then_ask.py FILE mini 200
"""

import sys
from pathlib import Path

from noidle import Client

file, model, steps = sys.argv[1:]
text = Path(file).read_text("utf-8")

with Client() as client:
    training = client.train(text, model=model, steps=int(steps))
    for event in training.events():
        if event.step is not None:
            print(f"\rstep {event.step} of {event.goal}, loss {event.loss:.3f}", end="", flush=True)
    report = training.result().train
    assert report is not None
    print(f"\nheld-out loss {report.held_out_loss_before} before, {report.held_out_loss} after")

    answer = client.generate(text[:20], model=model, max_tokens=32, temperature=0.8, seed=1)
    print(answer.result().text)
