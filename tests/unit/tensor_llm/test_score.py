import math

import pytest
import torch

from tensor_llm.score import perplexity, score
from tests.unit.tensor_llm.builders import make_model, random_tokens


@pytest.mark.parametrize("chunk", [1, 7, 19, 20, 500])
def test_each_token_is_scored_given_those_before_it(chunk):
    model, tokens = make_model(), random_tokens(20)
    with torch.no_grad():
        share_TV = model(torch.tensor([tokens]))[0].log_softmax(-1)
    wanted = [float(share_TV[place, token]) for place, token in enumerate(tokens[1:])]
    assert score(model, tokens, chunk=chunk) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("count", [0, 1, 65])
def test_too_few_or_too_many_tokens_are_refused(count):
    with pytest.raises(ValueError, match=f"{count} tokens: allowed are 2 to 64"):
        score(make_model(), random_tokens(count))


def test_perplexity_is_the_inverse_of_the_mean_probability():
    assert perplexity([math.log(0.5), math.log(0.125)]) == pytest.approx(4)
    assert math.isfinite(perplexity([-1e6]))
