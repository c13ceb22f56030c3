"""What a producer is told of its job, whatever became of it."""

import json

import pytest

from noidle import Client, keys
from noidle.acceptance import accept
from noidle.cli import main
from noidle.errors import Overloaded, UnknownJob
from noidle.explanation import NO_ROUTER
from noidle.jobs import parse_job
from noidle.results import Decision, JobState, PoolVerdict
from noidle.snapshot import RouterDetail
from tests.integration.noidle.hand_pool import HandPool


@pytest.fixture(autouse=True)
def address(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOIDLE_URL", valkey_url)


def told(pool: HandPool, retry_s: float = 7.0) -> None:
    """A router runs."""
    detail = RouterDetail(router="r", profile="response_first", leased_per_s=1.0, retry_s=retry_s)
    pool.board.tell(detail)


def test_a_job_that_was_refused_is_explained_with_when_to_try_again(
    client: Client, pool: HandPool, capsys: pytest.CaptureFixture[str]
) -> None:
    told(pool)
    client.generate("x", model="m")
    late = parse_job({"kind": "generate", "id": "late", "model": "m", "prompt": "x"})
    with pytest.raises(Overloaded, match="in about 7 s") as caught:
        accept(pool.redis, late, held_limit=1)
    assert caught.value.retry_after_s == 7.0
    assert main(["explain", "late"]) == 0
    assert capsys.readouterr().out == (
        "job late (generate) has failed: it was not accepted:"
        " 1 job is held already: send again in about 7 s\n"
    )
    with pytest.raises(UnknownJob):
        client.job("late").status()


def test_so_is_one_that_came_while_acceptance_was_closed(client: Client, pool: HandPool) -> None:
    pool.redis.set(keys.FULL, "Redis uses 90 of its 100 MiB", px=3000)
    with pytest.raises(Overloaded):
        client.train("t", model="m", id="late")
    found = client.job("late").explain()
    assert (found.status.state, found.status.kind) == (JobState.FAILED, "train")
    assert found.status.why is not None
    assert "now: Redis uses 90 of its 100 MiB; send again in about 3 s" in found.status.why
    pool.redis.delete(keys.FULL)
    # accepted after all, it is a job like any other
    client.train("t", model="m", id="late")
    assert client.job("late").explain().status.state is JobState.HELD


def test_only_the_last_refusals_are_remembered(client: Client, pool: HandPool) -> None:
    pool.redis.set(keys.FULL, "no", px=60_000)
    for first in range(0, 1010, 101):
        jobs = [
            {"kind": "generate", "model": "m", "prompt": "x", "id": f"j{first + number}"}
            for number in range(101)
        ]
        with pytest.raises(Overloaded):
            client.submit_many(jobs)
    assert pool.redis.llen(keys.REFUSED) == 1000
    with pytest.raises(UnknownJob):
        client.job("j9").explain()
    assert client.job("j10").explain().status.why


def test_a_wait_without_a_router_says_so(client: Client, pool: HandPool) -> None:
    job = client.generate("x", model="m")
    assert NO_ROUTER in str(job.explain())
    told(pool)
    assert NO_ROUTER not in str(job.explain())


def test_a_job_far_behind_is_explained_by_the_first_of_its_kind(
    client: Client, pool: HandPool, capsys: pytest.CaptureFixture[str]
) -> None:
    told(pool)
    jobs = [client.generate("x", model="m", id=f"j{number}") for number in range(3)]
    verdict = PoolVerdict(pool="cuda@a", outcome="wait", reason="full", finish_s=2.0)
    why = Decision(
        job="j0", at_ms=1, action="wait", cause="full", reason="it pays", verdicts=(verdict,)
    )
    pool.board.note([why])
    shown = str(jobs[2].explain())
    assert "2 jobs that ask for the same came before it" in shown
    assert "of the first, j0:" in shown
    assert "cuda@a               wait      in 2.00 s  full" in shown
    assert main(["explain", "j2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["before"], data["first"]) == (2, "j0")
    assert data["first_decisions"][0]["verdicts"][0]["pool"] == "cuda@a"
    assert data["router"]["retry_s"] == 7.0
    first = jobs[0].explain()
    assert first.row is None
    assert first.waited is not None
    assert set(first.waited.causes) == {"full"}


def test_a_pool_that_fell_silent_is_named_where_somebody_waits(
    client: Client, pool: HandPool
) -> None:
    job = client.generate("x", model="m")
    now_ms = pool.board.now_ms()
    pool.redis.zadd(keys.POOLS, {"cuda@a": now_ms - 12_000, "cpu@here": now_ms})
    found = job.explain()
    assert [name for name, _ in found.silent] == ["cuda@a"]
    assert "cuda@a was last heard of 12." in str(found)
    assert found.as_json()["silent"]["cuda@a"] > 11
    pool.start(job.id)
    assert job.explain().silent == ()


def test_what_a_job_waited_for_stays_when_it_is_done(client: Client, pool: HandPool) -> None:
    job = client.generate("x", model="m", max_tokens=1)
    why = Decision(job=job.id, at_ms=1, action="wait", cause="spare", reason="kept")
    pool.board.note([why])
    pool.start(job.id)
    pool.finish(job.id, "a")
    found = job.explain()
    assert found.waited is not None
    assert found.waited.held_s == pytest.approx(found.waited.causes["spare"], abs=0.002)
    held_ms = job.result().times.held_ms
    assert held_ms is not None
    assert found.waited.held_s == pytest.approx(held_ms / 1000, abs=0.001)


@pytest.mark.parametrize("router", [False, True], ids=["no_router", "a_router"])
def test_who_waits_for_a_job_that_nobody_decides_on_is_told_so_once(
    pool: HandPool,
    router: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`noidle submit` waited in silence where no router ran."""
    monkeypatch.setattr("noidle.patience.SILENCE_S", 0.05)
    if router:
        told(pool)
    words = ["submit", "generate", "x", "--model", "m", "--id", "a", "--timeout-s", "1"]
    assert main(words) == 5
    said = capsys.readouterr().err.splitlines()
    wanted = [] if router else [f"noidle: job a is held: {NO_ROUTER}"]
    assert said[:-1] == wanted
    assert "is held and goes on" in said[-1]


def test_who_hears_of_a_job_in_time_is_told_nothing_else(
    client: Client,
    pool: HandPool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("noidle.patience.SILENCE_S", 0.5)
    client.generate("x", model="m", id="a")
    pool.start("a")
    pool.emit("a", "word")
    words = ["submit", "generate", "x", "--model", "m", "--id", "a", "--timeout-s", "1"]
    assert main(words) == 5
    assert capsys.readouterr().err.splitlines() == [
        "noidle: job a is running and goes on: wait longer, ask again later, or cancel it"
    ]
