"""What every engine program must do, whatever computes behind it: one suite, run against the
echo engine and against the tensor engine under each engine name.

Runs without celery and redis: `pytest --noconftest tests/contract/test_engine_contract.py`."""

import functools
import math
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from engines.environment import EngineEnvironment
from engines.machine import inspect_machine
from engines.placement import find_engines
from engines.program import load_program, shipped
from engines.protocol import CheckpointRef, Done, Dropped, Failed, Preload, Yield
from engines.storage import storage_id
from noidle.jobs import Generate, ModelShape, Score, Train
from tensor_llm.checkpoint import load_model
from tensor_llm.generate import generate
from tensor_llm.sampling import Sampling
from tensor_llm.store import ModelStore
from tensor_llm.train_run import TrainRun
from tests.contract.engine_driver import Driver

CONTEXT = 256
SLOTS = 4
SHAPE = ModelShape(
    layers=3, hidden=32, heads=4, kv_heads=2, vocabulary=320, context=CONTEXT, tied_head=True
)
TEXT = (
    "The cat sat on the mat and looked at the moon. 猫はマットの上に座って、月を見ていた。\n"
    "A queue holds what waits; a slot holds what runs. 待つものは列に、動くものは枠に。\n"
) * 40
CHAT = """\
{%- for message in messages %}{{ message.role }}: {{ message.content }}<|end|>{% endfor -%}
{%- if add_generation_prompt %}assistant: {% endif -%}
"""
PROMPTS = ["The cat", "A queue holds", "猫は", "moon. A slot", "待つものは", "x"]


@dataclass(frozen=True)
class Kind:
    """An engine under test."""

    program: str
    engine: str
    stand_in: bool = False

    def __str__(self):
        return f"{self.program}-{self.engine}{'-stand-in' if self.stand_in else ''}"


def gpu(engine):
    return pytest.param(Kind("tensor", engine), marks=pytest.mark.gpu, id=f"tensor-{engine}")


KINDS = [
    Kind("echo", "cpu"),
    Kind("tensor", "cpu"),
    *(Kind("tensor", engine, stand_in=True) for engine in ("hybrid", "cuda", "gpu")),
    *(gpu(engine) for engine in ("hybrid", "cuda", "gpu")),
]


@functools.cache
def placements():
    return {str(one.engine): one for one in find_engines(inspect_machine(), cores=1)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A data folder with a small model that has learnt a little."""
    folder = tmp_path_factory.mktemp("trained")
    torch.set_num_threads(1)
    job = Train(model="small", text=TEXT, shape=SHAPE, steps=40, batch=8, sequence=64)
    run = TrainRun.open(ModelStore(folder), job, [TEXT], seed=3)
    while not run.trainer.done:
        run.trainer.step()
    run.save("trained0")
    return folder


@pytest.fixture(scope="module", params=KINDS, ids=str)
def kind(request):
    found = placements()[request.param.engine]
    if not request.param.stand_in and not found.can_run:
        pytest.skip(f"{request.param.engine}: {found.why}")
    return request.param


@pytest.fixture(scope="module")
def environment(kind, trained, tmp_path_factory):
    data = tmp_path_factory.mktemp("data") / "cluster"
    shutil.copytree(trained, data)
    shutil.copytree(data / "models" / "small", data / "models" / "chatty")
    revision = (data / "models" / "chatty" / "current").read_text().strip()
    (data / "models" / "chatty" / revision / "chat_template.jinja").write_text(CHAT)
    (data / "text").mkdir()
    own = EngineEnvironment(
        engine=kind.engine,
        data_dir=data,
        text_dir=data / "text",
        storage=storage_id(data),
        threads=1,
        slots=SLOTS,
        stand_in=kind.stand_in,
        dtype="float32",
    )
    echo = {"ECHO_CONTEXT": str(CONTEXT), "ECHO_MODELS": "small", "ECHO_STEP_S": "0.003"}
    return {**own.variables(), **echo}


def driver(kind, environment):
    return Driver(load_program(shipped(kind.program)), kind.engine, environment)


@pytest.fixture(scope="module")
def shared(kind, environment):
    with driver(kind, environment) as one:
        yield one
        assert [end for end in one.exits if not end.expected] == []


@pytest.fixture
def engine(shared):
    """The shared engine, with nothing left running by a test that failed."""
    yield shared
    for run, seen in shared.runs.items():
        if seen.end is None:
            shared.drop(run)


@pytest.fixture(scope="module")
def reference(kind, trained):
    """The plain definition: a model's answer, uncached and alone. An echo has none."""
    if kind.program == "echo":
        return None
    loaded = load_model(ModelStore(trained), "small")

    def answer(job, seed):
        tokens = generate(
            loaded.model,
            loaded.tokenizer.encode(job.prompt),
            max_tokens=job.max_tokens,
            sampling=Sampling(
                temperature=job.temperature, top_k=job.top_k, top_p=job.top_p, seed=seed
            ),
            eos_token=loaded.tokenizer.eos_token,
            cached=False,
        )
        return tuple(tokens), loaded.tokenizer.decode(tokens)

    return answer


def ask(prompt="The cat", max_tokens=24, **more):
    return Generate(model="small", prompt=prompt, max_tokens=max_tokens, **more)


def lesson(name, **more):
    settings = {"steps": 24, "batch": 4, "sequence": 32, "warmup_steps": 4, "slice_s": 60}
    return Train(**{"model": name, "text": TEXT, "shape": SHAPE, **settings, **more})


def test_it_says_hello_with_what_it_can_do(engine, kind):
    hello = engine.hellos[0]
    assert hello.protocol == 1
    assert set(hello.kinds) == {"generate", "score", "train"}
    assert hello.device
    if kind.stand_in:
        assert f"stand-in for {kind.engine}" in hello.device


def test_it_tells_the_models_it_can_use(engine):
    engine.until(lambda: "small" in [model.name for model in engine.models])
    small = next(model for model in engine.models if model.name == "small")
    assert small.context == CONTEXT
    assert small.revision


def test_the_steps_of_a_run_joined_are_its_result(engine):
    seen = engine.do(ask())
    result = seen.end.result
    assert isinstance(seen.end, Done)
    assert (seen.text, seen.tokens) == (result.text, result.tokens)
    assert result.finish_reason == "length"
    assert len(result.tokens) == 24
    assert result.prompt_tokens >= 1
    assert result.revision == seen.steps[-1].revision
    assert result.decode_ms > 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_seed_decides_an_answer(engine, temperature):
    job = ask(temperature=temperature)
    first, again = engine.do(job, seed=5), engine.do(job, seed=5)
    assert first.tokens == again.tokens
    if temperature:
        assert engine.do(job, seed=6).tokens != first.tokens


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 0.8}, {"temperature": 1.2, "top_k": 20, "top_p": 0.9}],
    ids=["greedy", "temperature", "top-k-top-p"],
)
def test_runs_that_join_and_leave_a_batch_say_what_they_say_alone(engine, reference, sampling):
    jobs = [ask(prompt, 10 + 7 * place, **sampling) for place, prompt in enumerate(PROMPTS)]
    runs = []
    for place, job in enumerate(jobs):
        runs.append(engine.start(job, seed=place))
        # the next one joins while this one is in its midst
        engine.until(lambda run=runs[-1]: engine.runs[run].tokens or engine.runs[run].end)
    together = [engine.finish(run) for run in runs]
    for place, (job, seen) in enumerate(zip(jobs, together, strict=True)):
        if reference is not None:
            assert (seen.tokens, seen.text) == reference(job, place)
        else:
            assert seen.tokens == engine.do(job, seed=place).tokens


def test_runs_decode_together_up_to_the_slots(engine, kind):
    before = len(engine.batches)
    runs = [engine.start(ask(max_tokens=60), seed=place) for place in range(SLOTS + 2)]
    for run in runs:
        assert len(engine.finish(run).tokens) == 60
    if kind.program == "tensor":
        assert max(engine.batches[before:]) == SLOTS


def test_a_dropped_run_ends_at_once_and_others_go_on(engine):
    job = ask(max_tokens=200)
    alone = engine.do(job, seed=9)
    dropped, kept = engine.start(job, seed=8), engine.start(job, seed=9)
    engine.until(lambda: len(engine.runs[dropped].tokens) > 3)
    engine.drop(dropped)
    seen = engine.finish(dropped)
    assert isinstance(seen.end, Dropped)
    assert len(seen.tokens) < 200
    assert engine.finish(kept).tokens == alone.tokens


def test_dropping_what_has_ended_is_passed_over(engine):
    run = engine.start(ask(max_tokens=1))
    engine.finish(run)
    engine.drop(run)
    engine.drop("never-started")
    assert isinstance(engine.do(ask(max_tokens=1)).end, Done)


@pytest.mark.parametrize("prompt", ["The cat", "猫は"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("emitted", [1, 7, 16, 29, 30])
def test_a_run_resumed_behind_what_it_emitted_ends_like_an_undisturbed_one(
    engine, prompt, temperature, emitted
):
    job = ask(prompt, 30, temperature=temperature)
    whole = engine.do(job, seed=4)
    # a former attempt that died right after its n-th token
    before = [step for step in whole.steps if step.tokens][:emitted]
    text = "".join(step.text for step in before)
    tokens = tuple(token for step in before for token in step.tokens)
    revision = whole.end.result.revision
    rest = engine.do(job, seed=4, attempt=2, text=text, tokens=tokens, revision=revision)
    assert tokens + rest.tokens == whole.tokens
    assert text + rest.text == whole.text
    assert rest.end.result.finish_reason == whole.end.result.finish_reason


def test_text_ends_before_a_stop_string_wherever_tokens_end(engine):
    whole = engine.do(ask(max_tokens=40)).text
    for stop in (whole[8:12], whole[11:20]):
        seen = engine.do(ask(max_tokens=40, stop=(stop,)))
        assert seen.text == whole[: whole.index(stop)]
        assert seen.end.result.finish_reason == "stop"


def test_a_run_resumed_before_a_stop_string_still_ends_there(engine):
    whole = engine.do(ask(max_tokens=40)).text
    job = ask(max_tokens=40, stop=(whole[14:20],))
    undisturbed = engine.do(job)
    told = [step for step in undisturbed.steps if step.tokens]
    for cut in (len(told) - 1, len(told)):
        text = "".join(step.text for step in told[:cut])
        tokens = tuple(token for step in told[:cut] for token in step.tokens)
        rest = engine.do(job, attempt=2, text=text, tokens=tokens)
        assert text + rest.text == undisturbed.text
        assert tokens + rest.tokens == undisturbed.tokens


def test_no_piece_of_a_stream_ends_in_half_a_character(engine):
    seen = engine.do(ask("猫はマットの上に", max_tokens=60))
    pieces = [step.text for step in seen.steps if step.text]
    assert len(pieces) > 3
    whole = "".join(pieces)
    # a tiny model may spell a broken character; then both show it, else neither does
    assert sum(piece.count("\ufffd") for piece in pieces) == whole.count("\ufffd")
    assert any(ord(character) > 0x3000 for character in whole)


def test_a_score_tells_every_token_but_the_first(engine, kind, trained):
    seen = engine.do(Score(model="small", text="The cat sat on the mat. 月を見ていた。"))
    result = seen.end.result
    assert len(result.logprobs) == result.prompt_tokens - 1
    mean = sum(result.logprobs) / len(result.logprobs)
    assert result.perplexity == pytest.approx(math.exp(-mean), rel=1e-3)
    assert result.revision


def test_a_long_text_is_scored_in_parts_like_in_one(engine, kind, trained):
    text = TEXT[:330]
    logprobs = engine.do(Score(model="small", text=text)).end.result.logprobs
    if kind.program == "tensor":
        loaded = load_model(ModelStore(trained), "small")
        token_T = torch.tensor(loaded.tokenizer.encode(text))
        with torch.inference_mode():
            logits_TV = loaded.model(token_T[None, :-1])[0]
        wanted = logits_TV.log_softmax(-1).gather(-1, token_T[1:, None])[:, 0]
        assert logprobs == pytest.approx(wanted.tolist(), abs=2e-3)


def only_where_it_computes(kind):
    if kind.program == "echo":
        pytest.skip("an echo has no model")


def logprobs_of(trained, prompt, answer):
    loaded = load_model(ModelStore(trained), "small")
    tokens = [*loaded.tokenizer.encode(prompt), *answer]
    with torch.inference_mode():
        share_TV = loaded.model(torch.tensor([tokens[:-1]]))[0].log_softmax(-1)
    found = share_TV.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0]
    return found[-len(answer) :].tolist()


@pytest.mark.parametrize("emitted", [0, 1, 7, 20])
def test_an_answer_tells_how_likely_each_of_its_tokens_was(engine, kind, trained, emitted):
    only_where_it_computes(kind)
    job = ask(max_tokens=20, temperature=0.8, logprobs=True)
    whole = engine.do(job, seed=4)
    wanted = logprobs_of(trained, job.prompt, whole.tokens)
    assert whole.end.result.logprobs == pytest.approx(wanted, abs=2e-3)
    # those of former attempts are told again
    told = [step for step in whole.steps if step.tokens][:emitted]
    rest = engine.do(
        job,
        seed=4,
        attempt=2,
        tokens=tuple(token for step in told for token in step.tokens),
        text="".join(step.text for step in told),
    )
    assert rest.end.result.logprobs == pytest.approx(wanted, abs=2e-3)
    assert engine.do(ask(max_tokens=2)).end.result.logprobs is None


def test_an_urgent_run_does_not_wait_for_those_that_have_time(engine, kind):
    only_where_it_computes(kind)
    slow = ask(max_tokens=200, job_class="background", temperature=1.0)
    alone = engine.do(slow, seed=0).tokens
    runs = [engine.start(slow, seed=place) for place in range(SLOTS)]
    for run in runs:
        engine.until(lambda run=run: engine.runs[run].tokens)
    urgent = engine.do(ask(max_tokens=5, job_class="interactive"))
    assert isinstance(urgent.end, Done)
    assert any(engine.runs[run].end is None for run in runs)
    # one of them gave way, and none of them notices
    assert [len(engine.finish(run).tokens) for run in runs] == [200] * SLOTS
    assert engine.runs[runs[0]].tokens == alone


def test_a_prompt_that_was_read_is_not_read_again(engine, kind):
    only_where_it_computes(kind)
    job = ask("A queue holds what waits; a slot holds what runs. " * 3, max_tokens=8)
    first, again = engine.do(job), engine.do(job)
    assert again.end.result.prefix_tokens > 0.5 * again.end.result.prompt_tokens
    assert again.tokens == first.tokens


def test_a_result_tells_how_long_each_part_of_it_took(engine, kind):
    only_where_it_computes(kind)
    result = engine.do(ask(max_tokens=10)).end.result
    assert None not in (result.tokenize_ms, result.prefill_ms, result.decode_ms, result.stream_ms)
    assert 0 < result.stream_ms < result.decode_ms
    score = engine.do(Score(model="small", text="The cat sat on the mat.")).end.result
    assert None not in (score.tokenize_ms, score.prefill_ms)


def test_a_conversation_is_written_as_the_model_s_template_says(engine, kind, environment):
    only_where_it_computes(kind)
    asked = [("user", "The cat"), ("assistant", "sat."), ("user", "<|end|> on what?")]
    messages = tuple({"role": role, "content": content} for role, content in asked)
    job = Generate.model_validate(
        {"model": "chatty", "messages": list(messages), "max_tokens": 12, "kind": "generate"}
    )
    seen = engine.do(job)
    assert isinstance(seen.end, Done), seen.end
    loaded = load_model(ModelStore(Path(environment["NOIDLE_DATA_DIR"])), "chatty")
    tokens = loaded.chat.encode(job.messages, loaded.tokenizer)
    # what a user writes is text
    assert tokens.count(loaded.tokenizer.special_tokens["<|end|>"]) == 3
    assert seen.end.result.prompt_tokens == len(tokens)
    assert seen.tokens == tuple(
        generate(loaded.model, tokens, max_tokens=12, eos_token=loaded.tokenizer.eos_token)
    )


def test_a_conversation_with_a_model_that_has_no_template_is_refused_in_words(engine, kind):
    only_where_it_computes(kind)
    job = Generate.model_validate(
        {
            "kind": "generate",
            "model": "small",
            "messages": [{"role": "user", "content": "The cat"}],
        }
    )
    error = engine.do(job).end.error
    assert (error.code, error.field) == ("invalid", "messages")
    assert "prompt" in error.allowed


WRONG = {
    "prompt over the context": (ask("猫 " * 400, 10), {}, "prompt"),
    "a megabyte of prompt": (ask("word " * 200_000, 10), {}, "prompt"),
    "answer over the context": (ask("The cat", CONTEXT), {}, None),
    "unknown model": (Generate(model="nobody", prompt="x"), {}, "model"),
    "score of an unknown model": (Score(model="nobody", text="x y"), {}, "model"),
    "score over the context": (Score(model="small", text="猫 " * 400), {}, "text"),
    "missing checkpoint": (
        lesson("nowhere"),
        {"checkpoint": CheckpointRef(name="step-000007-gone", storage="s", step=7)},
        "checkpoint",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_run_that_cannot_be_is_refused_with_field_value_and_what_is_allowed(engine, case):
    job, more, field = WRONG[case]
    end = engine.do(job, **more).end
    assert isinstance(end, Failed)
    assert end.error.code == "invalid"
    assert end.error.field in ((field,) if field else ("prompt", "max_tokens"))
    assert end.error.value
    assert end.error.allowed


def test_a_failing_run_harms_no_other(engine):
    job = ask(max_tokens=120)
    alone = engine.do(job, seed=2)
    run = engine.start(job, seed=2)
    for wrong, more, _ in WRONG.values():
        assert isinstance(engine.do(wrong, **more).end, Failed)
    assert engine.finish(run).tokens == alone.tokens


def test_a_new_model_can_be_asked_while_its_first_slice_runs(engine):
    run = engine.start(lesson("early", steps=100_000, slice_s=600), token8="early000")
    engine.until(lambda: "early" in [model.name for model in engine.models])
    answer = engine.do(Generate(model="early", prompt="The cat", max_tokens=5))
    assert isinstance(answer.end, Done)
    assert answer.end.result.revision == "step-000000-early000"
    assert engine.runs[run].end is None
    engine.drop(run)
    engine.finish(run)


def in_slices(engine, job, end_slice):
    """The losses of a run that is interrupted, and how it ended."""
    losses, checkpoint, slices = {}, None, 0
    while True:
        slices += 1
        run = engine.start(job, token8=f"slice{slices:03d}", checkpoint=checkpoint)
        end_slice(run)
        seen = engine.finish(run)
        assert not set(losses) & set(seen.losses), "a step was done twice"
        losses |= seen.losses
        if not isinstance(seen.end, Yield):
            return losses, seen.end, slices
        assert seen.end.model.revision == seen.end.checkpoint.name
        assert seen.end.service_s > 0
        assert seen.end.checkpoint.step == max(losses)
        checkpoint = seen.end.checkpoint


def test_training_in_slices_gives_the_loss_curve_of_training_at_once(engine):
    # long enough for several slices on any machine
    plan = {"steps": 40, "batch": 8, "sequence": 64}
    whole = engine.do(lesson("whole", **plan), token8="whole000")
    assert isinstance(whole.end, Done), whole.end
    job = lesson("sliced", **plan, slice_s=0.1)
    losses, end, slices = in_slices(engine, job, lambda run: None)
    assert slices > 1
    assert losses == whole.losses
    assert sorted(losses) == list(range(1, 41))
    report, wanted = end.result.train, whole.end.result.train
    assert report == wanted
    assert report.steps == 40
    assert report.held_out_loss < report.held_out_loss_before
    assert report.unigram_loss


def test_a_slice_that_is_dropped_keeps_what_it_did(engine):
    whole = engine.do(lesson("undropped"), token8="undrop00")

    dropped = []

    def drop_twice(run):
        if len(dropped) < 2:
            engine.until(lambda: engine.runs[run].losses or engine.runs[run].end)
            engine.drop(run)
            dropped.append(run)

    losses, end, slices = in_slices(engine, lesson("dropped"), drop_twice)
    assert isinstance(end, Done)
    assert losses == whole.losses
    assert slices == 3


def test_a_slice_that_makes_room_ends_with_its_step_and_its_training_stays_the_same(engine):
    assert engine.hellos[-1].pauses
    whole = engine.do(lesson("unpaused"), token8="unpause0")
    assert isinstance(whole.end, Done)
    paused = []

    def make_room(run):
        if len(paused) < 4:
            engine.until(lambda: engine.runs[run].losses or engine.runs[run].end)
            engine.pause(run, free=len(paused) % 2 == 1)
            paused.append(run)

    losses, end, slices = in_slices(engine, lesson("paused"), make_room)
    assert isinstance(end, Done)
    assert slices == 5
    assert losses == whole.losses
    assert end.result.train == whole.end.result.train


def test_a_run_that_makes_room_goes_on_later_as_if_undisturbed(engine):
    job = ask(max_tokens=60, temperature=1.0)
    whole = engine.do(job, seed=4)
    tokens, text, seen, rounds = (), "", None, 0
    while not isinstance(seen and seen.end, Done):
        run = engine.start(job, seed=4, tokens=tokens, text=text, attempt=rounds + 1)
        if rounds < 3:
            engine.until(lambda run=run: len(engine.runs[run].tokens) > 2 or engine.runs[run].end)
            engine.pause(run, free=rounds == 1)
        seen = engine.finish(run)
        assert isinstance(seen.end, Dropped | Done), seen.end
        tokens, text, rounds = tokens + seen.tokens, text + seen.text, rounds + 1
    assert rounds > 1
    assert (tokens, text) == (whole.tokens, whole.text)


def test_a_pause_of_what_has_ended_is_passed_over(engine):
    run = engine.start(ask(max_tokens=1))
    engine.finish(run)
    engine.pause(run)
    engine.pause("never-started", free=True)
    assert isinstance(engine.do(ask(max_tokens=1)).end, Done)


def test_a_slice_whose_end_was_never_heard_of_trains_nothing_twice(engine):
    whole = engine.do(lesson("heard"), token8="heard000")
    job = lesson("unheard")
    run = engine.start(job, token8="unheard0")
    engine.until(lambda: len(engine.runs[run].losses) > 2)
    engine.drop(run)
    assert isinstance(engine.finish(run).end, Yield)
    # the pool died with that; the job starts again as far as the cluster knows
    again = engine.do(job, token8="unheard1", attempt=2)
    assert again.end.result.train == whole.end.result.train
    assert again.losses.items() <= whole.losses.items()


def test_two_trainings_take_turns_and_keep_apart(engine):
    rates = (1e-3, 2e-3)
    alone = [engine.do(lesson(f"lone-{rate}", learning_rate=rate)).losses for rate in rates]
    jobs = [lesson(f"twin-{rate}", slice_s=0.1, learning_rate=rate) for rate in rates]
    losses, places, runs = [{}, {}], [None, None], {}
    for turn in range(100):
        for place, job in enumerate(jobs):
            if place not in runs and len(losses[place]) < job.steps:
                token8, checkpoint = f"turn{turn:02d}-{place}", places[place]
                runs[place] = engine.start(job, token8=token8, checkpoint=checkpoint)
        if not runs:
            break
        engine.until(lambda: any(engine.runs[run].end for run in runs.values()))
        for place, run in list(runs.items()):
            if engine.runs[run].end:
                losses[place] |= engine.runs[run].losses
                places[place] = getattr(engine.runs[run].end, "checkpoint", None)
                del runs[place]
    assert losses == alone


def test_a_new_run_uses_the_newest_revision(engine):
    first = engine.do(lesson("newer", steps=3), token8="newer000").end.result
    assert engine.do(Generate(model="newer", prompt="The cat")).end.result.revision == (
        first.revision
    )
    second = engine.do(lesson("newer", steps=5), token8="newer001").end.result
    assert second.revision != first.revision
    answer = engine.do(Generate(model="newer", prompt="The cat"))
    assert answer.end.result.revision == second.revision


def test_a_resumed_run_keeps_the_revision_it_began_with(engine):
    first = engine.do(lesson("older", steps=3), token8="older000").end.result.revision
    second = engine.do(lesson("older", steps=5), token8="older001").end.result.revision
    job = Generate(model="older", prompt="The cat", max_tokens=12)
    whole = engine.do(job, revision=first)
    assert whole.end.result.revision == first
    newest = engine.do(job)
    assert newest.end.result.revision == second
    begun = next(step for step in whole.steps if step.tokens)
    rest = engine.do(job, attempt=2, text=begun.text, tokens=begun.tokens, revision=begun.revision)
    assert begun.tokens + rest.tokens == whole.tokens


def test_a_model_can_be_loaded_before_anybody_asks(engine):
    engine.do(lesson("early-bird", steps=1), token8="early000")
    assert "early-bird" not in engine.loaded
    engine.process.send(Preload(model="nobody"))
    engine.process.send(Preload(model="early-bird"))
    engine.until(lambda: "early-bird" in engine.loaded)


def test_a_model_in_memory_is_measured_before_anybody_asks_and_nobody_sees_that(engine, kind):
    if kind.program == "echo":
        pytest.skip("an echo's speed is described")
    engine.do(lesson("sprinter", steps=1), token8="sprint00")
    engine.process.send(Preload(model="sprinter"))

    def measured():
        found = engine.rates.models.get("sprinter")
        return found is not None and None not in (found.prefill_error, found.step_error) and found

    found = engine.until(measured)
    assert found.prefill_tokens_per_s > 0
    assert found.step_s + found.step_s_per_sequence > 0
    assert engine.kv_tokens[0] == engine.kv_tokens[1]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"text": None, "path": "../../secret"}, "path"),
        ({"text": None, "path": "/etc/passwd"}, "path"),
        ({"text": None, "path": "missing.txt"}, "path"),
        ({"text": None, "path": "broken.txt"}, "path"),
        ({"text": "too short"}, "text"),
        ({"sequence": CONTEXT + 1}, "sequence"),
    ],
    ids=["outside", "absolute", "missing", "no-utf8", "short", "sequence"],
)
def test_training_that_cannot_be_is_refused_with_its_field(engine, kind, environment, more, field):
    if kind.program == "echo":
        pytest.skip("an echo learns nothing from its text")
    (Path(environment["NOIDLE_TEXT_DIR"]) / "broken.txt").write_bytes(b"abc\xff" * 100)
    job = lesson("unborn", **more)
    end = engine.do(job).end
    assert isinstance(end, Failed)
    assert (end.error.code, end.error.field) == ("invalid", field)
    assert end.error.allowed


def test_training_reads_a_folder_of_texts(engine, kind, environment):
    folder = Path(environment["NOIDLE_TEXT_DIR"]) / "book"
    folder.mkdir()
    (folder / "one.txt").write_text(TEXT[:2000])
    (folder / "two.md").write_text(TEXT[2000:])
    job = Train(model="reader", path="book", shape=SHAPE, steps=2, batch=2, sequence=16)
    assert isinstance(engine.do(job).end, Done)


def test_an_engine_comes_back_from_any_death_and_stops_in_order(kind, environment):
    with driver(kind, environment) as one:
        run = one.start(ask(max_tokens=200))
        one.until(lambda: one.runs[run].tokens)
        one.process.kill("run 1 has not moved for 8 s")
        one.until(lambda: one.exits)
        assert "has not moved" in one.exits[0].reason
        one.until(lambda: len(one.hellos) == 2)
        os.kill(one.process.pid, signal.SIGKILL)
        one.until(lambda: len(one.hellos) == 3)
        assert "memory" in one.exits[1].reason
        assert one.process.generation == 3
        run = one.start(ask(max_tokens=200))
        one.until(lambda: one.runs[run].tokens)
    assert one.exits[-1].expected
    assert one.exits[-1].code == 0


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_only_the_cpu_engine_packs_weights_as_they_load(kind, environment, dtype):
    only_where_it_computes(kind)
    one = driver(kind, {**environment, "NOIDLE_DTYPE": dtype})
    if kind.engine == "cpu":
        with one:
            assert len(one.do(ask()).tokens) == 24
            # coarser, not another model
            score = Score(model="small", text="The cat sat on the mat.")
            assert one.do(score).end.result.perplexity < 320
        return
    one.process.start()
    try:
        one.until(lambda: one.exits)
        assert f"NOIDLE_DTYPE = {dtype}" in one.exits[0].reason
    finally:
        one.process.stop(grace_s=10)
