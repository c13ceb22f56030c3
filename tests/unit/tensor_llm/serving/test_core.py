import itertools

import pytest
import torch

from tensor_llm.sampling import Sampling
from tensor_llm.serving.core import Core
from tensor_llm.serving.executor import Landed
from tensor_llm.serving.request import Request
from tensor_llm.serving.staging import Staging
from tensor_llm.upload import Download
from tests.unit.tensor_llm.builders import random_tokens
from tests.unit.tensor_llm.serving.executors import (
    KINDS,
    FailedFlight,
    executor_of,
    failing,
    finish,
    plain_answer,
    plain_logprobs,
)

kinds = pytest.mark.parametrize("kind", KINDS)


def make_core(kind: str = "plain", blocks: int = 40, size: int = 4, **options) -> Core:
    return Core(executor_of(kind, "plain", blocks, size), **({"rows": 4} | options))


def prompt(count: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(random_tokens(count, seed))


@kinds
def test_outputs_tell_what_was_read_what_came_out_and_how_it_ended(kind):
    core, tokens = make_core(kind, chunk_tokens=4), prompt(10)
    wanted = plain_answer("plain", tokens, 5)
    sequence = core.add(Request(tokens=tokens, max_tokens=5))
    outputs = finish(core)
    assert [output.read for output in outputs] == [4, 8, 10, 11, 12, 13, 14]
    assert [output.tokens for output in outputs] == [(), (), *((token,) for token in wanted)]
    assert [output.finished for output in outputs] == [None] * 6 + ["length"]
    assert sequence.tokens == [*tokens, *wanted]
    assert sequence.generated == 5


@kinds
def test_an_end_token_ends_an_answer_and_is_not_part_of_it(kind):
    core, tokens = make_core(kind), prompt(6)
    wanted = plain_answer("plain", tokens, 8)
    end = wanted[5]
    core.add(Request(tokens=tokens, max_tokens=8, eos_tokens=frozenset([end, 60]), logprobs=True))
    outputs = finish(core)
    found = [token for output in outputs for token in output.tokens]
    assert found == list(wanted[: wanted.index(end)])
    assert outputs[-1].finished == "eos"
    assert outputs[-1].logprobs == ()


@kinds
@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_a_text_is_scored_and_its_tokens_have_their_probabilities(kind, chunk):
    core, tokens = make_core(kind, chunk_tokens=chunk), prompt(30)
    scored = core.add(Request(tokens=tokens, max_tokens=0, score=True))
    answer = core.add(Request(tokens=tokens[:9], max_tokens=12, logprobs=True))
    outputs = finish(core)
    parts = [output for output in outputs if output.sequence is scored]
    found = [one for output in parts for one in output.logprobs]
    assert found == pytest.approx(plain_logprobs("plain", tokens), rel=1e-5)
    assert parts[-1].finished == "length"
    assert [len(output.logprobs) for output in parts] == [
        min(chunk, 29 - at) for at in range(0, 29, chunk)
    ] or chunk == 5
    found = [one for output in outputs if output.sequence is answer for one in output.logprobs]
    assert found == pytest.approx(plain_logprobs("plain", tuple(answer.tokens))[8:], rel=1e-5)


def test_the_logits_of_a_scored_text_are_bounded_whatever_the_chunk(monkeypatch):
    monkeypatch.setitem(
        __import__("tensor_llm.serving.core", fromlist=["core"]).SCORE_LOGITS, "cpu", 61 * 17
    )
    core = make_core(chunk_tokens=64)
    wanted = []
    run = core.executor.run

    def watched(batch):
        wanted.append(len(batch.wanted_W))
        return run(batch)

    core.executor.run = watched
    requests = [Request(tokens=prompt(40, n), max_tokens=0, score=True) for n in range(2)]
    sequences = [core.add(request) for request in requests]
    outputs = finish(core)
    assert max(wanted) == 17
    for sequence in sequences:
        found = [
            one for output in outputs if output.sequence is sequence for one in output.logprobs
        ]
        assert found == pytest.approx(plain_logprobs("plain", sequence.request.tokens), rel=1e-5)


@pytest.mark.parametrize(
    ("count", "most", "words"),
    [
        (90, 7, "90 tokens and max_tokens = 7: together 97, allowed are 96, the context"),
        (20, 14, "20 tokens and max_tokens = 14: together 34, allowed are 33: the cache has"),
    ],
)
def test_what_can_never_fit_is_refused_when_it_comes(count, most, words):
    core = make_core(blocks=8)
    with pytest.raises(ValueError, match=words):
        core.add(Request(tokens=prompt(count), max_tokens=most))
    assert not core.busy


@kinds
def test_what_just_fits_comes_to_its_end(kind):
    core = make_core(kind, blocks=8)
    sequence = core.add(Request(tokens=prompt(20), max_tokens=13))
    finish(core)
    assert tuple(sequence.tokens[20:]) == plain_answer("plain", prompt(20), 13)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tokens": ()}, "tokens has 0: allowed is at least 1"),
        ({"tokens": (1,), "max_tokens": 0, "score": True}, "tokens has 1: allowed is at least 2"),
        ({"max_tokens": 0}, "max_tokens = 0: allowed is 1 or more"),
        ({"max_tokens": 3, "score": True}, "max_tokens = 3: allowed is 0 with score"),
        ({"rank": -1}, "rank = -1: allowed is 0 or more"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Request(**({"tokens": (1, 2), "max_tokens": 1} | fields))


@kinds
def test_a_dropped_sequence_says_nothing_more_and_leaves_its_blocks(kind):
    core = make_core(kind)
    dropped, other = (core.add(Request(tokens=prompt(9, n), max_tokens=20)) for n in (1, 2))
    for _ in range(4):
        core.step()
    core.drop(dropped)
    outputs = finish(core)
    assert {output.sequence for output in outputs} == {other}
    assert tuple(other.tokens[9:]) == plain_answer("plain", prompt(9, 2), 20)
    assert core.kv_tokens_free == core.kv_tokens_total
    core.drop(dropped)
    core.drop(other)


@kinds
def test_an_evicted_sequence_goes_on_where_it_was(kind):
    core = make_core(kind, blocks=9)
    sequences = [core.add(Request(tokens=prompt(8, n), max_tokens=20)) for n in (1, 2)]
    finish(core)
    assert core.stats().evictions
    for n, sequence in enumerate(sequences, 1):
        assert tuple(sequence.tokens[8:]) == plain_answer("plain", prompt(8, n), 20)
    # the one that came first was never disturbed
    assert sequences[0].evictions == 0


@kinds
def test_a_scored_text_that_was_evicted_says_nothing_twice(kind):
    core, tokens = make_core(kind, blocks=9, chunk_tokens=6), prompt(34)
    scored = core.add(Request(tokens=tokens, max_tokens=0, score=True, rank=3))
    outputs = [output for _ in range(3) for output in core.step()]
    urgent = core.add(Request(tokens=prompt(20, 1), max_tokens=3, rank=0))
    outputs += finish(core)
    assert scored.evictions == 1
    found = [one for output in outputs if output.sequence is scored for one in output.logprobs]
    assert found == pytest.approx(plain_logprobs("plain", tokens), rel=1e-5)
    assert tuple(urgent.tokens[20:]) == plain_answer("plain", prompt(20, 1), 3)


@kinds
def test_a_conversation_that_goes_on_finds_all_that_was_said(kind):
    core = make_core(kind, size=4)
    first = core.add(Request(tokens=prompt(10), max_tokens=10))
    finish(core)
    said = (*first.tokens, *prompt(5, 3))
    second = core.add(Request(tokens=said, max_tokens=6))
    finish(core)
    # of 20 tokens the last was never read, so four blocks are full
    assert second.reused_tokens == 16
    assert tuple(second.tokens[len(said) :]) == plain_answer("plain", said, 6)
    assert core.stats().reused_tokens == 16


@kinds
@pytest.mark.parametrize("where", ["run", "land"])
def test_a_fault_ends_the_guilty_alone(kind, where):
    guilty = []

    def fails(batch):
        rows = set(batch.sequence_M.tolist())
        return where if guilty and guilty[0].row in rows and guilty[0].generated >= 3 else None

    core = Core(failing(executor_of(kind, "plain", 40, 4), fails), rows=4, chunk_tokens=6)
    sequences = [core.add(Request(tokens=prompt(9, n), max_tokens=12)) for n in range(3)]
    guilty.append(sequences[1])
    outputs = finish(core)
    errors = [output for output in outputs if output.error]
    assert [(output.sequence, str(output.error)) for output in errors] == [
        (sequences[1], "this step fails")
    ]
    for n in (0, 2):
        assert tuple(sequences[n].tokens[9:]) == plain_answer("plain", prompt(9, n), 12)
    assert core.kv_tokens_free == core.kv_tokens_total


@kinds
def test_a_fault_of_the_device_ends_everything(kind):
    class Gone(BaseException):
        pass

    core = make_core(kind)

    def run(batch):
        return FailedFlight(Gone())

    core.executor.run = run
    core.add(Request(tokens=prompt(4), max_tokens=4))
    with pytest.raises(Gone):
        finish(core)


@kinds
def test_closing_takes_everything_out(kind):
    core = make_core(kind)
    for n in range(6):
        core.add(Request(tokens=prompt(9, n), max_tokens=20))
    core.step()
    core.close()
    assert not core.busy
    assert core.kv_tokens_free == core.kv_tokens_total


def test_sampled_answers_depend_on_the_seed_alone():
    tokens = prompt(7)
    answers = {}
    for seed, rows, chunk in itertools.product((1, 2), (1, 3), (2, 64)):
        core = make_core(rows=rows, chunk_tokens=chunk)
        sampling = Sampling(temperature=1.0, top_p=0.95, seed=seed)
        others = [Sampling(temperature=0.7, seed=9), Sampling()]
        sequence, *_ = [
            core.add(Request(tokens=tokens, max_tokens=16, sampling=one, reuse=False))
            for one in (sampling, *others)
        ]
        finish(core)
        assert tuple(sequence.tokens[7:]) == plain_answer("plain", tokens, 16, sampling)
        answers.setdefault(seed, set()).add(tuple(sequence.tokens))
    assert [len(found) for found in answers.values()] == [1, 1]
    assert answers[1] != answers[2]


class Diary:
    """An asynchronous executor and the way of its tokens to the host, in one list."""

    def __init__(self, core_options: dict) -> None:
        self.entries: list[str] = []
        executor = executor_of("asynchronous", "plain", 60, 4)
        run, diary, counter = executor.run, self, itertools.count()

        class Later(Download):
            def __init__(self, *tensors: torch.Tensor) -> None:
                super().__init__(*(one.clone() for one in tensors))
                self.step = next(counter)

            def read(self):
                diary.entries.append(f"read {self.step}")
                return super().read()

        launches = itertools.count()

        def watched(batch) -> Landed:
            diary.entries.append(f"launch {next(launches)}")
            return run(batch)

        executor.run = watched
        self.core = Core(executor, download=Later, **core_options)


def test_the_next_step_is_launched_before_the_present_ones_tokens_are_read():
    diary = Diary({"rows": 4, "chunk_tokens": 8})
    sequences = [diary.core.add(Request(tokens=prompt(7, n), max_tokens=10)) for n in range(3)]
    finish(diary.core)
    last = int(diary.entries[-1].split()[1])
    wanted = ["launch 0"]
    for step in range(last):
        wanted += [f"launch {step + 1}", f"read {step}"]
    assert diary.entries == [*wanted, f"read {last}"]
    for n, sequence in enumerate(sequences):
        assert tuple(sequence.tokens[7:]) == plain_answer("plain", prompt(7, n), 10)


def test_a_step_that_was_launched_for_an_answer_that_had_ended_is_in_vain():
    sampling = Sampling(temperature=1.0, seed=4)
    wanted = plain_answer("plain", prompt(7), 12, sampling)
    end = wanted[4]
    ending = Request(
        tokens=prompt(7), max_tokens=12, sampling=sampling, eos_tokens=frozenset([end])
    )
    diary = Diary({"rows": 4})
    sequence = diary.core.add(ending)
    other = diary.core.add(Request(tokens=prompt(7, 1), max_tokens=12))
    outputs = finish(diary.core)
    ends = [output for output in outputs if output.sequence is sequence and output.finished]
    assert len(ends) == 1
    assert tuple(sequence.tokens[7:]) == wanted[: wanted.index(end)]
    assert tuple(other.tokens[7:]) == plain_answer("plain", prompt(7, 1), 12)


def test_an_answer_of_known_length_launches_no_step_too_many():
    diary = Diary({"rows": 1})
    diary.core.add(Request(tokens=prompt(7), max_tokens=5))
    finish(diary.core)
    assert sum(entry.startswith("launch") for entry in diary.entries) == 5


@kinds
def test_a_step_like_the_one_before_writes_no_more_than_tokens_and_positions(kind, monkeypatch):
    core = make_core(kind, blocks=60, size=16)
    sampling = Sampling(temperature=1.0, seed=1)
    for n in range(2):
        core.add(Request(tokens=prompt(17, n), max_tokens=12, sampling=sampling))
    for _ in range(4):
        core.step()
    places = []

    def watched(staging, plan, newest_S, fill=Staging.fill):
        staged = fill(staging, plan, newest_S)
        batch = staged.batch
        places.append(
            tuple(
                tensor.data_ptr()
                for tensor in (
                    *(batch.token_M, batch.position_M, batch.sequence_M, batch.table_SX),
                    *(batch.wanted_W, staged.row_B, staged.sampling.temperature_B),
                )
            )
        )
        return staged

    def never(*_):
        raise AssertionError("nothing has changed")

    monkeypatch.setattr(Staging, "fill", watched)
    monkeypatch.setattr(Staging, "_lay_out", never)
    for _ in range(5):
        core.step()
    assert len(set(places)) == (2 if kind == "late" else 1)
