"""Which waiting jobs get a note, and when."""

from routing.board import HeldJob
from routing.notes import AFTER_MS, AT_ONCE, REPEAT_MS, Notes
from routing.placement import Placement
from routing.policy import decide
from tests.unit.routing.builders import NOW_MS, make_cluster, make_job, make_pool, make_promise

FULL = make_cluster(make_pool(), running=(make_promise("cpu@a", 60.0),))


def waiting(*jobs: HeldJob) -> list[Placement]:
    return list(decide(jobs, FULL, NOW_MS))


def test_a_job_that_has_just_come_gets_none() -> None:
    notes = Notes()
    placements = waiting(make_job(held_since_ms=NOW_MS - AFTER_MS + 1))
    assert notes.due(placements, NOW_MS) == []
    assert notes.due(placements, NOW_MS + 1) == placements


def test_a_job_that_is_leased_gets_none() -> None:
    assert Notes().due(decide([make_job()], make_cluster(make_pool()), NOW_MS), NOW_MS) == []


def test_what_was_said_is_not_said_again_until_it_is_old() -> None:
    notes = Notes()
    placements = waiting(make_job())
    assert notes.due(placements, NOW_MS) == placements
    assert notes.due(placements, NOW_MS + REPEAT_MS - 1) == []
    assert notes.due(placements, NOW_MS + REPEAT_MS) == placements


def test_what_changed_is_said_at_once() -> None:
    notes = Notes()
    job = make_job()
    notes.due(waiting(job), NOW_MS)
    (elsewhere,) = decide(
        [job], make_cluster(make_pool("cpu@b"), running=(make_promise("cpu@b", 9.0),)), NOW_MS
    )
    assert notes.due([elsewhere], NOW_MS + 1) == [elsewhere]


def test_a_flood_is_noted_bit_by_bit_the_first_in_order_first() -> None:
    notes = Notes()
    placements = waiting(*(make_job() for _ in range(2 * AT_ONCE + 1)))
    assert notes.due(placements, NOW_MS) == placements[:AT_ONCE]
    assert notes.due(placements, NOW_MS) == placements[AT_ONCE : 2 * AT_ONCE]
    assert notes.due(placements, NOW_MS) == placements[2 * AT_ONCE :]
    assert notes.due(placements, NOW_MS) == []
