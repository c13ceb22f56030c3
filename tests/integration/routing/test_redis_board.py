"""What only the board in Redis shows: bounds of its keys, a server that forgets or runs full."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from noidle import acceptance, keys, record
from noidle.connection import connect
from noidle.errors import ClusterUnavailable, Overloaded
from noidle.jobs import JobClass
from noidle.results import JobError, JobResult, JobState
from routing.board import Claim, PoolLoad, StepReport
from routing.envelope import Envelope
from routing.redis_board import RedisBoard
from tests.contract.board_world import (
    ECHO,
    LENGTHS,
    POOL,
    Cluster,
    RedisWorld,
    decision,
    generate,
    lease_of,
    snapshot,
    train,
)
from tests.valkey_process import ValkeyProcess

FIXED = {keys.MODELS, keys.FENCE, keys.POOLS, keys.ENDED, keys.REAPED, keys.RUNS, keys.WAKE}
"""Keys that never expire, each bounded in itself."""


@pytest.fixture
def world(valkey_url: str) -> RedisWorld:
    return RedisWorld(valkey_url)


@pytest.fixture
def cluster(world: RedisWorld) -> Cluster:
    return Cluster(world, world.board())


def end_somehow(cluster: Cluster, number: int) -> None:
    """One of the ways in which a job can end."""
    job = f"job-{number}"
    board = cluster.board
    if number % 8 == 7:
        board.refuse(job, "generate", JobError(code="invalid", message="no"))
        return
    around = Envelope(link=[{"task": "x"}], group="g") if number % 3 == 0 else None
    board.accept(train(job) if number % 5 == 0 else generate(job, expires_s=1000), around)
    board.note([decision(job, "wait")])
    if number % 8 == 0:
        board.cancel(job)
        return
    if number % 8 == 1:
        board.fail(job, JobError(code="unplaceable", message="no"))
        return
    cluster.start(job)
    board.report(POOL, [StepReport(job=job, token=f"token-{job}", text="x", tokens=(1,), step=1)])
    if number % 8 == 2:
        board.cancel(job)
        board.hand_back(job, f"token-{job}")
        return
    state = JobState.FAILED if number % 8 == 3 else JobState.DONE
    cluster.finish(job, state=state, text="x y", tokens=(1, 2))


def test_nothing_but_the_fixed_keys_stays_for_ever(cluster: Cluster, world: RedisWorld) -> None:
    cluster.board.register(ECHO)
    cluster.board.register(ECHO.model_copy(update={"name": "mini"}))
    cluster.board.reap(cluster.role)
    for number in range(200):
        end_somehow(cluster, number)
        cluster.world.pop("cpu")
        if number % 20 == 0:
            cluster.refresh()
    while (taken := cluster.board.take_after()) is not None:
        cluster.board.sent(taken[0].id)
    left = {key for key in world.client.keys("*") if world.client.ttl(key) == -1}
    assert left <= FIXED
    assert world.client.llen(keys.ENDED) == 200
    world.pass_time(8 * 86_400)
    assert set(world.client.keys("*")) <= FIXED


def test_links_that_no_router_takes_are_bounded_too(cluster: Cluster, world: RedisWorld) -> None:
    cluster.board.accept(generate("a"), Envelope(link=[{"task": "x"}]))
    cluster.board.cancel("a")
    world.pass_time(2 * 86_400)
    assert cluster.board.take_after() is None
    assert world.client.llen(keys.AFTER) == 0


def test_a_queue_of_a_pool_that_is_gone_does_not_stay_for_ever(
    cluster: Cluster, world: RedisWorld
) -> None:
    cluster.accept(generate("a"), generate("b"))
    cluster.lease("a", queue=POOL)
    cluster.lease("b", queue="cpu")
    assert 0 < world.client.ttl(POOL) <= 7 * 86_400
    assert world.client.ttl("cpu") == -1


def test_a_server_that_forgot_its_scripts_runs_them_all_the_same(
    cluster: Cluster, world: RedisWorld
) -> None:
    world.client.script_flush()
    assert cluster.board.accept(generate("a")) is True
    world.client.script_flush()
    assert [job.id for job in cluster.board.waiting(1)[0]] == ["a"]
    world.client.script_flush()
    cluster.start("a")
    world.client.script_flush()
    assert cluster.finish("a") is True


def test_a_job_survives_the_servers_death(own_valkey: ValkeyProcess) -> None:
    cluster = Cluster(RedisWorld(own_valkey.url), RedisBoard(connect(own_valkey.url), **LENGTHS))
    cluster.accept(generate("a"), generate("b"))
    cluster.start("a")
    step = StepReport(job="a", token="token-a", text="one ", tokens=(1,))
    cluster.board.report(POOL, [step])
    cluster.board.reap(cluster.role)
    own_valkey.kill()
    with pytest.raises(ClusterUnavailable, match=f"127.0.0.1:{own_valkey.port}"):
        cluster.board.held(32)
    own_valkey.start()
    cluster.refresh()
    # the lease would have run out had Redis been here all the time
    cluster.world.client.zadd(keys.LEASES, {"a": 1.0})
    cluster.world.client.hset(keys.REAPED, "at", float(cluster.board.now_ms() - 10))
    assert cluster.board.reap(cluster.role) == []
    assert cluster.board.reap(cluster.role) == []
    assert cluster.held() == ["b"]
    assert cluster.finish("a", text="one two", tokens=(1, 2)) is True


def test_a_server_that_is_away_is_named_without_its_password(own_valkey: ValkeyProcess) -> None:
    own_valkey.kill()
    client = connect(own_valkey.url.replace("redis://", "redis://:secret@"))
    for call in (
        lambda: acceptance.accept(client, generate("a")),
        lambda: acceptance.cancel(client, "a"),
        lambda: record.read_status(client, "a"),
        lambda: record.read_events(client, "a", block_s=1),
    ):
        with pytest.raises(ClusterUnavailable) as raised:
            call()
        assert raised.value.address == f"127.0.0.1:{own_valkey.port}"
        assert "secret" not in str(raised.value)


def test_at_the_memory_limit_jobs_are_refused_and_those_running_end(
    own_valkey: ValkeyProcess,
) -> None:
    world = RedisWorld(own_valkey.url)
    cluster = Cluster(world, world.board())
    cluster.accept(generate("a"), generate("b"), generate("c"))
    cluster.start("a")
    world.client.config_set("maxmemory", 1)
    with pytest.raises(Overloaded, match="memory limit"):
        cluster.board.accept(generate("d"))
    cluster.refresh()
    step = StepReport(job="a", token="token-a", text="one ", tokens=(1,))
    cluster.board.report(POOL, [step])
    cluster.board.hand_back("a", "token-a")
    cluster.start("a", "second")
    assert cluster.finish("a", "second", text="one two") is True
    assert cluster.board.cancel("b") is True
    assert cluster.held() == ["c"]
    cluster.start("c")
    assert cluster.finish("c") is True


def test_acceptance_closes_before_the_memory_limit_is_reached(own_valkey: ValkeyProcess) -> None:
    world = RedisWorld(own_valkey.url)
    cluster = Cluster(world, world.board())
    used = world.client.info("memory")["used_memory"]
    world.client.config_set("maxmemory", int(used * 1.1))
    why = cluster.board.guard_memory()
    assert why is not None
    with pytest.raises(Overloaded, match=why):
        cluster.board.accept(generate("a"))
    world.client.config_set("maxmemory", used * 10)
    world.pass_time(4)
    assert cluster.board.guard_memory() is None
    assert cluster.board.accept(generate("a")) is True


def test_of_many_claims_at_once_one_wins(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.lease("a")
    start = threading.Barrier(8)

    def claim(_: int) -> bool:
        start.wait()
        return isinstance(cluster.board.claim("a", "token-a", POOL, 1), Claim)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(claim, range(8))) == 1


def test_four_producers_and_two_routers_never_exceed_the_slots(
    world: RedisWorld, valkey_url: str
) -> None:
    """Both routers believe that they hold the role, as after a pause of one of them."""
    cluster = Cluster(world, world.board())
    ids = [f"job-{number}" for number in range(500)]
    seen: list[int] = []
    done: list[str] = []

    def produce(part: int) -> None:
        client = connect(valkey_url)
        for job in ids[part::4]:
            acceptance.accept(client, generate(job))

    def route_and_run(router: int) -> None:
        board = RedisBoard(connect(valkey_url), **LENGTHS)
        while len(done) < len(ids):
            wishes = [lease_of(job.id, f"{router}-{job.id}") for job in board.held(32)]
            granted = board.lease(cluster.role, wishes)
            seen.append(board.loads().get(POOL, PoolLoad()).in_flight)
            for wish, right in zip(wishes, granted, strict=True):
                if right:
                    assert isinstance(board.claim(wish.job, wish.token, POOL, router), Claim)
                    assert board.finish(wish.job, wish.token, _result(wish.job))
                    done.append(wish.job)

    with ThreadPoolExecutor(6) as threads:
        work = [threads.submit(produce, part) for part in range(4)]
        work += [threads.submit(route_and_run, router) for router in range(2)]
        for one in work:
            one.result()
    assert sorted(done) == sorted(ids)
    assert max(seen) <= 4


def _result(job_id: str) -> JobResult:
    return JobResult(id=job_id, kind="generate", state=JobState.DONE, text="x", tokens=(1,))


def test_three_thousand_held_jobs_do_not_hide_an_urgent_one(cluster: Cluster) -> None:
    for number in range(3000):
        cluster.accept(generate(f"later-{number}", **{"class": "background"}))
    cluster.accept(generate("now", **{"class": "interactive"}))
    shown = cluster.board.held(32)
    assert shown[0].id == "now"
    assert len(shown) == 33
    assert {job.job_class for job in shown[1:]} == {JobClass.BACKGROUND}


def test_a_record_that_vanished_keeps_neither_a_place_nor_a_slot(
    cluster: Cluster, world: RedisWorld
) -> None:
    cluster.accept(generate("a"), generate("b"), generate("c"))
    cluster.start("a")
    world.client.delete(keys.job("a"), keys.job("b"))
    assert cluster.held() == ["c"]
    assert cluster.lose() == []
    assert cluster.board.loads() == {}
    cluster.board.cancel("c")
    assert world.client.exists(keys.HELD_SETS, keys.ALIVE, keys.LEASES) == 0


def test_a_pool_that_stopped_publishing_is_pruned(cluster: Cluster, world: RedisWorld) -> None:
    world.pass_time(61)
    cluster.board.publish(snapshot("gpu@there"))
    assert world.client.zrange(keys.POOLS, 0, -1) == ["gpu@there"]
