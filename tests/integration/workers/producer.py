"""A producer that has nothing but Celery."""

from contextlib import contextmanager

from celery import Celery

from tests.integration.workers.processes import until


@contextmanager
def new_producer(url):
    """A new one for an id that is sent again: Celery's client may take what it heard of the first
    job for the second's."""
    producer = Celery("producer", broker=url, backend=url, set_as_current=False)
    yield producer
    producer.close()


def job(**fields):
    return {"kind": "generate", "model": "echo", "prompt": "one two three", **fields}


def send(app, *args, task_id, kwargs=None, **options):
    return app.send_task(
        "noidle.route", args=args, kwargs=kwargs, task_id=task_id, queue="route", **options
    )


def known(lender, job_id):
    until(lambda: lender.board.status(job_id), f"{job_id} is known")
    return lender.board.status(job_id)
