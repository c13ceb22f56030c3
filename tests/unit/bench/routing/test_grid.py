"""Which replays the router's bench makes of the traces it finds."""

from pathlib import Path

import pytest

from noidle.errors import ConfigError
from tests.bench.routing.grid import CLUSTERS, LOADS, Place, in_order, places, question
from tests.bench.routing.traces import absent, find_traces


def test_known_traces_are_found_by_their_files_and_others_by_theirs(tmp_path: Path) -> None:
    for name in ("AzureLLMInferenceTrace_conv.csv", "mine.jsonl", "LICENSE.txt"):
        (tmp_path / name).touch()
    found = find_traces(tmp_path)
    assert set(found) == {"conversation", "mine"}
    assert absent(found) == ["AzureLLMInferenceTrace_code.csv", "mooncake_synthetic_trace.jsonl"]


@pytest.mark.parametrize("folder", [None, "empty", "nowhere"])
def test_without_traces_it_says_which_and_from_where(folder: str | None, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError) as told:
        find_traces(tmp_path / folder if folder else None)
    for word in ("--traces", "NOIDLE_TRACES", "AzureLLMInferenceTrace_code.csv", "kvcache-ai"):
        assert word in str(told.value)


def test_each_trace_meets_each_cluster_at_each_load_the_longest_trace_first(
    tmp_path: Path,
) -> None:
    short, long = tmp_path / "short.csv", tmp_path / "long.csv"
    short.write_text("a")
    long.write_text("a longer one")
    grid = places({"short": short, "long": long}, released=True, arrivals=True)
    assert len({place for place, _ in grid}) == 2 * len(CLUSTERS) * (1 + len(LOADS))
    assert [path for _, path in grid] == [long] * 10 + [short] * 10
    shown = list(in_order([place for place, _ in grid], ["short", "long"]))
    assert shown[0] == Place(trace="short", cluster=CLUSTERS[0], load=None)
    assert len(shown) == len(grid)


def test_only_what_is_asked_for_is_played(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.touch()
    released = places({"trace": trace}, released=True, arrivals=False)
    assert {place.load for place, _ in released} == {None}
    arrivals = places({"trace": trace}, released=False, arrivals=True)
    assert {place.load for place, _ in arrivals} == set(LOADS)


def test_jobs_come_at_once_or_by_load() -> None:
    at_once = question(Place(trace="t", cluster="c", load=None), Path("t.csv"), 7)
    assert (at_once.release_all, at_once.load, at_once.rows) == (True, None, 7)
    by_load = question(Place(trace="t", cluster="c", load=0.8), Path("t.csv"), None)
    assert (by_load.release_all, by_load.load) == (False, 0.8)
