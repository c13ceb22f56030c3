"""What a profile changes."""

import pytest

from noidle.jobs import JobClass
from noidle.profile import ProfileName
from noidle.snapshot import Pressure
from routing.arrivals import MEMORY_S, Arrivals
from routing.cluster import Cluster
from routing.counters import Counters
from routing.experience import Experience
from routing.placement import Action, Cause
from routing.policy import decide
from routing.profile import KEPT_AT_MOST, PROFILES, RESPONSE_FIRST, TRAINING_FIRST, Profile
from routing.report import LATEST_S, Report
from tests.unit.routing.builders import NOW_MS, make_cluster, make_job, make_pool

POOL = make_pool("cuda@a", slots=16)


def leased(job_class: JobClass, cluster: Cluster, profile: Profile = RESPONSE_FIRST) -> int:
    jobs = [make_job(job_class=job_class) for _ in range(20)]
    placements = decide(jobs, cluster, NOW_MS, None, profile)
    return sum(one.grant is not None for one in placements)


def test_every_profile_has_its_figures() -> None:
    assert set(PROFILES) == set(ProfileName)


@pytest.mark.parametrize("urgent_per_s", [0.0, 2.0, 100.0])
def test_lower_classes_fill_a_smaller_share_the_more_urgent_jobs_came_lately(
    urgent_per_s: float,
) -> None:
    cluster = make_cluster(POOL, urgent_per_s=urgent_per_s)
    shares = [leased(job_class, cluster) for job_class in JobClass]
    assert shares[0] == 16
    assert shares == sorted(shares, reverse=True)
    calm = [leased(job_class, make_cluster(POOL)) for job_class in JobClass]
    assert calm == [16, 16, 16, 15]
    assert all(now <= before for now, before in zip(shares, calm, strict=True))
    assert shares[-1] >= 16 * (1 - KEPT_AT_MOST)


def test_what_is_kept_says_for_whom() -> None:
    jobs = [make_job(job_class=JobClass.BATCH) for _ in range(20)]
    placements = decide(jobs, make_cluster(POOL, urgent_per_s=100.0), NOW_MS)
    (waits, *_) = [one for one in placements if one.action is Action.WAIT]
    assert waits.forecast
    assert waits.forecast[2] is Cause.SPARE


def test_training_first_gives_training_the_slot_that_a_person_waits_for() -> None:
    training = make_job(kind="train")
    person = make_job(job_class=JobClass.INTERACTIVE, accepted_ms=NOW_MS - 10)
    for profile, wanted in ((RESPONSE_FIRST, person), (TRAINING_FIRST, training)):
        placements = decide([training, person], make_cluster(make_pool()), NOW_MS, None, profile)
        assert [one.job for one in placements if one.grant] == [wanted]


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_under_memory_pressure_no_profile_starts_a_training(profile: Profile) -> None:
    for pressure in (Pressure.SOFT, Pressure.HARD):
        cluster = make_cluster(make_pool(pressure=pressure))
        (placement,) = decide([make_job(kind="train")], cluster, NOW_MS, None, profile)
        assert placement.grant is None


def test_arrivals_are_counted_once_and_forgotten() -> None:
    arrivals = Arrivals()
    urgent = [make_job(job_class=JobClass.INTERACTIVE) for _ in range(5)]
    arrivals.note([*urgent, make_job()], NOW_MS)
    arrivals.note(urgent, NOW_MS)
    assert arrivals.per_s(NOW_MS) == pytest.approx(5 / MEMORY_S)
    assert arrivals.per_s(NOW_MS + 100_000) < 0.001


def test_a_refused_producer_is_told_to_wait_as_long_as_a_thousand_jobs_take_to_start() -> None:
    now_s = 0.0
    counters = Counters()
    report = Report("router@a", counters, lambda: now_s)
    assert report.make(RESPONSE_FIRST, Experience()).retry_s == LATEST_S
    for _ in range(200):
        now_s += 0.5
        counters.leased += 100
        detail = report.make(RESPONSE_FIRST, Experience())
    assert detail.leased_per_s == pytest.approx(200, rel=0.05)
    assert detail.retry_s == pytest.approx(5, rel=0.05)
