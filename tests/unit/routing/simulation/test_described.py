"""Descriptions of clusters: those that ship, and what is wrong with others."""

import pytest

from noidle.errors import ConfigError
from routing.simulation.described import read_cluster, shipped

POOL = """
[[pools]]
pool = "cpu@a"
reason = "measured"
slots = 2
kv_tokens = 8192
prefill_tokens_per_s = 100
step_s = 0.1
step_s_per_sequence = 0
"""


@pytest.mark.parametrize("name", ["one-cpu-one-gpu", "four-mixed-hosts"])
def test_the_shipped_descriptions_are_whole(name) -> None:
    described = read_cluster(name)
    assert {pool.engine.value for pool in described.pools} == {"cpu", "cuda"}
    assert name in shipped()


def test_a_users_file_is_read(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f"context = 4096\n{POOL}")
    assert read_cluster(str(path)).pools[0].slots == 2


def test_hosts_that_are_alike_are_described_once(tmp_path) -> None:
    path = tmp_path / "large.toml"
    other = POOL.replace("cpu@a", "cuda@b")
    path.write_text(f"context = 4096\n{POOL}count = 250\n{other}")
    described = read_cluster(str(path))
    names = [pool.pool for pool in described.pools]
    assert (names[0], names[249], names[250]) == ("cpu@a-001", "cpu@a-250", "cuda@b")
    assert [count for _, count in described.kinds] == [250, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("context = 4096", "pools is missing"),
        (f"context = 4096\n{POOL}count = 1000000000000", "pools.0.count = 1000000000000"),
        (f"context = 4096\n{POOL}train_tokens_per_s = 1e300", "pools.0.train_tokens_per_s"),
        (f"context = 4096\n{POOL}train_part_s = 1e-9", "pools.0.train_part_s = 1e-09"),
        (f"context = 4096\n{POOL}speed = 3\n", "pools.0.speed"),
        (f"context = 4096\n{POOL.replace('slots = 2', 'slots = 0')}", "pools.0.slots = 0"),
        (f"context = 4096\n{POOL}{POOL}", "described twice"),
        (f"context = 9000\n{POOL}", "context = 9000: allowed is at most 8192"),
        ("context =", "is no TOML"),
    ],
)
def test_a_wrong_description_is_refused_by_field(tmp_path, text, words) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        read_cluster(str(path))


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="four-mixed-hosts, one-cpu-one-gpu"):
        read_cluster("three-hosts")
