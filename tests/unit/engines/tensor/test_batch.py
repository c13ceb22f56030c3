"""A batch over a model that fails on demand."""

import pytest
import torch

from engines.protocol import Done, Dropped, Failed, Start
from engines.tensor.batch import Batch
from engines.tensor.library import Resident
from engines.tensor.outbox import Outbox
from engines.tensor.rates import RateBook
from engines.tensor.text_run import Answer, Entry, Scoring
from noidle.errors import InvalidJob
from noidle.jobs import Generate, ModelShape, Score
from tensor_llm.config import ModelConfig
from tensor_llm.generate import generate
from tensor_llm.model import new_decoder
from tensor_llm.serving.core import Core
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.torch_executor import TorchExecutor
from tensor_llm.tokenizer import Tokenizer

POISON = 7
TOKENIZER = Tokenizer.train(["the cat sat on the mat"], 257)
CONFIG = ModelConfig.of_shape(
    ModelShape(layers=2, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=64)
)
MODEL = new_decoder(CONFIG, 1)


class Poisoned(TorchExecutor):
    """Fails in any step that holds a sequence whose prompt had a poisonous token."""

    def __init__(self, blocks):
        super().__init__(MODEL, PagedCache(CONFIG, blocks=blocks))
        self.poisoned = set()
        # decoding sequences in each step, failed ones too
        self.batches = []

    def run(self, batch):
        for token, position, row in zip(
            batch.token_M.tolist(),
            batch.position_M.tolist(),
            batch.sequence_M.tolist(),
            strict=True,
        ):
            if position == 0:
                self.poisoned.discard(row)
            if token == POISON:
                self.poisoned.add(row)
        if batch.decodes:
            self.batches.append(batch.decodes)
        # blocks are written before it fails, as they would be in the midst of a step
        flight = super().run(batch)
        if self.poisoned & set(batch.sequence_M.tolist()):
            raise RuntimeError("poison")
        return flight


class World:
    def __init__(self, rows=4, blocks=16, eos_tokens=frozenset()):
        self.events = []
        self.outbox = Outbox(self.events.append)
        self.executor = Poisoned(blocks)
        self.core = Core(self.executor, rows=rows, chunk_tokens=8)
        self.resident = Resident(
            name="m",
            revision="r",
            tokenizer=TOKENIZER,
            chat=None,
            core=self.core,
            context=64,
            capacity=min(64, self.core.kv_tokens_total),
            eos_tokens=eos_tokens,
            weight_bytes=1,
            cache_bytes=0,
        )
        self.batch = Batch(self.resident, self.outbox, RateBook(lambda: 0.0), lambda: 0.0)

    def answer(self, run, tokens, max_tokens=8, emitted=(), text="", **more):
        job = Generate(model="m", prompt="x", max_tokens=max_tokens, **more)
        start = Start.of(run, job, 1, tokens=emitted, text=text)
        answer = Answer(start, job, self.resident, entry(tokens), lambda: 0.0)
        self.batch.join(answer)
        return answer

    def score(self, run, tokens, **more):
        job = Score(model="m", text="x", **more)
        scoring = Scoring(Start.of(run, job, 1), job, self.resident, entry(tokens), lambda: 0.0)
        self.batch.join(scoring)

    def go(self, passes=200):
        for _ in range(passes):
            if self.batch.idle:
                break
            self.batch.step()
            self.outbox.flush((), 0, None)
            self.outbox.clear()
        self.outbox.flush((), 0, None)
        assert self.core.kv_tokens_free == self.core.kv_tokens_total
        return {one.run: one for one in self.events if isinstance(one, Done | Failed | Dropped)}


def entry(tokens):
    return Entry(tokens=tuple(tokens), load_ms=None, tokenize_ms=1.0)


def alone(tokens, max_tokens=8):
    return tuple(generate(MODEL, tokens, max_tokens=max_tokens, cached=False))


def logprobs_of(tokens):
    with torch.inference_mode():
        share_TV = MODEL(torch.tensor([tokens[:-1]]))[0].log_softmax(-1)
    return share_TV.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()


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


def test_after_the_fault_the_others_decode_together_again():
    world = World()
    world.answer("a", [1, 2, 3])
    world.answer("bad", [4, POISON])
    world.answer("c", [5, 6])
    world.go()
    assert world.executor.batches[-1] == 2


def test_a_fault_of_the_device_ends_the_process_not_a_run():
    fatal = getattr(torch, "AcceleratorError", MemoryError)
    world = World()
    world.answer("a", [1, 2, 3])
    world.executor.run = lambda *_: (_ for _ in ()).throw(fatal("unspecified launch failure"))
    with pytest.raises(fatal):
        world.go()


def test_runs_beyond_the_rows_wait_and_get_their_turn():
    world = World(rows=2)
    for place in range(5):
        world.answer(str(place), [place + 1], max_tokens=3)
    ends = world.go()
    assert len(ends) == 5
    assert max(world.executor.batches) == 2


def test_a_more_urgent_run_takes_the_row_of_one_less_urgent():
    world = World(rows=1)
    for run, job_class in (("a", "standard"), ("b", "background"), ("c", "interactive")):
        world.answer(run, [1, 2], max_tokens=3, job_class=job_class)
        world.batch.step()
    ends = world.go()
    assert list(ends) == ["c", "a", "b"]
    assert {end.result.tokens for end in ends.values()} == {alone([1, 2], 3)}


def test_runs_that_outgrow_the_cache_make_room_by_class_and_end_as_alone():
    # two blocks of 16: one run's 30 tokens at a time
    world = World(blocks=2)
    prompts = {"late": [1, 2, 3], "soon": [4, 5, 6], "now": [8, 9, 10]}
    for run, job_class in (("late", "batch"), ("soon", "standard"), ("now", "interactive")):
        world.answer(run, prompts[run], max_tokens=27, job_class=job_class)
    ends = world.go(1000)
    assert list(ends) == ["now", "soon", "late"]
    for run, prompt in prompts.items():
        assert ends[run].result.tokens == alone(prompt, 27)


@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_dropped_run_leaves_at_once_wherever_it_is(steps):
    world = World(rows=1)
    runs = [world.answer("first", [1] * 20), world.answer("second", [2])]
    for dropped in runs:
        for _ in range(steps):
            world.batch.step()
        world.batch.drop(dropped)
    # nothing is computed for nobody
    assert [*world.core.waiting, *world.core.running] == []
    ends = world.go()
    assert [type(end) for end in ends.values()] == [Dropped, Dropped]


def test_a_score_and_an_answer_share_the_cache():
    world = World()
    text = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12]
    world.score("s", text)
    world.answer("a", [1, 2, 3])
    ends = world.go()
    assert ends["s"].result.logprobs == pytest.approx(logprobs_of(text), abs=1e-4)
    assert ends["s"].result.prompt_tokens == len(text)
    assert ends["a"].result.tokens == alone([1, 2, 3])


def test_the_end_token_of_the_model_ends_an_answer_and_does_not_show():
    whole = alone([1, 2, 3])
    world = World(eos_tokens=frozenset({whole[5]}))
    world.answer("a", [1, 2, 3])
    result = world.go()["a"].result
    assert result.finish_reason == "eos"
    assert result.tokens == whole[: whole.index(whole[5])]


def test_a_stop_string_ends_the_run_in_the_midst_of_its_sequence():
    whole = TOKENIZER.decode(alone([1, 2, 3], 40), at_start=False)
    world = World()
    world.answer("a", [1, 2, 3], 40, stop=("\0never", whole[6:9], whole[20:23]))
    result = world.go()["a"].result
    assert result.finish_reason == "stop"
    assert result.text == whole[: whole.index(whole[6:9])]


def test_log_probabilities_are_those_of_the_answer():
    world = World()
    world.answer("a", [1, 2, 3], logprobs=True)
    world.answer("b", [1, 2, 3])
    ends = world.go()
    wanted = logprobs_of([1, 2, 3, *alone([1, 2, 3])])[2:]
    assert ends["a"].result.logprobs == pytest.approx(wanted, abs=1e-4)
    assert ends["b"].result.logprobs is None


@pytest.mark.parametrize("emitted", [1, 5, 7, 8])
def test_a_resumed_run_has_the_log_probabilities_of_every_attempt(emitted):
    whole = alone([1, 2, 3])
    stream = TOKENIZER.decode(whole[:emitted], at_start=False).rstrip("�")
    world = World()
    world.answer("a", [1, 2, 3], emitted=whole[:emitted], text=stream, logprobs=True)
    result = world.go()["a"].result
    assert result.tokens == whole[emitted:]
    wanted = logprobs_of([1, 2, 3, *whole])[2:]
    assert result.logprobs == pytest.approx(wanted, abs=1e-4)


def test_a_prompt_that_was_read_before_is_not_read_again():
    world = World()
    world.answer("a", [1] * 40)
    world.go()
    world.answer("b", [1] * 40)
    ends = world.go()
    assert ends["a"].result.prefix_tokens == 0
    assert ends["b"].result.prefix_tokens >= 32
    assert ends["b"].result.tokens == ends["a"].result.tokens


def test_a_result_tells_how_long_each_part_took():
    world = World()
    world.answer("a", [1, 2, 3])
    result = world.go()["a"].result
    assert result.tokenize_ms == 1.0
    assert result.prefill_ms is not None
    assert (result.decode_ms, result.stream_ms, result.tpot_ms) == (0.0, 0.0, 0.0)


def test_a_run_longer_than_the_cache_here_is_refused_with_both_lengths():
    world = World(blocks=2)
    with pytest.raises(InvalidJob, match="the context 32; memory here is short") as refused:
        world.answer("a", [1] * 30, max_tokens=10)
    assert refused.value.field == "prompt"


def test_a_step_lasts_until_the_next_one_but_for_what_comes_between():
    world = World()
    world.answer("r", [1, 2], max_tokens=8)
    now_s = [0.0]
    world.batch._clock = lambda: now_s[0]
    decode = world.batch._rates.of("m").decode
    world.batch.step()
    for _ in range(3):
        # with the time that it takes to tell
        now_s[0] += 0.5
        world.batch.step()
    assert decode.fit() == pytest.approx((0.5, 0.0))
    # a part of training, or a step of another model
    now_s[0] += 10
    world.batch.disturb()
    world.batch.step()
    now_s[0] += 10
    world.batch.step(alone=False)
    assert decode.fit()[0] < 0.5


def test_what_flew_beside_training_tells_nothing_of_its_speed():
    world = World()
    world.executor.asynchronous = True
    world.answer("r", [1, 2], max_tokens=8)
    for _ in range(3):
        world.batch.disturb()
        world.batch.step()
    assert world.batch._rates.of("m").decode.fit() is None
