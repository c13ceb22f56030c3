"""What a job costs Redis, counted by the server itself: scripts, and the commands in them."""

from collections.abc import Callable
from typing import cast

import pytest

from noidle.connection import connect
from noidle.results import JobResult, JobState
from routing.board import Claim, StepReport
from routing.bounds import HEADS_A_CLASS
from routing.redis_board import RedisBoard
from tests.contract.board_world import (
    ECHO,
    LENGTHS,
    POOL,
    Cluster,
    RedisWorld,
    generate,
    lease_of,
    snapshot,
)

BESIDE = {"info", "config|resetstat"}
"""What the counting itself calls."""
LIFE_AT_MOST = 75
"""Commands from acceptance to result, of a job with one report."""


class Counted:
    """A cluster in a real server, and what it was asked to do."""

    def __init__(self, url: str, *, held: int, pools: int) -> None:
        self.client = connect(url)
        self.client.flushall()
        self.cluster = Cluster(RedisWorld(url), RedisBoard(self.client, **LENGTHS))
        self.board = self.cluster.board
        self.board.register(ECHO)
        for number in range(pools - 1):
            self.board.publish(snapshot(f"cpu@host-{number}"))
        self.cluster.accept(*[generate(f"held-{number}", prompt="x") for number in range(held)])
        # what a life ends with depends on whether anything is held
        self.cluster.accept(generate("always"))
        # the server knows every script from now on
        self.life("warm")
        self.look()

    def commands(self, act: Callable[[], object]) -> dict[str, int]:
        """How often each command ran, in scripts and beside them, while `act` did."""
        self.client.config_resetstat()
        act()
        stats = cast("dict[str, dict[str, int]]", self.client.info("commandstats"))
        counts = {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}
        return {name: count for name, count in counts.items() if name not in BESIDE}

    def life(self, job_id: str = "one") -> None:
        """All that one job asks of the board."""
        step = StepReport(job=job_id, token=job_id, text="a ", tokens=(1,))
        done = JobResult(id=job_id, kind="generate", state=JobState.DONE, text="a ", tokens=(1,))
        self.board.accept(generate(job_id))
        assert self.board.lease(self.cluster.role, [lease_of(job_id, job_id)]) == [True]
        assert isinstance(self.board.claim(job_id, job_id, POOL, 1), Claim)
        self.board.report(POOL, [step])
        assert self.board.finish(job_id, job_id, done)

    def look(self) -> None:
        self.board.waiting(HEADS_A_CLASS)


def test_a_jobs_life_costs_the_same_beside_any_number_of_jobs_and_pools(
    valkey_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    few = Counted(valkey_url, held=1, pools=1)
    alone = few.commands(few.life)
    for held, pools in ((1000, 1), (1, 100), (1000, 100)):
        crowd = Counted(valkey_url, held=held, pools=pools)
        assert crowd.commands(crowd.life) == alone, (held, pools)
    assert sum(alone.values()) <= LIFE_AT_MOST
    with capsys.disabled():
        print(f"\na job's life: {sum(alone.values())} commands, {alone}")


def test_a_look_costs_no_more_for_what_lies_behind_the_heads(valkey_url: str) -> None:
    thousand = Counted(valkey_url, held=1000, pools=10)
    before = thousand.commands(thousand.look)
    more = Counted(valkey_url, held=3000, pools=10)
    assert more.commands(more.look) == before


def test_a_look_costs_one_command_more_for_each_pool(valkey_url: str) -> None:
    def look_commands(pools: int) -> int:
        counted = Counted(valkey_url, held=10, pools=pools)
        return sum(counted.commands(counted.look).values())

    assert look_commands(101) - look_commands(1) == 100
