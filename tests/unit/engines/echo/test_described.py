"""How long the steps of an echo engine take."""

import pytest

from engines.echo.described import Described

RATES = Described({"ECHO_STEP_S": "0.1", "ECHO_STEP_S_PER_SEQUENCE": "0.01"})


@pytest.mark.parametrize(
    ("part_s", "sequences", "takes_s"),
    [(0.3, 0, 0.3), (0.0, 5, 0.15), (0.05, 5, 0.15), (0.3, 5, 0.35), (0.0, 0, 0.0)],
)
def test_a_step_reads_a_part_and_makes_tokens_in_one_pass(part_s, sequences, takes_s) -> None:
    assert RATES.step_s_of(part_s, sequences) == pytest.approx(takes_s)
