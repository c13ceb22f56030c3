"""Trace formats are recognised, and what is none is refused in words."""

from pathlib import Path

import pytest

from noidle.errors import ConfigError
from routing.simulation.trace import Row, read_trace


def write(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


def test_azures_wall_times_become_seconds_since_the_first_request(tmp_path) -> None:
    path = write(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n",
    )
    first, second = read_trace(path)
    assert first == Row(arrive_s=0.0, prompt=4808, output=10)
    assert second.arrive_s == pytest.approx(0.052, abs=1e-6)


def test_azures_times_of_2024_name_their_zone(tmp_path) -> None:
    path = write(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,1452,3\n"
        "2024-05-10 00:00:01+00:00,7,8\n",
    )
    first, second = read_trace(path)
    assert first == Row(arrive_s=0.0, prompt=1452, output=3)
    assert second.arrive_s == pytest.approx(0.99007, abs=1e-6)


def test_mooncakes_lines_bring_their_prefix_blocks(tmp_path) -> None:
    path = write(
        tmp_path,
        '{"timestamp": 500, "input_length": 600, "output_length": 6, "hash_ids": [7, 8]}\n'
        '{"timestamp": 3500, "input_length": 5, "output_length": 4, "hash_ids": [9]}\n',
    )
    assert read_trace(path) == [
        Row(arrive_s=0.0, prompt=600, output=6, blocks=(7, 8)),
        Row(arrive_s=3.0, prompt=5, output=4, blocks=(9,)),
    ]


def test_rows_come_by_arrival_and_only_as_many_as_asked_for(tmp_path) -> None:
    lines = [
        f'{{"timestamp": {at}, "input_length": {at}, "output_length": 1}}\n'
        for at in (3000, 1000, 2000)
    ]
    rows = read_trace(write(tmp_path, "".join(lines)), limit=2)
    assert [row.prompt for row in rows] == [1000, 2000]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,tokens\n1,2\n", "of no known format"),
        ("", "of no known format"),
        ('{"timestamp": 1, "input_length": 2}\n', "line 1 is malformed"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,1,2\n", "line 2 is malformed"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "holds no request"),
        ('{"timestamp": 1, "input_length": -2, "output_length": 1}\n', "must not be negative"),
        ('{"timestamp": NaN, "input_length": 2, "output_length": 1}\n', "line 1"),
    ],
)
def test_what_is_no_trace_is_refused_in_words(tmp_path, text, words) -> None:
    with pytest.raises(ConfigError, match=words):
        read_trace(write(tmp_path, text))


def test_a_missing_file_is_refused_in_words(tmp_path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_trace(tmp_path / "absent")
