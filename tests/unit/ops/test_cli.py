"""The list of verbs, and how errors end a command."""

import subprocess
import sys

import pytest

from noidle.errors import (
    CheckpointError,
    ClusterUnavailable,
    ConfigError,
    InvalidJob,
    NoidleError,
    UnknownJob,
)
from ops.cli import app, exit_status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("a setting"), 2),
        (InvalidJob("a text"), 2),
        (CheckpointError("a file"), 2),
        (ClusterUnavailable("away"), 4),
        (UnknownJob("none"), 1),
        (NoidleError("the rest"), 1),
    ],
)
def test_the_exit_status_says_whose_turn_it_is(error, status):
    assert exit_status(error) == status


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["jobs", "--limit", "many"], "'--limit'"),
        (["jobs", "--nothing"], "--nothing"),
        (["run", "generate", "a"], "--model"),
        (["run", "dance"], "dance"),
        (["model", "add"], "PATH"),
    ],
)
def test_a_wrong_argument_is_said_in_one_line(capsys, given, words):
    with pytest.raises(SystemExit) as ended:
        app(args=given, prog_name="noidle")
    assert ended.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("noidle: ")
    assert words in line
    assert "--help)" in line


def test_verbs_about_models_start_without_torch():
    """Their help, their refusals and the list need none."""
    source = "import sys, ops.commands.run, ops.commands.model; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
