import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_llm.attention import WholeSequences, attend_causal, attend_past
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
