"""What the one thread of a pool that speaks with the board does, turn by turn."""

import pytest

from engines.exit import Exit
from engines.protocol import (
    CheckpointRef,
    Done,
    Drop,
    Dropped,
    Failed,
    Hello,
    ModelSeen,
    Pause,
    RunResult,
    RunStep,
    Step,
    Yield,
)
from noidle.jobs import parse_job
from noidle.results import Decision, JobError
from noidle.snapshot import ModelInfo
from routing.running import Preemption
from tests.unit.workers.world import PLACE, AwayBoard, World
from workers.board_loop import BoardLoop
from workers.departure import Leave
from workers.engine_view import EngineView
from workers.runs import Ending

LEASE_S = 8.0


@pytest.fixture
def world():
    return World()


@pytest.fixture
def loop(world):
    return make_loop(world)


def make_loop(world, board=None, view=None):
    return BoardLoop(
        board or world.board,
        world.engine,
        world.runs,
        view or EngineView(),
        place=lambda: PLACE,
        lease_s=LEASE_S,
        changed=lambda: None,
        clock=world.clock,
    )


def step(run, text="", tokens=(), **more):
    return Step(runs=(RunStep(run=run.token, text=text, tokens=tokens, **more),))


def done(run, text, tokens):
    result = RunResult(text=text, tokens=tokens, finish_reason="length")
    return Done(run=run.token, result=result)


def death(generation=1, **more):
    return Exit(
        **{
            "generation": generation,
            "pid": 77,
            "code": 1,
            "reason": "exited with status 1",
            "stderr_tail": (),
            "said_hello": True,
            "expected": False,
            "failures": 1,
            "restart_in_s": 0.2,
            **more,
        }
    )


def texts(world, run):
    return [event.text for event in world.board.events(run.job_id) if event.text]


def test_what_was_said_since_the_last_turn_is_told_at_once(world, loop):
    run = world.claimed()
    loop.turn([step(run, "a ", (1,)), step(run, "b ", (2, 3))])
    assert texts(world, run) == ["a b "]
    assert world.board.status(run.job_id).progress == 3


def test_a_first_token_is_told_at_once_and_others_some_25_times_a_second(world, loop):
    first, second = world.claimed(), world.claimed()
    loop.turn([step(first, "a ", (1,))])
    for number in range(3):
        world.clock.now_s += 0.01
        loop.turn([step(first, f"{number} ", (number,))])
    assert texts(world, first) == ["a "]
    loop.turn([step(second, "x ", (1,))])
    assert texts(world, first) == ["a ", "0 1 2 "]
    loop.turn([step(first, "b ", (4,))])
    world.clock.now_s += 0.041
    loop.turn([])
    assert texts(world, first) == ["a ", "0 1 2 ", "b "]


def test_who_waits_for_a_busy_engine_keeps_his_lease_and_his_engine(world, loop):
    """A prompt that is read for longer than a lease must not cost those behind it."""
    reading, waiting = world.claimed(), world.claimed()
    for _ in range(10):
        world.clock.now_s += LEASE_S / 3
        world.publish()
        loop.turn([step(reading)])
        assert world.board.reap(world.board.take_pump("r")) == []
    assert world.engine.killed == []
    # once the engine has begun with it, it must move by itself
    loop.turn([step(waiting, "x", (1,))])
    world.clock.now_s += LEASE_S + 1
    loop.turn([step(reading)])
    assert world.engine.killed == [f"job {waiting.job_id} did not move for 8 s"]


def test_a_run_that_is_done_ends_with_all_its_text_on_the_stream(world, loop):
    run = world.claimed()
    loop.turn([step(run, "a ", (1,))])
    loop.turn([step(run, "b ", (2,)), done(run, "a b ", (1, 2))])
    assert texts(world, run) == ["a ", "b "]
    outcome = run.wait()
    assert (outcome.ending, outcome.result.text) == (Ending.ENDED, "a b ")
    assert world.board.result(run.job_id).tokens == (1, 2)
    assert len(world.runs) == 0


def test_each_of_several_runs_gets_its_own_end(world, loop):
    runs = [world.claimed() for _ in range(4)]
    error = JobError(code="engine", message="no")
    loop.turn(
        [
            done(runs[0], "", ()),
            Failed(run=runs[1].token, error=error),
            Dropped(run=runs[2].token),
            step(runs[3], "x", (1,)),
        ]
    )
    states = [world.state(run.job_id) for run in runs]
    assert states == ["done", "failed", "held", "running"]
    assert world.board.result(runs[1].job_id).error == error
    assert len(world.runs) == 1


def test_a_training_slice_goes_back_with_its_checkpoint(world, loop):
    run = world.claimed(kind="train", model="small", text="some text")
    slice_end = Yield(
        run=run.token,
        checkpoint=CheckpointRef(name="step-000010-abcdefgh", storage="s", step=10),
        model=ModelInfo(name="small", revision="step-000010-abcdefgh", storage="s"),
        service_s=5.0,
    )
    loop.turn([step(run, step=10, goal=100, loss=2.5), slice_end])
    assert run.wait().ending is Ending.YIELDED
    [held] = world.board.held(8)
    assert (held.storage, held.order) == ("s", 5.0)
    assert world.board.models()["small"].revision == "step-000010-abcdefgh"


def test_a_cancelled_run_is_dropped_and_ends_cancelled_whatever_it_says_last(world, loop):
    dropped, finished = world.claimed(), world.claimed()
    for run in (dropped, finished):
        world.board.cancel(run.job_id)
    loop.turn([step(dropped, "x", (1,)), step(finished, "x", (1,))])
    assert world.engine.sent == [Drop(run=dropped.token), Drop(run=finished.token)]
    assert len(world.runs) == 2
    loop.turn([Dropped(run=dropped.token), done(finished, "x", (1,))])
    assert [run.wait().result.state for run in (dropped, finished)] == ["cancelled"] * 2


def test_a_run_past_its_deadline_is_dropped_and_fails_with_what_it_emitted(world, loop):
    late, finished = (world.claimed(deadline_s=5, max_tokens=9) for _ in range(2))
    loop.turn([step(late, "x ", (1,))])
    world.clock.now_s += 6
    loop.turn([step(late, "y ", (2,)), step(finished, "z", (3,))])
    assert world.engine.sent == [Drop(run=late.token), Drop(run=finished.token)]
    loop.turn([step(late, "w", (4,)), Dropped(run=late.token), done(finished, "z", (3,))])
    result = late.wait().result
    assert (result.state, result.error.code) == ("failed", "deadline")
    assert (result.text, result.tokens) == ("x y w", (1, 2, 4))
    assert finished.wait().result.state == "done"
    assert world.board.loads() == {}


def preempt(world, run, free=False):
    role = world.board.take_pump("r")
    urgent = f"urgent-{run.job_id}"
    fields = {"id": urgent, "class": "interactive", "model": "echo", "prompt": "p"}
    world.board.accept(parse_job({"kind": "generate", **fields}))
    why = Decision(job=run.job_id, at_ms=0, action="preempt", reason="makes room")
    wish = Preemption(
        job=run.job_id, token=run.token, for_job=urgent, free_memory=free, decision=why
    )
    assert world.board.preempt(role, [wish]) == [True]


def hello(**more):
    return Hello(protocol=1, device="d", kinds=("generate", "train"), **more)


def test_a_preempted_run_is_told_to_pause_once_and_goes_back_with_what_it_emitted(world, loop):
    run = world.claimed()
    preempt(world, run)
    loop.turn([hello(pauses=True), step(run, "x ", (1,))])
    assert world.engine.sent == [Pause(run=run.token)]
    loop.turn([step(run, "y ", (2,), revision="r"), Dropped(run=run.token)])
    assert world.engine.sent == [Pause(run=run.token)]
    assert run.wait().ending is Ending.HANDED_BACK
    assert world.state(run.job_id) == "held"
    assert texts(world, run) == ["x ", "y "]


def test_a_run_whose_memory_turns_out_to_be_needed_is_told_once_more(world, loop):
    run = world.claimed(kind="train", model="small", text="some text")
    preempt(world, run)
    loop.turn([hello(pauses=True), step(run, step=1)])
    preempt(world, run, free=True)
    world.clock.now_s += 1
    loop.turn([step(run, step=2)])
    assert world.engine.sent == [Pause(run=run.token), Pause(run=run.token, free=True)]


def test_an_engine_that_knows_no_pause_is_told_to_drop(world, loop):
    run = world.claimed()
    preempt(world, run)
    loop.turn([hello(), step(run, "x ", (1,))])
    assert world.engine.sent == [Drop(run=run.token)]
    loop.turn([Dropped(run=run.token)])
    assert run.wait().ending is Ending.HANDED_BACK


def test_a_preempted_run_that_ends_at_the_same_moment_just_ends(world, loop):
    run = world.claimed()
    preempt(world, run)
    loop.turn([hello(pauses=True), step(run, "x ", (1,)), done(run, "x ", (1,))])
    assert run.wait().result.text == "x "
    assert world.state(run.job_id) == "done"


def test_a_run_whose_lease_was_lost_is_dropped_and_nothing_of_it_is_kept(world, loop):
    run = world.claimed()
    world.board.hand_back(run.job_id, run.token)
    loop.turn([step(run, "x", (1,))])
    assert run.wait().ending is Ending.LOST
    assert world.engine.sent == [Drop(run=run.token)]
    loop.turn([step(run, "y", (2,)), done(run, "xy", (1, 2))])
    assert texts(world, run) == []
    assert world.state(run.job_id) == "held"


@pytest.mark.parametrize(("expected", "crashes"), [(False, 1), (True, 0)])
def test_a_dead_engines_runs_go_back_and_count_as_crashed_unless_it_was_stopped(
    world, loop, expected, crashes
):
    run = world.claimed()
    loop.turn([death(expected=expected)])
    assert run.wait().ending is Ending.HANDED_BACK
    assert world.state(run.job_id) == "held"
    assert world.board.status(run.job_id).crashes == crashes


def test_a_death_ends_no_run_of_the_next_life_nor_one_that_was_done(world, loop):
    over = world.claimed()
    world.engine.generation = 2
    young = world.claimed()
    loop.turn([done(over, "", ()), death(generation=1)])
    assert world.state(over.job_id) == "done"
    assert world.state(young.job_id) == "running"


def test_an_engine_whose_run_does_not_move_for_a_lease_is_killed(world, loop):
    run, other = world.claimed(), world.claimed()
    loop.turn([step(run)])
    world.clock.now_s += LEASE_S - 1
    loop.turn([step(other)])
    assert world.engine.killed == []
    world.clock.now_s += 1.5
    loop.turn([step(other)])
    assert world.engine.killed == [f"job {run.job_id} did not move for 8 s"]


def test_an_engine_that_says_nothing_at_all_is_killed(world, loop):
    run = world.claimed()
    world.clock.now_s += LEASE_S + 1
    loop.turn([])
    assert world.engine.killed == [f"job {run.job_id} did not move for 8 s"]


def test_while_redis_is_away_everything_is_kept_and_told_once_it_is_back(world):
    board = AwayBoard(world.board, fails=0)
    loop = make_loop(world, board)
    moving, ending, failing = (world.claimed() for _ in range(3))
    board.fails = 5
    loop.turn([step(moving, "a ", (1,)), step(ending, "x ", (7,))])
    loop.turn([step(moving, "b ", (2,)), done(ending, "x ", (7,))])
    loop.turn([Failed(run=failing.token, error=JobError(code="engine", message="no"))])
    assert world.board.result(ending.job_id) is None
    while board.fails:
        loop.turn([])
    loop.turn([step(moving, "c ", (3,))])
    assert "".join(texts(world, moving)) == "a b c "
    assert world.board.result(ending.job_id).text == "x "
    assert world.board.result(failing.job_id).state == "failed"
    assert texts(world, ending) == ["x "]


def test_while_redis_is_away_a_run_that_moves_is_not_taken_for_a_hung_one(world):
    board = AwayBoard(world.board, fails=99)
    loop = make_loop(world, board)
    run = world.claimed()
    for _ in range(5):
        world.clock.now_s += LEASE_S / 2
        loop.turn([step(run, "a", (1,))])
    assert world.engine.killed == []


def test_a_leaving_pool_waits_for_the_engines_last_word_and_no_longer(world, loop):
    quick, slow = world.claimed(), world.claimed()
    loop.turn([step(slow, "kept ", (4,)), Leave(wait_s=2.0)])
    assert world.engine.sent == [Drop(run=quick.token), Drop(run=slow.token)]
    loop.turn([Dropped(run=quick.token)])
    assert world.state(quick.job_id) == "held"
    assert world.state(slow.job_id) == "running"
    world.clock.now_s += 2.0
    loop.turn([])
    assert world.state(slow.job_id) == "held"
    assert world.board.status(slow.job_id).progress == 1
    assert world.board.status(slow.job_id).crashes == 0


def test_models_that_the_engine_names_are_registered(world):
    board = AwayBoard(world.board, fails=1)
    loop = make_loop(world, board)
    hello = Hello(protocol=1, device="d", kinds=("generate",), models=("new",))
    loop.turn([hello, ModelSeen(model=ModelInfo(name="new", context=9))])
    loop.turn([])
    assert world.board.models()["new"].context == 9


def test_the_thread_takes_what_it_hears_and_stops_after_a_last_turn(world, loop):
    run, late = world.claimed(), world.claimed()
    loop.start()
    loop.hear(done(run, "", ()))
    assert run.wait().ending is Ending.ENDED
    loop.hear(done(late, "", ()))
    loop.stop()
    assert world.state(late.job_id) == "done"


class FaultyBoard(AwayBoard):
    """Cannot do one thing for one job, for another reason than being away."""

    def __init__(self, board, job_id):
        super().__init__(board, fails=0)
        self._job_id = job_id

    def report(self, pool, reports):
        if any(one.job == self._job_id for one in reports):
            raise ValueError("a fault")
        return self._board.report(pool, reports)

    def finish(self, job_id, token, result):
        if job_id == self._job_id:
            raise ValueError("a fault")
        return self._board.finish(job_id, token, result)

    def register(self, model):
        raise ValueError("a fault")


def test_a_fault_with_one_run_leaves_the_others_alone(world, caplog):
    bad, ending, moving = (world.claimed() for _ in range(3))
    loop = make_loop(world, FaultyBoard(world.board, bad.job_id))
    loop.turn([step(run, "x", (1,)) for run in (bad, moving)] + [done(ending, "", ())])
    assert bad.wait().ending is Ending.LOST
    assert texts(world, moving) == ["x"]
    assert world.state(ending.job_id) == "done"
    assert f"job {bad.job_id} cannot be told" in caplog.text


def test_a_run_that_cannot_be_ended_leaves_its_slot(world, caplog):
    bad, good = world.claimed(), world.claimed()
    loop = make_loop(world, FaultyBoard(world.board, bad.job_id))
    loop.turn([done(bad, "", ()), done(good, "", ())])
    assert bad.wait().ending is Ending.LOST
    assert world.state(good.job_id) == "done"
    assert f"job {bad.job_id} cannot be ended" in caplog.text


def test_a_fault_in_a_turn_does_not_end_the_thread(world, caplog):
    loop = make_loop(world, FaultyBoard(world.board, "none"))
    run = world.claimed()
    loop.start()
    loop.hear(ModelSeen(model=ModelInfo(name="x")))
    loop.hear(done(run, "", ()))
    assert run.wait().ending is Ending.ENDED
    loop.stop()
    assert "a turn of the board loop failed" in caplog.text
