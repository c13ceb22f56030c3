import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_llm.cache import KVCache
from tensor_llm.generate import generate
from tensor_llm.model import new_decoder
from tests.unit.tensor_llm.builders import make_config, make_model, random_tokens

ratios = pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size"), [(4, 4, 8), (4, 1, 8), (7, 1, 6), (6, 2, 10), (9, 3, 4)]
)


@ratios
@pytest.mark.parametrize("tied", [True, False])
def test_cached_and_uncached_logits_agree(heads, kv_heads, head_size, tied):
    model = make_model(heads=heads, kv_heads=kv_heads, head_size=head_size, tied_head=tied)
    token_T = torch.tensor(random_tokens(20))
    with torch.no_grad():
        wanted_TV = model(token_T[None])[0]
    cache = KVCache(model.config, rows=1)
    row = cache.claim()
    torch.testing.assert_close(model.prefill(token_T[:7], cache, row), wanted_TV[6])
    torch.testing.assert_close(model.prefill(token_T[7:12], cache, row), wanted_TV[11])
    for place in range(12, 20):
        logits_BV = model.decode(token_T[place : place + 1], cache, [row])
        torch.testing.assert_close(logits_BV[0], wanted_TV[place])


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_rows_that_join_and_leave_at_any_time_get_the_tokens_they_get_alone(data):
    """Greedy, float32: at each step some jobs join, every job in the batch makes one token in
    one forward pass, and those that are done leave their row to others."""
    model = make_model(heads=6, kv_heads=2)
    lengths = data.draw(
        st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12)), min_size=2, max_size=6)
    )
    jobs = [(random_tokens(prompt, seed), count) for seed, (prompt, count) in enumerate(lengths)]
    wanted = [generate(model, prompt, max_tokens=count, cached=False) for prompt, count in jobs]
    cache = KVCache(model.config, rows=3)
    got: dict[int, list[int]] = {}
    rows: dict[int, int] = {}
    waiting = list(range(len(jobs)))
    while waiting or rows:
        joining = data.draw(st.integers(0 if rows else 1, 3))
        for job in waiting[: min(joining, cache.free_rows)]:
            rows[job] = cache.claim()
            logits_V = model.prefill(torch.tensor(jobs[job][0]), cache, rows[job])
            got[job] = [int(logits_V.argmax())]
            waiting.remove(job)
        for job in [job for job in rows if len(got[job]) == jobs[job][1]]:
            cache.release(rows.pop(job))
        if rows:
            # any order: the batch need not follow the rows
            batch = data.draw(st.permutations(sorted(rows)))
            token_B = torch.tensor([got[job][-1] for job in batch])
            logits_BV = model.decode(token_B, cache, [rows[job] for job in batch])
            for job, token in zip(batch, logits_BV.argmax(-1).tolist(), strict=True):
                got[job].append(token)
            for job in [job for job in rows if len(got[job]) == jobs[job][1]]:
                cache.release(rows.pop(job))
    assert [got[job] for job in range(len(jobs))] == wanted


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_layers_cut_in_two_with_a_cache_each_equal_the_whole(cut):
    model = make_model(layers=3)
    whole = KVCache(model.config, rows=2)
    first = KVCache(model.config, rows=2, stop=cut)
    second = KVCache(model.config, rows=2, start=cut)
    rows = [0, 1]
    for cache in (whole, first, second):
        assert [cache.claim(), cache.claim()] == rows
    for step in range(3):
        token_BT = torch.tensor(random_tokens(4, seed=step)).view(2, 2)
        with torch.no_grad():
            wanted_BTV = model.head(
                model.run_layers(model.embed(token_BT), attending=whole.extend(rows, 2))
            )
            x_BTE = model.run_layers(
                model.embed(token_BT), stop=cut, attending=first.extend(rows, 2)
            )
            x_BTE = model.run_layers(x_BTE, start=cut, attending=second.extend(rows, 2))
            assert torch.equal(model.head(x_BTE), wanted_BTV)


def test_what_a_released_row_held_is_not_seen_by_the_next_owner():
    model = make_model()
    cache = KVCache(model.config, rows=2)
    other, row = cache.claim(), cache.claim()
    model.prefill(torch.tensor(random_tokens(30, seed=5)), cache, row)
    # a longer neighbour makes the batch read beyond the new owner's tokens
    model.prefill(torch.tensor(random_tokens(30, seed=6)), cache, other)
    cache.release(row)
    assert cache.claim() == row
    prompt = random_tokens(4, seed=7)
    model.prefill(torch.tensor(prompt), cache, row)
    logits_BV = model.decode(torch.tensor([1, 2]), cache, [other, row])
    with torch.no_grad():
        wanted_V = model(torch.tensor([[*prompt, 2]]))[0, -1]
    torch.testing.assert_close(logits_BV[1], wanted_V)


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
    cache = KVCache(model.config, rows=1)
    row = cache.claim()
    with pytest.raises(ValueError, match="token_BT has shape"):
        model(torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="token_T has shape"):
        model.prefill(torch.tensor([[1]]), cache, row)
    with pytest.raises(ValueError, match="token_B has shape"):
        model.decode(torch.tensor([1, 2]), cache, [row])
    with pytest.raises(ValueError, match="x_BTE has shape"):
        model.run_layers(torch.zeros(1, 1, 5))
    with pytest.raises(ValueError, match="x_BTE has shape"):
        model.run_layers(torch.zeros(1, 2, 32), attending=cache.extend([row], 1))


def test_bfloat16_stays_near_float32():
    model = make_model()
    token_BT = torch.tensor([random_tokens(16)])
    with torch.no_grad():
        wanted_BTV = model(token_BT)
        logits_BTV = model.bfloat16()(token_BT)
    assert logits_BTV.dtype == torch.float32
    assert float((logits_BTV - wanted_BTV).abs().max()) < 0.1
