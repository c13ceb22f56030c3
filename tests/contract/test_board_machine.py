"""What must hold on both boards whatever happens: see board_machine."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.board_machine import BoardMachine
from tests.contract.board_world import MemoryWorld, RedisWorld, World

RUNS = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    derandomize=True,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def test_no_order_of_events_breaks_a_promise_of_the_board(world: World) -> None:
    def fresh() -> BoardMachine:
        if isinstance(world, RedisWorld):
            world.client.flushall()
            return BoardMachine(world)
        return BoardMachine(MemoryWorld())

    # a server takes ten times as long
    runs = settings(RUNS, max_examples=15) if isinstance(world, RedisWorld) else RUNS
    run_state_machine_as_test(fresh, settings=runs)
