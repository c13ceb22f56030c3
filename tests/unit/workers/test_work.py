"""What a task's thread does with a lease."""

import threading

import pytest

from engines.protocol import Dropped, Failed, ProtocolError, Start
from routing.board import Refusal, StepReport
from tests.unit.workers.world import POOL, AwayBoard, World
from workers.runs import Ending, Outcome
from workers.work import Work

ENDED = Outcome(ending=Ending.ENDED)


@pytest.fixture
def world():
    return World()


class Pause:
    """A pool's `pause`, without waiting; `closed` as soon as so many pauses were asked for."""

    def __init__(self, closes_after=None):
        self._left = closes_after

    def __call__(self, _seconds):
        if self._left is None:
            return False
        self._left -= 1
        return self._left < 0


def make_work(world, *, board=None, pause=None, hear=None):
    """Whatever is said of a run ends it: there is no board loop here."""

    def note(event):
        said.append(event)
        world.runs.end(world.runs.get(event.run), Outcome(ending=Ending.HANDED_BACK))

    said = []
    work = Work(
        board or world.board,
        world.engine,
        world.runs,
        pool=POOL,
        hear=hear or note,
        pause=pause or Pause(),
        clock=world.clock,
    )
    return work, said


def start_and_end(world, work, job_id, token):
    """The outcome of a run that the engine ends at once."""

    def end(op, generation=None):
        world.engine.sent.append(op)
        world.runs.end(world.runs.get(op.run), ENDED)

    world.engine.send = end
    return work.do(job_id, token)


def test_a_claimed_job_is_handed_to_the_engine_and_waited_for(world):
    job_id, token = world.leased(seed=9)
    work, _ = make_work(world)
    assert start_and_end(world, work, job_id, token) is ENDED
    [start] = world.engine.sent
    assert (start.run, start.job["id"], start.seed, start.attempt) == (token, job_id, 9, 1)
    assert start.token8 == token[:8]
    assert world.state(job_id) == "running"


def test_a_later_attempt_starts_behind_what_was_emitted(world):
    run = world.claimed()
    told = StepReport(job=run.job_id, token=run.token, text="a b ", tokens=(1, 2), revision="r")
    world.board.report(POOL, [told])
    world.board.hand_back(run.job_id, run.token)
    work, _ = make_work(world)
    start_and_end(world, work, run.job_id, world.lease(run.job_id))
    [start] = world.engine.sent
    assert isinstance(start, Start)
    assert (start.text, start.tokens, start.revision, start.attempt) == ("a b ", (1, 2), "r", 2)


def test_a_token_that_is_used_up_starts_nothing(world):
    run = world.claimed()
    work, _ = make_work(world)
    assert work.do(run.job_id, run.token) == Refusal(reason="stale")
    assert world.engine.sent == []


def test_the_same_message_in_two_threads_starts_one_run(world):
    """A claim that is repeated is granted again, as its answer may have been lost."""
    job_id, token = world.leased()
    claim = world.board.claim(job_id, token, POOL, 1)

    class Repeating(AwayBoard):
        def claim(self, *_):
            return claim

    work, _ = make_work(world, board=Repeating(world.board, 0))
    thread = threading.Thread(target=work.do, args=(job_id, token))
    thread.start()
    while world.runs.get(token) is None:
        pass
    assert work.do(job_id, token).ending is Ending.LOST
    world.runs.end(world.runs.get(token), ENDED)
    thread.join(10)
    assert len(world.engine.sent) == 1


def test_a_job_claimed_while_the_engine_is_down_goes_back(world):
    job_id, token = world.leased()
    world.engine.up = False
    work, said = make_work(world)
    assert work.do(job_id, token).ending is Ending.HANDED_BACK
    assert said == [Dropped(run=token)]


def test_a_job_that_no_engine_can_be_told_fails(world):
    job_id, token = world.leased()

    def refuse(op, generation=None):
        raise ProtocolError("a line of 99 bytes")

    world.engine.send = refuse
    work, said = make_work(world)
    work.do(job_id, token)
    [failed] = said
    assert isinstance(failed, Failed)
    assert failed.error.message == "a line of 99 bytes"


def test_any_other_fault_gives_the_job_back_and_is_raised(world):
    job_id, token = world.leased()

    def fail(op, generation=None):
        raise MemoryError

    world.engine.send = fail
    work, said = make_work(world)
    with pytest.raises(MemoryError):
        work.do(job_id, token)
    assert said == [Dropped(run=token)]


def test_a_claim_waits_for_redis(world):
    job_id, token = world.leased()
    work, _ = make_work(world, board=AwayBoard(world.board, fails=3))
    assert start_and_end(world, work, job_id, token) is ENDED


def test_a_claim_whose_answer_was_lost_goes_back(world):
    job_id, token = world.leased()

    class LosesAnswers(AwayBoard):
        def claim(self, *args):
            self._board.claim(*args)
            if self.fails:
                self.fails -= 1
                return self.now_ms()  # raises
            return Refusal(reason="stale")

    board = LosesAnswers(world.board, fails=2)
    work, _ = make_work(world, board=board)
    assert work.do(job_id, token) == Refusal(reason="stale")
    assert world.state(job_id) == "held"
    assert world.board.status(job_id).crashes == 0


def test_a_pool_that_ends_claims_nothing_and_returns_the_lease(world):
    job_id, token = world.leased()
    work, _ = make_work(world, pause=Pause(closes_after=0))
    assert work.do(job_id, token) == Refusal(reason="leaving")
    assert (world.state(job_id), world.board.status(job_id).attempt) == ("held", 0)


def test_a_pool_that_ends_between_claim_and_start_gives_the_job_back(world):
    job_id, token = world.leased()
    work, said = make_work(world, pause=Pause(closes_after=1))
    assert work.do(job_id, token).ending is Ending.HANDED_BACK
    assert said == [Dropped(run=token)]
    assert world.engine.sent == []
