"""A router as a real process, for producers that have nothing but Celery."""

import pytest
from celery import Celery



@pytest.fixture
def app(valkey_url):
    """What any producer has."""
    producer = Celery("producer", broker=valkey_url, backend=valkey_url, set_as_current=False)
    producer.conf.update(task_serializer="json", accept_content=["json"])
    yield producer
    producer.close()


def job(**fields):
    return {"kind": "generate", "model": "echo", "prompt": "one two three", **fields}


def send(app, *args, task_id, **options):
    return app.send_task("noidle.route", args=args, task_id=task_id, queue="route", **options)


def test_a_job_sent_with_celery_alone_is_routed_and_answered(start, lender, app):
    start("router", "router@here")
    start("pool", "cpu", NOIDLE_SLOTS="2")
    lender.wait_for("cpu@here")
    answer = send(app, job(max_tokens=4), task_id="plain").get(timeout=20)
    assert (answer["id"], answer["state"], len(answer["tokens"])) == ("plain", "done", 4)
