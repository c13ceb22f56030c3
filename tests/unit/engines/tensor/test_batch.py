"""A batch over a model that fails on demand."""

import pytest
import torch

from engines.protocol import Done, Dropped, Failed, Start
from engines.tensor.batch import Batch
from engines.tensor.library import Resident
from engines.tensor.outbox import Outbox
from engines.tensor.rates import RateBook
from engines.tensor.runner import WholeRunner
from engines.tensor.text_run import Answer, Scoring
from noidle.jobs import Generate, ModelShape, Score
from tensor_llm.cache import KVCache
from tensor_llm.config import ModelConfig
from tensor_llm.generate import generate
from tensor_llm.model import new_decoder
from tensor_llm.tokenizer import Tokenizer

POISON = 7
TOKENIZER = Tokenizer.train(["the cat sat on the mat"], 257)
CONFIG = ModelConfig.of_shape(
    ModelShape(layers=2, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=64)
)
MODEL = new_decoder(CONFIG, 1)


class Poisoned(WholeRunner):
    """Fails in any step that holds a row whose prompt had a poisonous token."""

    def __init__(self, rows):
        super().__init__(MODEL, KVCache(CONFIG, rows=rows))
        self.poisoned = set()
        self.batches = []
        self.read_sizes = []

    def read(self, tokens, row, *, every):
        if POISON in tokens:
            self.poisoned.add(row)
        self.read_sizes.append(len(tokens))
        return super().read(tokens, row, every=every)

    def decode(self, tokens, rows):
        self.batches.append(len(rows))
        landed = super().decode(tokens, rows)
        if self.poisoned & set(rows):
            # the cache grew before it failed, as it would in the middle of a step
            raise RuntimeError("poison")
        return landed

    def release(self, row):
        self.poisoned.discard(row)
        super().release(row)


class World:
    def __init__(self, rows=4):
        self.events = []
        self.outbox = Outbox(self.events.append)
        self.runner = Poisoned(rows)
        self.resident = Resident(
            name="m", revision="r", tokenizer=TOKENIZER, runner=self.runner, bytes=1
        )
        self.batch = Batch(
            self.resident,
            self.outbox,
            RateBook(lambda: 0.0),
            wait_device=lambda: None,
            clock=lambda: 0.0,
        )

    def answer(self, run, tokens, max_tokens=8, **more):
        job = Generate(model="m", prompt="x", max_tokens=max_tokens, **more)
        start = Start.of(run, job, 1)
        answer = Answer(start, job, self.resident, tokens, lambda: 0.0, None)
        self.batch.join(answer)
        return answer

    def go(self, passes=100, budget=64):
        for _ in range(passes):
            if self.batch.idle:
                break
            self.batch.read(budget)
            self.batch.decode()
            self.outbox.flush((), 0, None)
            self.outbox.clear()
        return {one.run: one for one in self.events if isinstance(one, Done | Failed | Dropped)}


def alone(tokens, max_tokens=8):
    return tuple(generate(MODEL, tokens, max_tokens=max_tokens, eos_token=TOKENIZER.eos_token))


def test_the_run_at_fault_ends_and_those_beside_it_are_as_alone():
    world = World()
    world.answer("a", [1, 2, 3])
    world.answer("bad", [4, POISON])
    world.answer("c", [5, 6])
    ends = world.go()
    assert isinstance(ends["bad"], Failed)
    assert "poison" in ends["bad"].error.message
    assert ends["a"].result.tokens == alone([1, 2, 3])
    assert ends["c"].result.tokens == alone([5, 6])
    assert world.runner.claim() == 0


def test_after_the_fault_the_others_decode_together_again():
    world = World()
    world.answer("a", [1, 2, 3])
    world.answer("bad", [4, POISON])
    world.answer("c", [5, 6])
    world.go()
    assert world.runner.batches[:5] == [3, 1, 1, 1, 2]


def test_a_fault_of_the_device_ends_the_process_not_a_run():
    fatal = getattr(torch, "AcceleratorError", MemoryError)

    class Broken(RuntimeError):
        pass

    if not issubclass(fatal, RuntimeError):
        pytest.skip("this torch does not tell faults of a device apart")
    world = World()
    world.answer("a", [1, 2, 3])
    world.batch.read(64)
    world.runner.decode = lambda *_: (_ for _ in ()).throw(fatal("unspecified launch failure"))
    with pytest.raises(fatal):
        world.batch.decode()


def test_long_prompts_take_turns_within_the_budget():
    world = World()
    world.answer("long", [1] * 40, max_tokens=2)
    world.answer("short", [2] * 5, max_tokens=2)
    world.batch.read(16)
    assert world.runner.read_sizes == [16]
    world.batch.read(16)
    # the short one's turn came before the rest of the long one
    assert world.runner.read_sizes == [16, 5, 11]


def test_runs_beyond_the_rows_wait_and_get_their_turn():
    world = World(rows=2)
    for place in range(5):
        world.answer(str(place), [place + 1], max_tokens=3)
    ends = world.go()
    assert len(ends) == 5
    assert max(world.runner.batches) == 2


def test_a_dropped_run_that_waits_leaves_without_a_row():
    world = World(rows=1)
    world.answer("first", [1])
    waiting = world.answer("waiting", [2])
    world.batch.read(64)
    world.batch.drop(waiting)
    ends = world.go()
    assert isinstance(ends["waiting"], Dropped)
    assert isinstance(ends["first"], Done)


def test_a_score_and_an_answer_share_the_cache():
    world = World()
    job = Score(model="m", text="x")
    scoring = Scoring(Start.of("s", job, 1), job, world.resident, [1, 2, 3, 4], lambda: 0.0, None)
    world.batch.join(scoring)
    world.answer("a", [1, 2, 3])
    ends = world.go(budget=2)
    with torch.inference_mode():
        logits_TV = MODEL(torch.tensor([[1, 2, 3]]))[0]
    wanted = logits_TV.log_softmax(-1)[torch.arange(3), [2, 3, 4]]
    assert ends["s"].result.logprobs == pytest.approx(wanted.tolist(), abs=1e-4)
    assert ends["a"].result.tokens == alone([1, 2, 3])
