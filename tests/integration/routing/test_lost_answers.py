"""Every change is made once although its answer was lost and the call was repeated."""

from collections.abc import Iterator

import pytest

from noidle import record
from noidle.connection import connect
from noidle.errors import ClusterUnavailable
from noidle.results import JobState
from routing.board import Checkpoint, Claim, StepReport, Verdict
from routing.redis_board import RedisBoard
from tests.contract.board_world import ECHO, LENGTHS, POOL, Cluster, RedisWorld, generate, train
from tests.integration.routing.lossy import LossyProxy
from tests.valkey_process import ValkeyProcess


@pytest.fixture
def proxy(valkey_server: ValkeyProcess, valkey_url: str) -> Iterator[LossyProxy]:
    proxy = LossyProxy(valkey_server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def cluster(proxy: LossyProxy, valkey_url: str) -> Cluster:
    """The board's calls pass the proxy, what the test looks at does not."""
    return Cluster(RedisWorld(valkey_url), RedisBoard(connect(proxy.url), **LENGTHS))


def test_every_step_of_a_job_may_lose_its_answer(cluster: Cluster, proxy: LossyProxy) -> None:
    def lossy() -> None:
        proxy.lose(1)

    lossy()
    assert cluster.board.accept(generate("a")) is True
    lossy()
    assert cluster.lease("a") is True
    assert cluster.world.pop("cpu") == "message of token-a"
    assert cluster.world.pop("cpu") is None
    lossy()
    claim = cluster.board.claim("a", "token-a", POOL, 1)
    assert isinstance(claim, Claim)
    assert claim.attempt == 1
    for text, token in (("one ", 1), ("two ", 2)):
        lossy()
        step = StepReport(job="a", token="token-a", text=text, tokens=(token,))
        assert cluster.board.report(POOL, [step]) == {"a": Verdict.GO_ON}
    lossy()
    assert cluster.finish("a", text="one two ", tokens=(1, 2)) is True
    assert proxy.lost == 6
    events = cluster.world.events("a")
    assert [event.text for event in events] == ["one ", "two ", None]


def test_the_other_ways_to_end_a_lease_may_lose_their_answer(
    cluster: Cluster, proxy: LossyProxy
) -> None:
    cluster.accept(generate("a"), generate("b"), train("t"))
    cluster.start("a")
    cluster.start("t")
    proxy.lose(1)
    assert cluster.board.hand_back("a", "token-a") is True
    proxy.lose(1)
    checkpoint = Checkpoint(name="s", storage="d", step=1)
    assert cluster.board.yield_slice("t", "token-t", checkpoint, ECHO, 1.5) is True
    assert [job.order for job in cluster.board.held(9) if job.id == "t"] == [1.5]
    proxy.lose(1)
    assert cluster.board.cancel("b") is True
    assert proxy.lost == 3
    assert cluster.state("b") is JobState.CANCELLED


def test_a_report_that_raised_goes_on_with_newer_text_behind_it(
    cluster: Cluster, proxy: LossyProxy
) -> None:
    """The pool merges what its engine emitted meanwhile, and does not know what arrived."""
    cluster.accept(generate("a"), generate("b"))
    cluster.start("a")
    cluster.start("b")
    first = StepReport(job="a", token="token-a", text="é", tokens=(1,))
    cluster.board.report(POOL, [first])
    proxy.lose(1)
    proxy.go_down()
    steps = [
        StepReport(job="a", token="token-a", text="日", tokens=(2, 3)),
        StepReport(job="b", token="token-b", text="x", tokens=(9,)),
    ]
    with pytest.raises(ClusterUnavailable):
        cluster.board.report(POOL, steps)
    proxy.come_back()
    merged = StepReport(job="a", token="token-a", text="日 more", tokens=(2, 3, 4))
    verdicts = cluster.board.report(POOL, [merged, steps[1]])
    assert verdicts == {"a": Verdict.GO_ON, "b": Verdict.GO_ON}
    events = cluster.world.events("a")
    assert [(event.text, event.tokens) for event in events] == [
        ("é", (1,)),
        ("日", (2, 3)),
        (" more", (4,)),
    ]
    assert [event.text for event in cluster.world.events("b")] == ["x"]


def test_a_run_whose_text_the_server_lost_starts_over_behind_what_is_there(
    cluster: Cluster, valkey_url: str
) -> None:
    """A server that was killed may come back without its last moments."""
    world = cluster.world
    assert isinstance(world, RedisWorld)
    cluster.accept(generate("a"))
    cluster.start("a")
    key, stream = "noidle:job:a", "noidle:stream:a"
    cluster.board.report(POOL, [StepReport(job="a", token="token-a", text="one ", tokens=(1,))])
    before = {"bytes": "4", "tokens": "1"}
    cluster.board.report(POOL, [StepReport(job="a", token="token-a", text="two ", tokens=(2,))])
    world.client.hset(key, mapping=before)
    last = world.client.xrevrange(stream, count=1)[0][0]
    world.client.xdel(stream, last)
    step = StepReport(job="a", token="token-a", text="three", tokens=(3,))
    assert cluster.board.report(POOL, [step]) == {"a": Verdict.LOST}
    assert cluster.state("a") is JobState.HELD
    claim = cluster.start("a", "second")
    assert (claim.text, claim.tokens) == ("one ", (1,))
    status = record.read_status(world.client, "a")
    assert status is not None
    assert status.crashes == 0
