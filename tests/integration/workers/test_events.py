"""What Flower hears of jobs: Celery's own events, from pools alone."""

import threading

import pytest
from celery import Celery

from tests.integration.workers.processes import until

POOL = "cpu@here"


@pytest.fixture
def heard(valkey_url):
    """Task events as they arrive: (type, job, worker)."""
    events = []
    watcher = Celery("watcher", broker=valkey_url, set_as_current=False)
    stop = threading.Event()

    def note(event):
        if event["type"].startswith("task-"):
            events.append((event["type"], event["uuid"], event["hostname"]))

    def watch():
        with watcher.connection() as link:
            receiver = watcher.events.Receiver(link, handlers={"*": note})
            while not stop.is_set():
                try:
                    for _ in receiver.itercapture(limit=None, timeout=0.2, wakeup=False):
                        if stop.is_set():
                            return
                except TimeoutError:
                    continue

    thread = threading.Thread(target=watch)
    thread.start()
    yield events
    stop.set()
    thread.join(10)
    watcher.close()


def of(events, job_id):
    return [(kind, worker) for kind, job, worker in events if job == job_id]


def test_a_job_is_one_row_of_the_pool_that_ran_it(start, lender, heard, valkey_url):
    start("router", "router@here")
    start("pool", "cpu", NOIDLE_SLOTS="2")
    lender.wait_for(POOL)
    producer = Celery("producer", broker=valkey_url, set_as_current=False)
    job = {"kind": "generate", "model": "echo", "prompt": "p", "max_tokens": 3}
    producer.send_task("noidle.route", args=[job], task_id="row", queue="route")
    until(lambda: len(of(heard, "row")) >= 3, "the events arrive")
    assert of(heard, "row") == [
        ("task-received", POOL),
        ("task-started", POOL),
        ("task-succeeded", POOL),
    ]
    producer.close()


def test_failed_and_cancelled_jobs_end_their_rows_too(start, lender, heard):
    start("pool", "cpu", NOIDLE_SLOTS="2")
    lender.wait_for(POOL)
    failed = lender.run(POOL, prompt="!fail")
    cancelled = lender.run(POOL, prompt="long", max_tokens=100_000)
    until(lambda: lender.board.status(cancelled).progress > 3, "the job moves")
    lender.board.cancel(cancelled)
    until(lambda: len(of(heard, failed)) >= 3 and len(of(heard, cancelled)) >= 3, "the events")
    assert [kind for kind, _ in of(heard, failed)][-1] == "task-failed"
    assert [kind for kind, _ in of(heard, cancelled)][-1] == "task-revoked"
