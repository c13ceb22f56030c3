"""An open model is asked, one text at a time."""

import pytest

from noidle.errors import ConfigError, InvalidJob
from ops.run.opening import Choice, WeightType, open_model
from ops.run.session import Session, Wish, tokens_left
from ops.run.whereabouts import Whereabouts, find_model
from tensor_llm.adding import add_model
from tensor_llm.generate import generate
from tensor_llm.quantization import WeightFormat
from tensor_llm.sampling import Sampling
from tensor_llm.score import score
from tensor_llm.store import ModelStore
from tests.acceptance.small_models import CONTEXT, write_qwen

ONE_THREAD = Choice(threads=1)


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    return Whereabouts(folder=write_qwen(folder), name="tiny")


@pytest.fixture(scope="module")
def opened(where):
    return open_model(where, ONE_THREAD)


@pytest.fixture
def session(opened):
    found = Session(opened, CONTEXT)
    yield found
    found.close()


def ask(session, tokens, wish, **options):
    shown = []
    answer = session.answer(tokens, wish, tokenize_ms=1.0, show=shown.append, **options)
    assert "".join(shown) == answer.text
    return answer


def test_an_answer_is_that_of_the_model(opened, session):
    prompt = opened.model.tokenizer.encode("The user's plan")
    wanted = generate(opened.model.model, prompt, max_tokens=12)
    answer = ask(session, prompt, Wish(max_tokens=12))
    assert list(answer.tokens) == wanted
    assert answer.finish_reason == "length"
    assert (answer.figures.prompt_tokens, answer.figures.tokens) == (len(prompt), 12)


def test_a_seed_repeats_an_answer(session):
    def sampled(seed):
        sampling = Sampling(temperature=1.0, top_p=0.9, seed=seed)
        return ask(session, [1, 2, 3], Wish(max_tokens=16, sampling=sampling)).tokens

    assert sampled(7) == sampled(7)
    assert sampled(7) != sampled(8)


def test_a_stop_string_ends_it_and_is_not_shown(opened, session):
    prompt = opened.model.tokenizer.encode("The user's plan")
    whole = ask(session, prompt, Wish(max_tokens=24))
    stop = whole.text[5:8]
    answer = ask(session, prompt, Wish(max_tokens=24, stop=(stop,)))
    assert answer.finish_reason == "stop"
    assert answer.text == whole.text[: whole.text.index(stop)]


def test_what_could_have_begun_a_stop_string_is_shown_at_the_end(opened, session):
    prompt = opened.model.tokenizer.encode("The user's plan")
    whole = ask(session, prompt, Wish(max_tokens=12))
    answer = ask(session, prompt, Wish(max_tokens=12, stop=(whole.text[-1] + " and never more",)))
    assert (answer.text, answer.finish_reason) == (whole.text, "length")


def test_a_word_from_outside_stops_it_between_steps(session):
    asked = iter([False, False, False, True])
    answer = ask(session, [1, 2, 3], Wish(max_tokens=24), stopped=lambda: next(asked))
    assert answer.finish_reason == "interrupted"
    assert len(answer.tokens) < 24


def test_the_next_turn_reads_only_what_is_new(session):
    first = ask(session, list(range(1, 90)), Wish(max_tokens=4))
    assert first.figures.prefix_tokens == 0
    second = ask(session, [*range(1, 90), *first.tokens, 5, 6], Wish(max_tokens=4))
    # whole blocks are found again
    assert 60 < second.figures.prefix_tokens < 90


def test_without_a_bound_it_goes_on_to_the_end_of_the_context(session):
    answer = ask(session, list(range(1, CONTEXT - 4)), Wish())
    assert len(answer.tokens) == 5
    assert answer.finish_reason == "length"


def test_a_text_is_scored_as_the_model_scores_it(opened, session):
    tokens = opened.model.tokenizer.encode("The user's 2025 plan isn't what it's said to be.")
    scored = session.score(tokens, tokenize_ms=1.0)
    assert scored.tokens == tuple(tokens)
    assert scored.logprobs == pytest.approx(score(opened.model.model, tokens), rel=1e-4)


def test_what_does_not_fit_is_refused(session):
    assert tokens_left(10, None, 16) == 6
    with pytest.raises(InvalidJob, match="max_tokens = 7: allowed is at most 6"):
        tokens_left(10, 7, 16)
    with pytest.raises(InvalidJob, match="prompt = '16 tokens'"):
        tokens_left(16, None, 16)
    with pytest.raises(InvalidJob, match="text = '1 tokens'"):
        session.score([1], tokenize_ms=0.0)


def test_weights_are_packed_as_they_load(where):
    opened = open_model(where, Choice(dtype=WeightType.INT4, threads=1))
    session = Session(opened, 64)
    assert len(ask(session, [1, 2, 3], Wish(max_tokens=4)).tokens) == 4
    plain = open_model(where, ONE_THREAD)
    bits = sum(one.numel() for one in opened.model.model.parameters())
    assert bits < sum(one.numel() for one in plain.model.model.parameters()) / 4


@pytest.mark.parametrize("device", ["nothing", "cuda:99", ""])
def test_a_device_that_is_not_here_is_refused(where, device):
    with pytest.raises(ConfigError, match="--device = "):
        open_model(where, Choice(device=device))


def test_a_model_that_is_packed_already_is_not_packed_otherwise(where, tmp_path):
    store = ModelStore(tmp_path)
    add_model(store, where.folder, "packed", format=WeightFormat.INT4)
    packed = find_model("packed", tmp_path)
    assert open_model(packed, Choice(dtype=WeightType.INT4, threads=1)).model.format == "int4"
    with pytest.raises(ConfigError, match="--dtype = 'int8': allowed is int4, as it is packed"):
        open_model(packed, Choice(dtype=WeightType.INT8, threads=1))
