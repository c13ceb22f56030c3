import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_llm.sampling import (
    Sampling,
    SamplingBatch,
    SamplingRows,
    likeliest,
    logprobs,
    sample,
    uniform,
)

V = 40
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    top_k=st.none() | st.integers(1, V + 5),
    top_p=st.none() | st.floats(0.01, 1.0),
    seed=st.integers(0, 2**63 - 1),
)


def logits(rows: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(rows, V, generator=torch.Generator().manual_seed(seed))


def draw(logits_BV: torch.Tensor, rows: list[Sampling], positions: list[int]) -> list[int]:
    return sample(logits_BV, SamplingBatch.of(rows), positions).tolist()


def draw_many(logits_V: torch.Tensor, row: Sampling, count: int = 4000) -> torch.Tensor:
    """Shares of each token over many positions."""
    batch = SamplingBatch.of([row] * count)
    token_B = sample(logits_V.expand(count, -1), batch, torch.arange(count))
    return torch.bincount(token_B, minlength=len(logits_V)) / count


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(samplings, st.integers(0, 10**6)), min_size=1, max_size=6),
    data=st.data(),
)
def test_what_a_row_draws_does_not_depend_on_the_rows_beside_it(rows, data):
    logits_BV = logits(len(rows), seed=data.draw(st.integers(0, 99)))
    alone = [draw(logits_BV[i : i + 1], [row], [at])[0] for i, (row, at) in enumerate(rows)]
    order = data.draw(st.permutations(range(len(rows))))
    together = draw(
        logits_BV[list(order)], [rows[i][0] for i in order], [rows[i][1] for i in order]
    )
    assert together == [alone[i] for i in order]


def test_a_draw_depends_on_seed_and_position():
    row_V = torch.zeros(1, V)
    at = [
        draw(row_V, [Sampling(temperature=1.0, seed=s)], [p])[0] for s in (1, 2) for p in range(50)
    ]
    again = [
        draw(row_V, [Sampling(temperature=1.0, seed=s)], [p])[0] for s in (1, 2) for p in range(50)
    ]
    assert at == again
    assert at[:50] != at[50:]
    assert len(set(at[:50])) > 15


def test_greedy_takes_the_likeliest_token_whatever_else_is_set():
    logits_BV = logits(3)
    rows = [Sampling(), Sampling(top_k=5, seed=9), Sampling(top_p=0.1)]
    assert draw(logits_BV, rows, [0, 1, 2]) == logits_BV.argmax(-1).tolist()
    # beside a row that samples, too
    mixed = draw(logits_BV, [*rows[:2], Sampling(temperature=9.0)], [0, 1, 2])
    assert mixed[:2] == logits_BV.argmax(-1).tolist()[:2]


@settings(max_examples=60, deadline=None)
@given(k=st.integers(1, V), seed=st.integers(0, 10**6))
def test_top_k_draws_from_the_k_likeliest(k, seed):
    logits_V = logits(1, seed)[0]
    allowed = set(logits_V.topk(k).indices.tolist())
    row = Sampling(temperature=5.0, top_k=k, seed=seed)
    drawn = draw(logits_V.expand(50, -1), [row] * 50, list(range(50)))
    assert set(drawn) <= allowed


@settings(max_examples=60, deadline=None)
@given(p=st.floats(0.01, 0.99), seed=st.integers(0, 10**6))
def test_top_p_draws_from_the_fewest_tokens_that_reach_it(p, seed):
    logits_V = logits(1, seed)[0]
    share_V, order_V = logits_V.softmax(-1).sort(descending=True)
    before_V = share_V.cumsum(-1) - share_V
    # a hair of tolerance where the sum comes near p
    allowed = set(order_V[before_V < p + 1e-5].tolist())
    row = Sampling(temperature=1.0, top_p=p, seed=seed)
    drawn = draw(logits_V.expand(50, -1), [row] * 50, list(range(50)))
    assert set(drawn) <= allowed


def test_the_token_that_crosses_top_p_still_counts():
    logits_V = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    shares_V = draw_many(logits_V, Sampling(temperature=1.0, top_p=0.5))
    wanted_V = torch.tensor([0, 4 / 7, 0, 3 / 7])
    torch.testing.assert_close(shares_V, wanted_V, rtol=0, atol=0.03)


def test_top_k_of_one_and_a_tiny_top_p_are_greedy():
    logits_BV = logits(20)
    for row in (Sampling(temperature=5.0, top_k=1), Sampling(temperature=5.0, top_p=1e-6)):
        assert draw(logits_BV, [row] * 20, list(range(20))) == logits_BV.argmax(-1).tolist()


def test_of_equal_logits_top_k_keeps_no_more_than_k():
    shares_V = draw_many(torch.zeros(V), Sampling(temperature=1.0, top_k=3), count=500)
    assert int((shares_V > 0).sum()) == 3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_come_as_often_as_their_share(temperature):
    logits_V = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
    found_V = draw_many(logits_V, Sampling(temperature=temperature, seed=11))
    torch.testing.assert_close(found_V, (logits_V / temperature).softmax(-1), rtol=0, atol=0.03)


def test_top_p_counts_after_top_k():
    logits_V = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    # of the two likeliest the first holds 4/7: enough for 0.5
    shares_V = draw_many(logits_V, Sampling(temperature=1.0, top_k=2, top_p=0.5), count=200)
    assert shares_V.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 10.0])
@pytest.mark.parametrize("scale", [1e-3, 1e4])
def test_extreme_logits_and_temperatures_still_give_a_token(temperature, scale):
    row = Sampling(temperature=temperature, top_p=0.9)
    tokens = draw(logits(4) * scale, [row] * 4, [0, 1, 2, 3])
    assert all(0 <= token < V for token in tokens)


def test_impossible_tokens_are_never_drawn():
    logits_V = torch.full((V,), -torch.inf)
    logits_V[7] = logits_V[30] = 0.0
    shares_V = draw_many(logits_V, Sampling(temperature=1.0))
    assert shares_V.nonzero().flatten().tolist() == [7, 30]


def test_random_numbers_are_even_and_below_one():
    count = 100_000
    u_B = uniform(torch.zeros(count, dtype=torch.int64), torch.arange(count))
    assert float(u_B.min()) >= 0
    assert float(u_B.max()) < 1
    assert abs(float(u_B.mean()) - 0.5) < 0.01
    assert float(u_B[:-1].sub(0.5).mul(u_B[1:].sub(0.5)).mean().abs()) < 0.002


@pytest.mark.parametrize("seed", [0, 1, 2**62, 2**63 - 1])
def test_neighbouring_seeds_share_no_numbers(seed):
    at_N = torch.arange(100)
    seed_N = torch.full((100,), seed)
    other_N = torch.full((100,), seed ^ 1)
    shared = set(uniform(seed_N, at_N).tolist()) & set(uniform(other_N, at_N).tolist())
    assert len(shared) < 3


def test_wrong_shapes_stop_at_the_border():
    batch = SamplingBatch.of([Sampling(temperature=1.0)] * 2)
    with pytest.raises(ValueError, match="logits_BV has shape"):
        sample(logits(3), batch, [0, 1])
    with pytest.raises(ValueError, match="position_B has shape"):
        sample(logits(2), batch, [0])


def test_log_probabilities_are_those_before_temperature_and_cuts():
    logits_BV = logits(5)
    token_B = torch.tensor([0, 7, 39, 7, 12])
    wanted_B = logits_BV.log_softmax(-1)[torch.arange(5), token_B]
    torch.testing.assert_close(logprobs(logits_BV, token_B), wanted_B)


def test_choices_are_written_in_place_and_only_the_first_rows_are_meant():
    rows = SamplingRows(4)
    first = rows.write([Sampling(temperature=0.5, top_k=3, top_p=0.7, seed=9)] * 3)
    second = rows.write([Sampling(), Sampling(temperature=2.0, seed=2**63 - 1)])
    assert second.seed_B.data_ptr() == first.seed_B.data_ptr()
    assert second.temperature_B.tolist() == [1.0, 2.0]
    assert second.top_p_B.tolist() == [1.0, 1.0]
    assert second.seed_B.tolist() == [0, 2**63 - 1]
    assert second.greedy_B.tolist() == [True, False]
    assert not second.any_cuts
    assert first.any_cuts
    # a batch that takes the likeliest tokens reads none of them
    assert rows.write([Sampling()]).all_greedy


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_equal_logits_the_first_is_likeliest(dtype):
    logits_BV = torch.tensor([[0.0, 2.0, 1.0, 2.0], [-torch.inf, -1.0, -1.0, -2.0]], dtype=dtype)
    found_B = likeliest(logits_BV)
    assert found_B.dtype is torch.int64
    assert found_B.tolist() == [1, 1]
    assert likeliest(logits_BV[:, ::2]).tolist() == [1, 1], "rows that do not lie together"
