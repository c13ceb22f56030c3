"""A job as its producer sees it, from sending to every kind of end."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from noidle import (
    Client,
    ClusterUnavailable,
    ConfigError,
    Generate,
    InvalidJob,
    JobCancelled,
    JobExpired,
    JobFailed,
    JobState,
    Message,
    Overloaded,
    ResultTimeout,
    Role,
    UnknownJob,
    keys,
)
from noidle.link import SPARE_CONNECTIONS
from noidle.results import JobError
from tests.integration.noidle.hand_pool import POOL, HandPool
from tests.valkey_process import free_port


def test_a_job_is_held_runs_and_is_done(client: Client, pool: HandPool):
    job = client.generate("Hello", model="m", max_tokens=2)
    assert job.status().state is JobState.HELD
    claim = pool.start(job.id)
    assert claim.job.model_dump()["prompt"] == "Hello"
    assert job.status().state is JobState.RUNNING
    pool.emit(job.id, "wor", [1])
    pool.emit(job.id, "ld", [2])
    pool.finish(job.id, "world", [1, 2])
    result = job.result(timeout_s=10)
    assert (result.text, result.tokens, result.pool) == ("world", (1, 2), POOL)
    assert result.times.total_ms is not None
    assert job.status().state is JobState.DONE


def test_a_conversation_is_a_job_like_others(client: Client, pool: HandPool):
    setup = {"role": "system", "content": "be brief"}
    job = client.chat([setup, Message(role=Role.USER, content="Hello")], model="m", max_tokens=3)
    claim = pool.start(job.id)
    assert [one.content for one in claim.job.messages] == ["be brief", "Hello"]
    pool.finish(job.id, "one", [1])
    assert job.result().text == "one"
    with pytest.raises(InvalidJob, match=r"messages\.0\.role"):
        client.chat([{"role": "me", "content": "Hello"}], model="m")


def test_a_stream_gives_each_piece_when_it_is_made(client: Client, pool: HandPool):
    job = client.generate("x", model="m")
    pool.start(job.id)
    pieces = job.stream(timeout_s=10)
    for piece in ("一", "二三", " end"):
        pool.emit(job.id, piece)
        assert next(pieces) == piece
    pool.finish(job.id, "一二三 end")
    assert list(pieces) == []


def test_a_stream_read_after_the_end_is_the_whole_text(client: Client, pool: HandPool):
    job = client.generate("x", model="m")
    pool.start(job.id)
    pool.emit(job.id, "ab")
    pool.finish(job.id, "abcd")
    assert "".join(client.job(job.id).stream(timeout_s=10)) == "abcd"


def test_training_shows_its_steps_forward_only(client: Client, pool: HandPool):
    job = client.train("some text", model="m", steps=10)
    pool.start(job.id)
    # the step that a crash undid is done twice
    for step, loss in ((1, 5.0), (2, 4.0), (1, 5.0), (2, 4.0), (3, 3.0)):
        pool.train_step(job.id, step, loss)
    pool.finish_training(job.id)
    assert [(event.step, event.loss) for event in job.events(timeout_s=10)] == [
        (1, 5.0),
        (2, 4.0),
        (3, 3.0),
    ]
    report = job.result().train
    assert report is not None
    assert report.held_out_loss == 2.25


def test_a_waiting_thread_learns_of_the_end(client: Client, pool: HandPool):
    job = client.score("x", model="m")
    pool.start(job.id)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(job.result, 30)
        pool.finish_score(job.id)
        assert waiting.result().perplexity == 2.5


def test_patience_that_ends_before_the_job_says_where_it_stands(client: Client):
    job = client.generate("x", model="m")
    with pytest.raises(ResultTimeout, match="is held and goes on") as caught:
        job.result(timeout_s=0)
    assert (caught.value.job_id, caught.value.state) == (job.id, "held")
    with pytest.raises(ResultTimeout):
        next(job.stream(timeout_s=0))


def test_a_failed_job_raises_with_its_reason_after_what_it_streamed(client: Client, pool: HandPool):
    job = client.generate("x", model="m")
    pool.start(job.id)
    pool.emit(job.id, "half")
    pool.fail(job.id)
    pieces = job.stream(timeout_s=10)
    assert next(pieces) == "half"
    with pytest.raises(JobFailed, match="the engine fell") as caught:
        next(pieces)
    assert (caught.value.reason, caught.value.job_id) == ("engine", job.id)
    with pytest.raises(JobFailed):
        job.result()
    assert job.outcome().state is JobState.FAILED


def test_a_refused_job_raises_as_failed(client: Client, pool: HandPool):
    error = JobError(code="invalid", message="prompt = '': allowed is text", field="prompt")
    pool.board.refuse("bad", "generate", error)
    with pytest.raises(JobFailed, match="prompt = '': allowed is text") as caught:
        client.job("bad").result(timeout_s=10)
    assert caught.value.reason == "invalid"


def test_a_held_job_is_cancelled_at_once(client: Client, pool: HandPool):
    job = client.generate("x", model="m")
    assert job.cancel()
    with pytest.raises(JobCancelled):
        job.result(timeout_s=10)
    assert list(pool.held()) == []
    assert not job.cancel()


def test_a_running_job_is_told_to_stop(client: Client, pool: HandPool):
    job = client.generate("x", model="m")
    pool.start(job.id)
    assert job.cancel()
    assert job.status().state is JobState.CANCELLING
    pool.stop(job.id)
    with pytest.raises(JobCancelled):
        list(job.stream(timeout_s=10))


def test_a_job_that_could_not_start_in_time_has_expired(client: Client, pool: HandPool):
    job = client.generate("x", model="m", expires_s=0.001)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(job.result, 30)
        while job.status().state is JobState.HELD:
            assert list(pool.held()) == []
        with pytest.raises(JobExpired):
            waiting.result()


def test_the_callers_id_makes_sending_idempotent(client: Client, pool: HandPool):
    first = client.generate("x", model="m", id="mine")
    second = client.generate("x", model="m", id="mine")
    assert (first.id, second.id) == ("mine", "mine")
    assert list(pool.held()) == ["mine"]
    with pytest.raises(InvalidJob, match="id = 'mine': allowed is a new id"):
        client.generate("something else", model="m", id="mine")


def test_a_cancelled_id_can_be_sent_again(client: Client, pool: HandPool):
    client.generate("x", model="m", id="mine").cancel()
    again = client.generate("x", model="m", id="mine")
    assert again.status().state is JobState.HELD
    pool.start("mine")
    pool.finish("mine", "done")
    assert again.result(timeout_s=10).text == "done"


def test_an_unknown_job_is_said_to_be_unknown(client: Client):
    job = client.job("nobody")
    for act in (job.status, job.explain, job.cancel, lambda: job.result(timeout_s=10)):
        with pytest.raises(UnknownJob, match="no job nobody is known"):
            act()


def test_an_explanation_puts_the_decision_in_words(client: Client, pool: HandPool):
    job = client.generate("x", model="m", max_tokens=8)
    assert "no router has looked at it yet" in str(job.explain())
    pool.start(job.id)
    pool.emit(job.id, "a", [1])
    words = str(job.explain())
    assert words.startswith(f"job {job.id} (generate) is running on {POOL}, 1 of 8 tokens\n")
    assert f"to {POOL} (queue cpu): the only pool" in words
    assert "chosen" in words
    assert "in 0.50 s" in words
    assert [one.action for one in job.explain().decisions] == ["lease"]


def test_many_jobs_are_sent_in_few_round_trips(client: Client, pool: HandPool):
    calls = pool.redis.info("stats")["total_reads_processed"]
    jobs = client.submit_many(
        Generate(model="m", prompt=f"p{number}", id=f"j{number}") for number in range(450)
    )
    # a read a round trip, and a few for connecting and for asking
    assert pool.redis.info("stats")["total_reads_processed"] - calls < 100
    assert [job.id for job in jobs] == [f"j{number}" for number in range(450)]
    client.submit_many([Generate(model="m", prompt="p7", id="j7")])
    assert pool.redis.zcard(f"{keys.PREFIX}alive") == 450
    seeds = {pool.redis.hget(keys.job(job.id), "seed") for job in jobs}
    assert len(seeds) == 450


def test_one_wrong_job_of_many_stops_all_before_the_first_is_sent(client: Client, pool: HandPool):
    with pytest.raises(InvalidJob, match="prompt = ''"):
        client.submit_many(
            [
                {"kind": "score", "model": "m", "text": "x"},
                {
                    "kind": "generate",
                    "model": "m",
                    "prompt": "",
                },
            ]
        )
    assert list(pool.held()) == []


def test_a_full_cluster_refuses_with_a_time_to_come_back(client: Client, pool: HandPool):
    pool.redis.set(keys.FULL, "memory is short", px=60_000)
    with pytest.raises(Overloaded, match="memory is short") as caught:
        client.generate("x", model="m")
    assert caught.value.retry_after_s > 0
    with pytest.raises(Overloaded):
        client.submit_many([Generate(model="m", prompt="x")])


def test_more_threads_than_connections_take_turns(valkey_url: str, pool: HandPool):
    """All wait at once; no thread gets another's result, and no more connections are made."""
    before = {one["id"] for one in pool.redis.client_list()}
    with Client(valkey_url, connections=8) as client, ThreadPoolExecutor(30) as threads:
        jobs = [client.generate(f"p{number}", model="m") for number in range(30)]
        waiting = [threads.submit(job.result, 60) for job in jobs]
        # some connections stay free for short calls, however many threads wait
        blocked = [pool.redis.info("clients")["blocked_clients"] for _ in range(200)]
        assert max(blocked) == 8 - SPARE_CONNECTIONS
        for number, job in enumerate(jobs):
            pool.start(job.id)
            pool.finish(job.id, f"text {number}")
        assert [one.result().text for one in waiting] == [f"text {n}" for n in range(30)]
        assert len({one["id"] for one in pool.redis.client_list()} - before) <= 8 + 1


def test_threads_share_one_client_for_sending(client: Client, pool: HandPool):
    barrier = threading.Barrier(8)

    def send(part: int) -> list[str]:
        barrier.wait()
        return [client.generate("x", model="m", id=f"{part}-{n}").id for n in range(20)]

    with ThreadPoolExecutor(8) as threads:
        sent = {job for part in threads.map(send, range(8)) for job in part}
    assert len(sent) == 160
    assert pool.redis.zcard(f"{keys.PREFIX}alive") == 160


def test_a_wrong_address_is_said_at_once_and_without_its_password():
    client = Client(f"redis://:secret@127.0.0.1:{free_port()}/0")
    with pytest.raises(ClusterUnavailable, match="does not answer") as caught:
        client.generate("x", model="m")
    assert "secret" not in str(caught.value)
    assert caught.value.address.startswith("127.0.0.1:")


def test_without_an_address_the_client_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NOIDLE_URL", raising=False)
    with pytest.raises(ConfigError, match="set NOIDLE_URL; where `noidle up` runs"):
        Client()


def test_the_environment_names_the_cluster(valkey_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NOIDLE_URL", valkey_url)
    with Client() as client:
        assert client.generate("x", model="m").status().state is JobState.HELD
