import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_llm.attention import (
    WholeSequences,
    attend_causal,
    attend_chunk,
    attend_decode,
    attend_past,
)
from tests.unit.tensor_llm.builders import make_config

sizes = st.fixed_dictionaries(
    {
        "B": st.integers(1, 3),
        "T": st.integers(1, 5),
        "K": st.integers(1, 3),
        "G": st.integers(1, 5),
        "D": st.sampled_from([2, 6, 8]),
    }
)


def plain(q_BTHD, k_BSKD, v_BSKD, seen_BTS):
    """Attention written out, with the keys of a group repeated for each query head."""
    group = q_BTHD.shape[2] // k_BSKD.shape[2]
    k_BSHD = k_BSKD.repeat_interleave(group, dim=2)
    v_BSHD = v_BSKD.repeat_interleave(group, dim=2)
    score_BHTS = torch.einsum("bthd,bshd->bhts", q_BTHD, k_BSHD) / q_BTHD.shape[-1] ** 0.5
    share_BHTS = score_BHTS.masked_fill(~seen_BTS[:, None], -torch.inf).softmax(-1)
    return torch.einsum("bhts,bshd->bthd", share_BHTS, v_BSHD)


@settings(max_examples=40, deadline=None)
@given(sizes=sizes, seed=st.integers(0, 99))
def test_causal_attention_equals_the_definition_at_any_group_size(sizes, seed):
    B, T, K, G, D = (sizes[letter] for letter in "BTKGD")
    generator = torch.Generator().manual_seed(seed)
    q_BTHD = torch.randn(B, T, K * G, D, generator=generator)
    k_BTKD, v_BTKD = torch.randn(2, B, T, K, D, generator=generator)
    seen_BTS = torch.ones(T, T, dtype=torch.bool).tril().expand(B, T, T)
    wanted = plain(q_BTHD, k_BTKD, v_BTKD, seen_BTS)
    torch.testing.assert_close(attend_causal(q_BTHD, k_BTKD, v_BTKD), wanted)


@settings(max_examples=40, deadline=None)
@given(
    sizes=sizes, past=st.lists(st.integers(0, 6), min_size=3, max_size=3), seed=st.integers(0, 99)
)
def test_attention_over_the_past_equals_the_definition(sizes, past, seed):
    B, T, K, G, D = (sizes[letter] for letter in "BTKGD")
    generator = torch.Generator().manual_seed(seed)
    past_B = torch.tensor(past[:B])
    S = int(past_B.max()) + T
    q_BTHD = torch.randn(B, T, K * G, D, generator=generator)
    k_BSKD, v_BSKD = torch.randn(2, B, S, K, D, generator=generator)
    seen_BTS = torch.arange(S) <= (past_B[:, None] + torch.arange(T))[:, :, None]
    wanted = plain(q_BTHD, k_BSKD, v_BSKD, seen_BTS)
    torch.testing.assert_close(attend_past(q_BTHD, k_BSKD, v_BSKD, seen_BTS), wanted)


@pytest.mark.parametrize("window", [1, 2, 4, 5, 6, None])
def test_a_whole_sequence_sees_as_far_back_as_the_layers_window(window):
    config = make_config(window=window, full_layers=(1,))
    generator = torch.Generator().manual_seed(1)
    q_BTHD = torch.randn(2, 5, 4, 8, generator=generator)
    k_BTKD, v_BTKD = torch.randn(2, 2, 5, 2, 8, generator=generator)
    attending = WholeSequences(torch.arange(5)[None], config)
    for layer, reach in ((0, window or 5), (1, 5)):
        at_T = torch.arange(5)
        seen_TT = (at_T <= at_T[:, None]) & (at_T > at_T[:, None] - reach)
        wanted = plain(q_BTHD, k_BTKD, v_BTKD, seen_TT.expand(2, 5, 5))
        torch.testing.assert_close(attending.attend(layer, q_BTHD, k_BTKD, v_BTKD), wanted)


def in_blocks(x_SKD, size, table_X, blocks):
    """The tokens of one sequence where its table says, noise elsewhere."""
    x_PCKD = torch.full((blocks, size, *x_SKD.shape[1:]), 7.0)
    for place, one_KD in enumerate(x_SKD):
        x_PCKD[table_X[place // size], place % size] = one_KD
    return x_PCKD


windows = st.none() | st.integers(1, 30)


@settings(max_examples=60, deadline=None)
@given(
    sizes=sizes,
    size=st.integers(1, 5),
    lengths=st.lists(st.integers(1, 24), min_size=3, max_size=3),
    window=windows,
    seed=st.integers(0, 99),
)
def test_decoding_over_blocks_equals_the_definition(sizes, size, lengths, window, seed):
    B, K, G, D = (sizes[letter] for letter in "BKGD")
    generator = torch.Generator().manual_seed(seed)
    width = 24 // size + 1
    blocks = B * width + 1
    table_BX = torch.randperm(blocks, generator=generator)[: B * width].view(B, width)
    q_B1HD = torch.randn(B, 1, K * G, D, generator=generator)
    keys, values = torch.full((2, blocks, size, K, D), 7.0)
    wanted = []
    for row, length in enumerate(lengths[:B]):
        k_SKD, v_SKD = torch.randn(2, length, K, D, generator=generator)
        for of_all, of_row in ((keys, k_SKD), (values, v_SKD)):
            mine = table_BX[row]
            of_all[mine] = in_blocks(of_row, size, mine, blocks)[mine]
        seen_S = torch.arange(length) >= length - (window or length)
        wanted.append(plain(q_B1HD[row, None], k_SKD[None], v_SKD[None], seen_S[None, None])[0])
    found = attend_decode(q_B1HD, keys, values, table_BX, torch.tensor(lengths[:B]), window)
    torch.testing.assert_close(found, torch.stack(wanted))


@settings(max_examples=60, deadline=None)
@given(
    sizes=sizes,
    size=st.integers(1, 5),
    start=st.integers(0, 20),
    count=st.integers(1, 20),
    window=windows,
    seed=st.integers(0, 99),
)
def test_a_chunk_with_a_past_in_blocks_equals_the_definition(
    sizes, size, start, count, window, seed
):
    K, G, D = (sizes[letter] for letter in "KGD")
    generator = torch.Generator().manual_seed(seed)
    S = start + count
    table_X = torch.randperm(50, generator=generator)
    q_1THD = torch.randn(1, count, K * G, D, generator=generator)
    k_SKD, v_SKD = torch.randn(2, S, K, D, generator=generator)
    at_T, at_S = torch.arange(start, S)[:, None], torch.arange(S)
    seen_TS = (at_S <= at_T) & (at_S > at_T - (window or S))
    wanted = plain(q_1THD, k_SKD[None], v_SKD[None], seen_TS[None])
    keys, values = (in_blocks(part, size, table_X, 50) for part in (k_SKD, v_SKD))
    found = attend_chunk(q_1THD, keys, values, table_X, start, window)
    torch.testing.assert_close(found, wanted)
