"""The pump over a real board, with pools that answer at once."""

import threading
from collections.abc import Iterator

import pytest
from celery import Celery

from noidle import keys
from noidle.jobs import JobClass
from noidle.results import JobState
from noidle.snapshot import PoolState
from tests.integration.routing.cluster import PoolThread, Producer, PumpThread, until
from tests.valkey_process import ValkeyProcess


@pytest.fixture
def producer(valkey_url: str) -> Iterator[Producer]:
    producer = Producer(valkey_url)
    yield producer
    producer.redis.close()


def test_five_hundred_jobs_from_four_producers_run_once_and_never_over_the_limit(
    valkey_url: str,
) -> None:
    def produce(number: int) -> None:
        producer = Producer(valkey_url)
        for i in range(125):
            producer.send(f"job-{number}-{i}")

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(4)]
    with (
        PumpThread(valkey_url),
        PoolThread(valkey_url, "cpu@a", slots=3) as first,
        PoolThread(valkey_url, "cuda@a", slots=5) as second,
    ):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: len(first.done) + len(second.done) >= 500, "all jobs are done")
    assert sorted(first.done + second.done) == sorted(
        f"job-{number}-{i}" for number in range(4) for i in range(125)
    )
    assert 1 <= first.most_in_flight <= 3
    assert 1 <= second.most_in_flight <= 5


def test_a_pool_that_joins_late_gets_the_held_work(valkey_url: str, producer: Producer) -> None:
    with PumpThread(valkey_url) as pump:
        for number in range(20):
            producer.send(f"job-{number}")
        until(lambda: pump.pump.counters.looks > 2, "the pump looked in vain")
        with PoolThread(valkey_url, "cpu@a") as pool:
            until(lambda: len(pool.done) == 20, "all jobs are done", limit_s=5.0)


def test_an_interactive_job_starts_at_once_beside_thousands_of_background_jobs(
    valkey_url: str, producer: Producer
) -> None:
    for number in range(3000):
        producer.send(f"flood-{number}", **{"class": JobClass.BACKGROUND})
    with PumpThread(valkey_url), PoolThread(valkey_url, "cpu@a", hold=True, slots=4) as pool:
        until(lambda: len(pool.running) == 3, "background fills all slots but one")
        producer.send("urgent", **{"class": JobClass.INTERACTIVE})
        until(lambda: len(pool.running) == 4, "the urgent job starts", limit_s=2.0)
        assert producer.state("urgent") is JobState.RUNNING


def test_jobs_that_no_pool_can_run_delay_nobody_and_fail_with_the_reason(
    valkey_url: str, producer: Producer
) -> None:
    for number in range(40):
        producer.send(f"lost-{number}", engine="gpu", **{"class": JobClass.INTERACTIVE})
    producer.send("job-1", **{"class": JobClass.BACKGROUND})
    with PoolThread(valkey_url, "cpu@a"), PumpThread(valkey_url, unplaceable_s=1.0) as pump:
        producer.wait_for("job-1")
        until(lambda: pump.pump.counters.failed == 40, "the lost jobs fail")
    result = producer.board.result("lost-7")
    assert result
    assert result.error
    assert result.error.code == "unplaceable"
    assert "wants engine gpu" in result.error.message


def test_a_draining_pool_gets_nothing_where_another_of_its_engine_is_free(
    valkey_url: str, producer: Producer
) -> None:
    with (
        PoolThread(valkey_url, "cpu.1@a", state=PoolState.DRAINING) as draining,
        PoolThread(valkey_url, "cpu.2@a") as free,
    ):
        until(lambda: len(producer.board.pools()) == 2, "both pools are known")
        with PumpThread(valkey_url):
            for number in range(50):
                producer.send(f"job-{number}")
            until(lambda: len(free.done) == 50, "the free pool does all")
    assert draining.done == []


def test_why_a_job_went_where_it_went_is_kept(valkey_url: str, producer: Producer) -> None:
    with PumpThread(valkey_url), PoolThread(valkey_url, "cpu@a"):
        producer.send("job-1")
        producer.wait_for("job-1")
    decision = producer.board.decisions("job-1")[0]
    assert decision.action == "lease"
    assert decision.verdicts[0].pool == "cpu@a"


def test_why_a_job_waits_is_kept(valkey_url: str, producer: Producer) -> None:
    with PumpThread(valkey_url), PoolThread(valkey_url, "cpu@a", hold=True, slots=1):
        producer.send("job-1")
        producer.send("job-2")
        until(lambda: bool(producer.board.decisions("job-2")), "the reason is noted")
    status = producer.board.status("job-2")
    assert status
    assert "for cpu@a (all slots are taken)" in (status.why or "")


def test_of_two_pumps_one_decides_and_the_other_takes_over_at_once_when_it_ends(
    valkey_url: str, producer: Producer
) -> None:
    with PoolThread(valkey_url, "cpu@a") as pool, PumpThread(valkey_url, "router@a") as first:
        until(lambda: first.pump.counters.looks > 0, "the first has the role")
        with PumpThread(valkey_url, "router@b") as second:
            producer.send("job-1")
            producer.wait_for("job-1")
            assert second.pump.counters.looks == 0
            first.stop()
            producer.send("job-2")
            producer.wait_for("job-2")
            until(lambda: second.pump.counters.leased == 1, "the second has counted it")
    assert pool.done == ["job-1", "job-2"]


def test_a_pump_takes_over_from_one_that_died(valkey_url: str, producer: Producer) -> None:
    assert producer.board.take_pump("router-that-died")
    with PoolThread(valkey_url, "cpu@a"), PumpThread(valkey_url, "router@b"):
        producer.send("job-1")
        producer.wait_for("job-1")


def test_messages_with_a_celery_priority_come_to_the_route_queue_in_order(
    valkey_url: str, producer: Producer
) -> None:
    app = Celery(broker=valkey_url, set_as_current=False)
    for number, priority in enumerate([0, 3, 6, 9, 9, 4]):
        app.send_task(keys.ROUTE_TASK, task_id=f"job-{number}", queue="route", priority=priority)
    assert producer.redis.llen("route") == 1
    with PumpThread(valkey_url) as pump:
        until(lambda: pump.pump.counters.gathered == 5, "all are gathered")
    messages = [str(message) for message in producer.redis.lrange("route", 0, -1)]
    order = [
        number
        for message in reversed(messages)
        for number in "012345"
        if f"job-{number}" in message
    ]
    assert order == ["0", "1", "5", "2", "3", "4"]
    assert not producer.redis.keys("route\x06*")


def test_a_redis_that_is_nearly_full_closes_acceptance(own_valkey: ValkeyProcess) -> None:
    producer = Producer(own_valkey.url)
    producer.redis.set("ballast", "x" * 50_000_000)
    producer.redis.config_set("maxmemory", 60_000_000)
    with PumpThread(own_valkey.url):
        until(lambda: producer.redis.get(keys.FULL) is not None, "acceptance is closed")
        producer.redis.delete("ballast")
        until(lambda: producer.redis.get(keys.FULL) is None, "acceptance opens again")


def test_a_redis_above_its_memory_limit_does_not_stop_the_pump(
    own_valkey: ValkeyProcess,
) -> None:
    producer = Producer(own_valkey.url)
    with PumpThread(own_valkey.url) as pump, PoolThread(own_valkey.url, "cpu@a", hold=True) as pool:
        producer.send("job-1")
        producer.wait_for("job-1", JobState.RUNNING)
        producer.redis.set("ballast", "x" * 50_000_000)
        producer.redis.config_set("maxmemory", 10_000_000)
        looks = pump.pump.counters.looks
        until(lambda: pump.pump.counters.looks > looks + 5, "the pump goes on looking")
        pool.go_on()
        producer.wait_for("job-1")
        assert pump.pump.counters.errors == 0


def test_the_pump_goes_on_after_redis_was_killed(own_valkey: ValkeyProcess) -> None:
    producer = Producer(own_valkey.url)
    with PumpThread(own_valkey.url) as pump, PoolThread(own_valkey.url, "cpu@a"):
        producer.send("job-1")
        producer.wait_for("job-1")
        own_valkey.kill()
        until(lambda: pump.pump.counters.errors > 0, "the pump notices")
        own_valkey.start()
        producer.send("job-2")
        producer.wait_for("job-2")
