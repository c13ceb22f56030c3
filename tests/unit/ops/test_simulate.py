"""noidle simulate, from a trace that ships to figures."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from noidle.errors import ConfigError
from ops.cli import app
from ops.commands.simulate import simulate
from routing.simulation.schedulers import POLICIES

TRACE = Path(__file__).resolve().parents[3] / "examples" / "traces" / "office.jsonl"


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["simulate", "--trace", str(TRACE), *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_one_policy_is_told_as_one_object() -> None:
    found = json.loads(run("--load", "0.8", "--json"))
    assert found["policy"] == "noidle"
    assert found["makespan_s"] >= found["lower_bound_s"] > 0
    assert found["classes"]["interactive"]["ttft_s"]["p99"] > 0
    assert set(found["pools"]) == {"cuda@workstation", "cpu@workstation"}
    assert 0 < found["reused_share"] < 1
    assert found["prediction_error"]["p50"] >= 0
    assert len(found["fitting"]) == 4


def test_all_policies_are_told_in_a_row_and_meet_the_same_bound() -> None:
    found = json.loads(
        run("--cluster", "four-mixed-hosts", "--release-all", "--policy", "all", "--json")
    )
    assert [one["policy"] for one in found] == list(POLICIES)
    assert len({one["lower_bound_s"] for one in found}) == 1
    assert {one["jobs"] for one in found} == {found[0]["jobs"]}


def test_people_get_tables() -> None:
    shown = run("--rows", "20")
    assert "20 jobs, lower bound" in shown
    assert "arrivals: as in the trace" in shown
    assert "interactive TTFT p50" in shown
    assert "cpu@workstation" in shown


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"load": 0.0}, "--load 0.0: allowed"),
        ({"load": float("nan")}, "--load nan: allowed"),
        ({"load": 0.5, "release_all": True}, "exclude each other"),
        ({"policy": ["best"]}, "--policy best: allowed are noidle, static"),
    ],
)
def test_a_wrong_option_is_refused_in_words(fields, words) -> None:
    with pytest.raises(ConfigError, match=words):
        simulate(trace=TRACE, **fields)
