import pytest
import torch

from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.step import StepBatch
from tensor_llm.serving.torch_executor import TorchExecutor
from tests.unit.tensor_llm.builders import make_model, random_tokens
from tests.unit.tensor_llm.serving.batches import make_batch

SIZE = 4
ratios = pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size"), [(4, 4, 8), (4, 1, 8), (7, 1, 6), (6, 2, 10), (9, 3, 4)]
)


@ratios
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("window", [None, 6])
def test_steps_over_blocks_give_the_logits_of_the_whole_text(
    heads, kv_heads, head_size, tied, window
):
    """Two texts in scattered blocks: chunks, one that goes on, decoding beside a chunk."""
    model = make_model(
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        tied_head=tied,
        window=window,
        full_layers=(1,),
    )
    texts = [random_tokens(20, 1), random_tokens(20, 2)]
    with torch.no_grad():
        wanted = [model(torch.tensor([text]))[0] for text in texts]
    cache = PagedCache(model.config, blocks=12, block_tokens=SIZE)
    executor = TorchExecutor(model, cache)
    table = [[7, 2, 9, 0, 4], [1, 11, 3, 8, 5]]
    first, second = texts

    def step(decodes, chunks) -> torch.Tensor:
        return executor.run(make_batch(decodes, chunks, table)).land()

    found = step({}, {0: (first[:7], 0), 1: (second[:3], 0)})
    torch.testing.assert_close(found, torch.cat([wanted[0][:7], wanted[1][:3]]))
    found = step({0: (first[7], 7)}, {1: (second[3:14], 3)})
    torch.testing.assert_close(found, torch.cat([wanted[0][7:8], wanted[1][3:14]]))
    for at in range(14, 20):
        found = step({0: (first[at - 6], at - 6), 1: (second[at], at)}, {})
        torch.testing.assert_close(found, torch.stack([wanted[0][at - 6], wanted[1][at]]))


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_layers_cut_in_two_with_blocks_each_equal_the_whole(cut):
    model = make_model(layers=3)
    whole, first, second = (
        TorchExecutor(model, PagedCache(model.config, blocks=4, block_tokens=SIZE, **part))
        for part in ({}, {"stop": cut}, {"start": cut})
    )
    for start in (0, 5):
        chunks = {0: (random_tokens(5, start), start)}
        batch = make_batch({}, chunks, [[2, 0, 3]])
        with torch.inference_mode():
            x_BTE = first.layers(first.embed(batch), batch)
            x_BTE = second.layers(x_BTE, batch)
            assert torch.equal(second.head(x_BTE, batch), whole.run(batch).land())


def test_what_others_left_in_blocks_is_not_seen():
    model = make_model()
    cache = PagedCache(model.config, blocks=4, block_tokens=SIZE)
    for part in (*cache.keys, *cache.values):
        part.fill_(1e4)
    text = random_tokens(9)
    executor = TorchExecutor(model, cache)
    executor.run(make_batch({}, {0: (text[:5], 0)}, [[3, 1, 0]]))
    found = executor.run(make_batch({0: (text[5], 5)}, {}, [[3, 1, 0]])).land()
    with torch.no_grad():
        torch.testing.assert_close(found[0], model(torch.tensor([text[:6]]))[0, -1])


def test_a_step_that_wants_no_logits_gives_none():
    model = make_model()
    executor = TorchExecutor(model, PagedCache(model.config, blocks=4, block_tokens=SIZE))
    batch = make_batch({}, {0: (random_tokens(5), 0)}, [[3, 1, 0]])
    nothing = StepBatch(
        **{
            name: getattr(batch, name)
            for name in StepBatch.__dataclass_fields__
            if name != "wanted_W"
        },
        wanted_W=torch.zeros(0, dtype=torch.int64),
    )
    assert executor.run(nothing).land().shape == (0, 61)


def test_a_cache_tells_its_bytes():
    model = make_model(layers=3)
    cache = PagedCache(model.config, blocks=5, dtype=torch.bfloat16, start=1)
    assert len(cache.keys) == len(cache.values) == 2
    assert cache.keys[0].shape == (5, 16, 2, 8)
    assert cache.bytes == 2 * 2 * 5 * 16 * 2 * 8 * 2
    assert cache.bytes == model.config.kv_bytes_per_token(2) * 80 * 2 // 3
