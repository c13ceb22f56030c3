"""Bare Celery as a careful user would set it up: the measure for what noidle costs.

Owns the two applications that noidle is compared with: `work` does a job, `hop` passes one on to
the queue it chooses, as a simple router would. Run as a module of `celery -A`; the address
comes in BENCH_URL. Knows nothing of noidle."""

import os
from typing import Any

from celery import Celery

DIRECT = "bench-direct"
FIRST_HOP = "bench-hop"
SECOND_HOP = "bench-behind"
WORK = "bench.work"
HOP = "bench.hop"


def make_app(url: str, backend: str | None) -> Celery:
    app = Celery("bench", broker=url, backend=backend, set_as_current=False)
    app.conf.update(
        accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_send_sent_event=False,
        worker_disable_rate_limits=True,
        broker_connection_retry_on_startup=True,
    )
    return app


def _worker_app(url: str) -> Celery:
    app = make_app(url, backend=url)
    # with a backend, sending would subscribe to a result that this process never reads
    sender = make_app(url, backend=None)
    queues = (SECOND_HOP,)

    @app.task(name=WORK, shared=False)
    def work(prompt: str) -> dict[str, str]:
        return {"text": prompt}

    # the answer is the second task's, under the id that the producer waits for
    @app.task(name=HOP, bind=True, shared=False, ignore_result=True)
    def hop(task: Any, prompt: str) -> None:
        sender.send_task(
            WORK,
            args=[prompt],
            task_id=task.request.id,
            queue=queues[len(prompt) % len(queues)],
            add_to_parent=False,
        )

    return app


app = _worker_app(os.environ["BENCH_URL"]) if "BENCH_URL" in os.environ else None
