"""A producer that knows nothing of noidle: Celery, an address, a name and JSON.

Prints what AsyncResult gives for a job, and which modules of noidle it needed."""

import json
import sys

from celery import Celery


def main(url: str) -> None:
    app = Celery("producer", broker=url, backend=url)
    job = {"kind": "generate", "model": "echo", "prompt": "to be or not", "max_tokens": 6}
    sent = app.send_task("noidle.route", args=[job], queue="route")
    result = sent.get(timeout=60)
    needed = sorted(name for name in sys.modules if name.partition(".")[0] == "noidle")
    print(json.dumps({"id": sent.id, "state": sent.state, "result": result, "needed": needed}))


if __name__ == "__main__":
    main(sys.argv[1])
