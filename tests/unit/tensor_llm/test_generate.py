import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_llm.generate import complete, generate
from tensor_llm.sampling import Sampling
from tests.unit.tensor_llm.builders import make_model, make_tokenizer, random_tokens


@settings(max_examples=10, deadline=None)
@given(prompt=st.integers(1, 30), seed=st.integers(0, 50), temperature=st.sampled_from([0.0, 1.0]))
def test_cached_and_uncached_generation_agree_token_for_token(prompt, seed, temperature):
    model = make_model(seed, heads=6, kv_heads=3, head_size=4)
    sampling = Sampling(temperature=temperature, top_p=0.9, seed=seed)
    tokens = random_tokens(prompt, seed)
    plain = generate(model, tokens, max_tokens=16, sampling=sampling, cached=False)
    assert generate(model, tokens, max_tokens=16, sampling=sampling, chunk=5) == plain


def test_a_later_attempt_draws_what_the_first_one_would_have_drawn():
    model, prompt = make_model(), random_tokens(5)
    sampling = Sampling(temperature=1.0, seed=3)
    whole = generate(model, prompt, max_tokens=20, sampling=sampling)
    rest = generate(model, prompt + whole[:8], max_tokens=12, sampling=sampling)
    assert whole[:8] + rest == whole


def test_it_ends_before_the_end_token():
    model, prompt = make_model(), random_tokens(5)
    sampling = Sampling(temperature=1.0, seed=3)
    whole = generate(model, prompt, max_tokens=20, sampling=sampling)
    ended = generate(model, prompt, max_tokens=20, sampling=sampling, eos_token=whole[6])
    assert ended == whole[: whole.index(whole[6])]


@pytest.mark.parametrize(("prompt", "count"), [(0, 1), (60, 5)])
def test_what_does_not_fit_the_context_is_refused(prompt, count):
    with pytest.raises(ValueError, match="allowed is a prompt of at least 1, together 64"):
        generate(make_model(), random_tokens(prompt), max_tokens=count)


def test_a_text_is_completed_up_to_its_stop_string():
    tokenizer = make_tokenizer()
    model = make_model(vocabulary=tokenizer.vocabulary)
    sampling = Sampling(temperature=1.0, seed=2)
    # longer than the context: its end is read
    text = complete(model, tokenizer, "the router " * 40, max_tokens=20, sampling=sampling)
    stop = text[8:10]
    cut = complete(
        model, tokenizer, "the router " * 40, max_tokens=20, sampling=sampling, stop=[stop]
    )
    assert cut == text[: text.index(stop)]
