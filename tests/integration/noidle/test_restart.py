"""What a producer sees while its Redis dies, comes back, and has forgotten something."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from noidle import Client, ClusterUnavailable, JobState, UnknownJob, keys
from tests.integration.noidle.hand_pool import HandPool
from tests.valkey_process import ValkeyProcess


def restart(server: ValkeyProcess) -> None:
    server.kill()
    server.start()


def lose_last_entry(pool: HandPool, job_id: str) -> dict[str, str]:
    """What a failover or a power cut takes: the newest part of the stream."""
    [(position, fields)] = pool.redis.xrevrange(keys.stream(job_id), count=1)
    assert pool.redis.xdel(keys.stream(job_id), position) == 1
    return fields


def test_a_stream_read_across_a_restart_shows_each_piece_once(own_valkey: ValkeyProcess):
    with Client(own_valkey.url) as client, ThreadPoolExecutor(1) as threads:
        job = client.generate("x", model="m")
        pool = HandPool(own_valkey.url)
        pool.start(job.id)
        seen: list[str] = []
        half = threading.Event()

        def read() -> None:
            for piece in job.stream(timeout_s=60):
                seen.append(piece)
                if len(seen) == 3:
                    half.set()

        reading = threads.submit(read)
        for piece in ("a", "b", "c"):
            pool.emit(job.id, piece)
        assert half.wait(30)
        restart(own_valkey)
        for piece in ("d", "e"):
            pool.emit(job.id, piece)
        pool.finish(job.id, "abcde")
        reading.result()
        assert "".join(seen) == "abcde"


def test_text_that_redis_lost_and_got_again_is_not_shown_twice(client: Client, pool: HandPool):
    """The next attempt emits the lost part anew, in other pieces and behind newer positions."""
    job = client.generate("x", model="m")
    pool.start(job.id)
    events = job.events(timeout_s=30)
    pool.emit(job.id, "one ", [1])
    pool.emit(job.id, "two ", [2, 3])
    assert [next(events).text, next(events).text] == ["one ", "two "]
    lose_last_entry(pool, job.id)
    pool.redis.xadd(keys.stream(job.id), {"t": "tw", "k": "[2]"})
    pool.redis.xadd(keys.stream(job.id), {"t": "o three ", "k": "[3, 4]"})
    pool.redis.xadd(keys.stream(job.id), {"end": "done"})
    rest = list(events)
    assert [event.text for event in rest] == ["three "]
    assert [event.tokens for event in rest] == [(4,)]


def test_a_job_that_redis_forgot_is_sent_again_with_the_same_outcome(
    client: Client, pool: HandPool
):
    job = client.generate("x", model="m", id="mine")
    seed = pool.start("mine").seed
    pool.emit("mine", "one ")
    pieces = job.stream(timeout_s=30)
    assert next(pieces) == "one "
    pool.redis.flushall()

    def finish_again() -> None:
        until(lambda: pool.state("mine") is JobState.HELD)
        again = HandPool(client_url(pool))
        assert again.start("mine").seed == seed
        again.emit("mine", "one two")
        again.finish("mine", "one two")

    with ThreadPoolExecutor(1) as threads:
        finishing = threads.submit(finish_again)
        assert list(pieces) == ["two"]
        finishing.result()
    assert job.result(timeout_s=10).text == "one two"


def test_a_forgotten_job_is_sent_again_by_whoever_asks(client: Client, pool: HandPool):
    job = client.generate("x", model="m")
    pool.redis.flushall()
    assert job.status().state is JobState.HELD
    assert list(pool.held()) == [job.id]


def test_a_job_of_another_producer_cannot_be_sent_again(client: Client, pool: HandPool):
    job = client.job(client.generate("x", model="m").id)
    pool.redis.flushall()
    with pytest.raises(UnknownJob):
        job.status()


def test_a_result_that_has_expired_is_not_computed_anew(client: Client, pool: HandPool):
    """Its record is gone like a lost one's, but its keeping time has passed as well."""
    job = client.generate("x", model="m", keep_s=1)
    pool.start(job.id)
    pool.finish(job.id, "gone")
    until(lambda: pool.state(job.id) is None)
    with pytest.raises(UnknownJob):
        job.status()
    assert list(pool.held()) == []


def test_sending_and_waiting_outlive_a_restart(own_valkey: ValkeyProcess):
    with Client(own_valkey.url) as client, ThreadPoolExecutor(2) as threads:
        first = client.generate("x", model="m")
        waiting = threads.submit(first.result, 60)
        own_valkey.kill()
        sending = threads.submit(client.generate, "y", model="m")
        own_valkey.start()
        second = sending.result()
        pool = HandPool(own_valkey.url)
        for job in (first, second):
            pool.start(job.id)
            pool.finish(job.id, "done")
        assert waiting.result().text == "done"
        assert second.result(timeout_s=30).text == "done"


def test_patience_with_a_server_that_stays_away_ends(own_valkey: ValkeyProcess):
    with Client(own_valkey.url, patience_s=0.2) as client:
        job = client.generate("x", model="m")
        own_valkey.kill()
        with pytest.raises(ClusterUnavailable, match="does not answer"):
            job.result(timeout_s=60)


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition; pytest's timeout ends a wait in vain."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.01)


def client_url(pool: HandPool) -> str:
    options = pool.redis.get_connection_kwargs()
    return f"redis://{options['host']}:{options['port']}/0"
