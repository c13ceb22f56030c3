import pytest
import torch

from tensor_llm.attention import WholeSequences
from tensor_llm.model import new_decoder
from tests.unit.tensor_llm.builders import make_config, make_model, random_tokens


def test_the_same_seed_gives_the_same_weights():
    first, again, other = (new_decoder(make_config(), seed) for seed in (3, 3, 4))
    assert torch.equal(first.embedding.weight, again.embedding.weight)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


def test_a_tied_head_is_the_embedding_and_an_untied_one_is_not():
    tied, untied = make_model(), make_model(tied_head=False)
    assert tied.output.weight is tied.embedding.weight
    assert untied.output.weight is not untied.embedding.weight


def test_wrong_shapes_stop_at_the_border():
    model = make_model()
    with pytest.raises(ValueError, match="token_BT has shape"):
        model(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="x_BTE has shape"):
        model.run_layers(torch.zeros(1, 1, 5))
    attending = WholeSequences(torch.arange(3)[None], model.config)
    with pytest.raises(ValueError, match="x_BTE has shape"):
        model.run_layers(torch.zeros(1, 2, 32), attending=attending)


def test_bfloat16_stays_near_float32():
    model = make_model()
    token_BT = torch.tensor([random_tokens(16)])
    with torch.no_grad():
        wanted_BTV = model(token_BT)
        logits_BTV = model.bfloat16()(token_BT)
    assert logits_BTV.dtype == torch.float32
    assert float((logits_BTV - wanted_BTV).abs().max()) < 0.1
