import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_llm.cache import KVCache
from tests.unit.tensor_llm.builders import make_config


def make_cache(**sizes: int) -> KVCache:
    return KVCache(make_config(context=16), **({"rows": 3} | sizes))


def test_rows_are_claimed_from_below_and_come_back_empty():
    cache = make_cache()
    assert [cache.claim() for _ in range(3)] == [0, 1, 2]
    cache.extend([1], 4)
    cache.release(1)
    assert cache.free_rows == 1
    assert cache.claim() == 1
    assert cache.length(1) == 0


def test_a_full_cache_says_so():
    cache = make_cache(rows=1)
    cache.claim()
    with pytest.raises(ValueError, match="rows = 1: all are taken"):
        cache.claim()


def test_a_row_that_is_not_claimed_is_refused():
    cache = make_cache()
    for use in (cache.release, lambda row: cache.extend([row], 1), lambda r: cache.truncate(r, 0)):
        with pytest.raises(ValueError, match="row = 0: allowed is a claimed row below 3"):
            use(0)


@pytest.mark.parametrize(("rows", "tokens"), [([], 1), ([0, 0], 1), ([0], 0), ([0], 17)])
def test_a_span_that_makes_no_sense_is_refused_and_changes_nothing(rows, tokens):
    cache = make_cache()
    cache.claim()
    with pytest.raises(ValueError, match="allowed"):
        cache.extend(rows, tokens)
    assert cache.length(0) == 0


def test_a_row_too_many_refuses_the_whole_step():
    cache = make_cache(capacity=4)
    full, empty = cache.claim(), cache.claim()
    cache.extend([full], 4)
    with pytest.raises(ValueError, match="row 0 holds 4 tokens and cannot take 1 more"):
        cache.extend([empty, full], 1)
    assert cache.length(empty) == 0


def test_truncating_forgets_the_end():
    cache = make_cache()
    row = cache.claim()
    cache.extend([row], 5)
    cache.truncate(row, 2)
    assert cache.extend([row], 1).position_BT.tolist() == [[2]]
    with pytest.raises(ValueError, match="length = 9: allowed is 0 to 3"):
        cache.truncate(row, 9)


def test_memory_is_what_the_config_says():
    cache = make_cache(rows=3)
    assert cache.bytes == 3 * 16 * make_config().kv_bytes_per_token(4)
    half = KVCache(make_config(context=16), rows=3, start=1, stop=2, dtype=torch.bfloat16)
    assert half.bytes == cache.bytes // 4


def test_keys_of_a_wrong_shape_are_refused():
    cache = make_cache()
    span = cache.extend([cache.claim()], 2)
    wrong = torch.zeros(1, 3, 2, 8)
    with pytest.raises(ValueError, match="k_BTKD has shape"):
        span.store(0, wrong, wrong)


@settings(max_examples=50, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=1, unique=True), st.integers(1, 3)),
        max_size=6,
    )
)
def test_every_row_reads_back_all_it_wrote_and_nothing_of_others(steps):
    cache = KVCache(make_config(context=32), rows=4)
    for _ in range(4):
        cache.claim()
    written = {row: torch.zeros(0, 2, 8) for row in range(4)}
    for number, (rows, tokens) in enumerate(steps):
        span = cache.extend(rows, tokens)
        generator = torch.Generator().manual_seed(number)
        k_BTKD = torch.randn(len(rows), tokens, 2, 8, generator=generator)
        k_BSKD, v_BSKD = span.store(1, k_BTKD, -k_BTKD)
        for place, row in enumerate(rows):
            written[row] = torch.cat((written[row], k_BTKD[place]))
            assert torch.equal(k_BSKD[place, : cache.length(row)], written[row])
            assert torch.equal(v_BSKD[place, : cache.length(row)], -written[row])
