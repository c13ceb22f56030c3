"""How much of a prompt is read at once."""

import pytest

from engines.tensor.pace import (
    ACCELERATOR_PART_S,
    FIRST_PART,
    LARGEST_PART,
    PART_S,
    SMALLEST_PART,
    Pace,
)
from engines.tensor.rates import RateBook


def pace(tokens_per_s=None, part_s=PART_S):
    rates = RateBook(lambda: 0.0)
    if tokens_per_s:
        rates.of("m").prefill.add(tokens_per_s, 1.0)
    return Pace(rates, part_s=part_s)


def test_before_the_speed_is_known_a_part_is_small():
    assert pace().part_tokens("m") == FIRST_PART


@pytest.mark.parametrize(
    ("decoding", "models", "part_s"), [(False, 1, 0.25), (True, 1, 0.1), (True, 2, 0.05)]
)
def test_a_part_takes_a_tenth_of_a_second_beside_others_and_a_quarter_alone(
    decoding, models, part_s
):
    one = pace(1000)
    one.decoding, one.models = decoding, models
    assert one.part_tokens("m") == 1000 * part_s


def test_on_an_accelerator_a_part_takes_little_longer_than_a_step_anyway():
    one = pace(100_000, ACCELERATOR_PART_S)
    one.decoding = True
    assert one.part_tokens("m") == 1000
    one._rates.of("m").decode.add(1, 0.016)
    assert one.part_tokens("m") == 2000


def test_no_part_is_tiny_or_huge():
    assert pace(10).part_tokens("m") == SMALLEST_PART
    assert pace(1e6).part_tokens("m") == LARGEST_PART


def test_routers_are_told_what_is_read_beside_others():
    one = pace(1000)
    assert one.part_tokens("m") == 250
    assert one._rates.of("m").chunk_tokens == 100


def test_where_a_decode_step_takes_long_a_part_beside_it_may_take_as_long():
    one = pace(1000)
    one.decoding = True
    one._rates.of("m").decode.add(1, 0.2)
    assert one.part_tokens("m") == 250


def test_a_part_grows_until_it_costs_more_than_the_step_beside_it():
    """A part that is hidden behind the pass over the weights seems to be read slowly, however
    short: it stayed as short as it was."""
    one = pace(100)
    one.decoding = True
    book = one._rates.of("m")
    book.decode.add(1, 0.2)
    for _ in range(600):
        tokens = one.part_tokens("m")
        book.step(1, tokens, max(0.2, tokens / 1000))
    assert 200 <= one.part_tokens("m") <= 260


def test_the_largest_part_is_that_of_a_model_alone_and_asking_for_it_is_no_use_of_it():
    one = pace(1000)
    one.decoding, one.models = True, 2
    assert one.largest_part("m") == 250
    assert one.largest_part("unknown") == FIRST_PART
    assert one._rates.known("unknown") is None
