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
        run(
            "--cluster",
            "four-mixed-hosts",
            "--rows",
            "60",
            "--release-all",
            "--policy",
            "all",
            "--json",
        )
    )
    assert [one["policy"] for one in found] == list(POLICIES)
    assert len({one["lower_bound_s"] for one in found}) == 1
    assert {one["jobs"] for one in found} == {found[0]["jobs"]}


def test_training_behind_a_trace_is_told_with_what_was_left_for_it() -> None:
    found, plain = json.loads(
        run("--rows", "60", "--training", "--policy", "noidle", "--policy", "random", "--json")
    )
    assert 0 < found["training"]["share"] <= 1
    assert found["training"]["tokens"] <= found["training"]["leftover_tokens"]
    assert found["preemptions"] == sum(found["preempted"].values())
    assert plain["training"] is None
    assert "that any schedule could have trained" in run("--rows", "20", "--training")


def test_a_cluster_that_trains_nothing_is_refused_for_training(tmp_path) -> None:
    described = TRACE.parents[2] / "routing/simulation/clusters/one-cpu-one-gpu.toml"
    lines = described.read_text().splitlines()
    path = tmp_path / "plain.toml"
    path.write_text("\n".join(line for line in lines if not line.startswith("train_")))
    with pytest.raises(ConfigError, match="has train_tokens_per_s"):
        simulate(trace=TRACE, cluster=str(path), training=True)


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
