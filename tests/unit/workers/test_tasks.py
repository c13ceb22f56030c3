"""What Celery is told of a run, and what a task without a lease becomes."""

import pytest
from celery import Celery

from noidle.errors import JobFailed
from noidle.jobs import EngineName
from noidle.results import JobError, JobResult, JobState, TrainReport
from routing.board import Refusal
from workers.runs import Ending, Outcome
from workers.tasks import add_pool_tasks


class Stage:
    """The tasks with everything around them written down."""

    def __init__(self, ended):
        self.ended = ended
        self.leases = []
        self.taken = []
        self.forwarded = []
        self.events = []
        self.app = Celery(
            "test", set_as_current=False, broker="memory://", backend="cache+memory://"
        )
        add_pool_tasks(
            self.app,
            self,
            self,
            engine=EngineName.CPU,
            forward=lambda *args: self.forwarded.append(args),
            announce=lambda name, **fields: self.events.append((name, fields["uuid"])),
        )

    def do(self, job_id, token):
        self.leases.append((job_id, token))
        if isinstance(self.ended, BaseException):
            raise self.ended
        return self.ended

    def take(self, request, args, fields, *, kind, engine):
        self.taken.append((request.id, list(args), dict(fields), kind, engine))

    def run(self, *args, task="noidle.generate", **fields):
        return self.app.tasks[task].apply(args, fields, task_id="j")


def ended(state, **fields):
    return Outcome(ending=Ending.ENDED, result=JobResult(id="j", state=state, **fields))


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (
            {"tokens": (1, 2), "finish_reason": "stop", "revision": "r1"},
            "2 tokens, stop, revision r1",
        ),
        ({"perplexity": 12.3456}, "perplexity 12.35"),
        ({"train": TrainReport(steps=5, held_out_loss=2.5)}, "5 steps, held-out loss 2.5"),
    ],
)
def test_a_run_with_a_result_is_a_success_in_few_words(result, shown):
    stage = Stage(ended(JobState.DONE, **result))
    seen = stage.run(lease="t")
    assert (seen.state, seen.result) == ("SUCCESS", shown)
    assert stage.leases == [("j", "t")]


def test_a_failed_run_is_a_failure_with_its_reason():
    error = JobError(code="engine", message="it said no")
    seen = Stage(ended(JobState.FAILED, error=error)).run(lease="t")
    assert seen.state == "FAILURE"
    assert isinstance(seen.result, JobFailed)
    assert str(seen.result) == "it said no"


def test_a_cancelled_run_is_announced_as_revoked_and_else_ignored():
    stage = Stage(ended(JobState.CANCELLED))
    assert stage.run(lease="t").state == "IGNORED"
    assert stage.events == [("task-revoked", "j")]


@pytest.mark.parametrize("ending", [Ending.YIELDED, Ending.HANDED_BACK, Ending.LOST])
def test_a_run_that_goes_on_elsewhere_leaves_its_row_open(ending):
    stage = Stage(Outcome(ending=ending))
    assert stage.run(lease="t").state == "IGNORED"
    assert stage.events == []


def test_a_lease_of_another_pool_is_passed_on():
    stage = Stage(Refusal(reason="elsewhere", pool="cpu.1@here"))
    assert stage.run(task="noidle.score", lease="t").state == "IGNORED"
    assert stage.forwarded == [("j", "score", "t", "cpu.1@here")]


@pytest.mark.parametrize(
    ("reason", "events"), [("stale", []), ("cancelled", [("task-revoked", "j")]), ("leaving", [])]
)
def test_a_claim_that_is_refused_runs_nothing(reason, events):
    stage = Stage(Refusal(reason=reason))
    assert stage.run(lease="t").state == "IGNORED"
    assert stage.events == events
    assert stage.forwarded == []


@pytest.mark.parametrize("error", [ValueError("a fault"), MemoryError(), SystemExit(3)])
def test_no_fault_of_a_task_leaves_it(error):
    assert Stage(error).run(lease="t").state == "IGNORED"


@pytest.mark.parametrize(
    ("args", "fields"),
    [
        ([{"model": "m"}], {}),
        ([], {"model": "m", "prompt": "p"}),
        ([], {"lease": 7}),
        ([], {"lease": "t", "model": "m"}),
        ([], {}),
    ],
)
def test_a_task_without_a_lease_is_taken_in_as_a_job(args, fields):
    stage = Stage(None)
    assert stage.run(*args, **fields).state == "IGNORED"
    assert stage.taken == [("j", args, fields, "generate", "cpu")]
    assert stage.leases == []
