"""A trace and a cluster are fitted to each other, or refused in words."""

import pytest

from noidle.errors import ConfigError
from routing.simulation.study import Question, prepare


def test_arrivals_that_lie_too_far_apart_are_refused_in_words(tmp_path) -> None:
    """The bound's solver broke on them with a traceback."""
    path = tmp_path / "far.jsonl"
    line = '{{"timestamp": {}, "input_length": 6, "output_length": 5}}\n'
    path.write_text(line.format(0) + line.format(1e300))
    far = Question(trace=path, cluster="one-cpu-one-gpu")
    with pytest.raises(ConfigError, match=r"1e\+297 s after the first: allowed is at most 1e\+09"):
        prepare(far)
