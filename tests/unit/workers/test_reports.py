"""How what a run did is merged until the board is told."""

from engines.protocol import RunStep
from routing.board import StepReport
from tests.unit.workers.world import World
from workers.reports import Reports


def merged(*steps):
    run, reports = World().claimed(), Reports()
    for step in steps:
        reports.add(run, RunStep(run=run.token, **step))
    [report] = reports.all().values()
    assert (report.job, report.token) == (run.job_id, run.token)
    return report


def test_text_and_tokens_are_joined_and_figures_are_the_latest():
    report = merged(
        {"text": "a ", "tokens": (1,), "revision": "r1"},
        {},
        {"text": "b ", "tokens": (2, 3)},
        {"step": 4, "goal": 9, "loss": 2.0},
        {"step": 5, "tokens_per_s": 7.0},
    )
    assert (report.text, report.tokens, report.revision) == ("a b ", (1, 2, 3), "r1")
    assert (report.step, report.goal, report.loss, report.tokens_per_s) == (5, 9, 2.0, 7.0)


def test_a_run_that_only_moved_is_told_too():
    report = merged({})
    assert report == StepReport(job=report.job, token=report.token)


def test_nothing_is_left_of_what_was_told_or_dropped():
    world, reports = World(), Reports()
    first, second = world.claimed(), world.claimed()
    for run in (first, second):
        reports.add(run, RunStep(run=run.token))
    reports.drop(first.token)
    assert list(reports.all()) == [second.token]
    reports.clear()
    assert not reports
