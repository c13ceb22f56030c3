"""Which verb goes where, with the cluster's packages and without."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from noidle import cli


def test_help_lists_both_groups_of_verbs(capsys):
    assert cli.main([]) == 0
    assert cli.main(["--help"]) == 0
    shown = capsys.readouterr().out
    for verb in (*cli.PRODUCER_VERBS, *cli.CLUSTER_VERBS):
        assert f"\n  {verb} " in shown


def test_every_verb_of_the_cluster_is_listed():
    from ops.cli import VERBS

    assert set(VERBS) == {*cli.CLUSTER_VERBS, *cli.MODEL_VERBS}


def test_a_verb_of_the_cluster_goes_to_ops(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["doctor", "--help"])
    assert caught.value.code == 0
    assert "Usage: noidle doctor" in capsys.readouterr().out


def test_status_without_a_job_is_that_of_the_cluster(capsys):
    with pytest.raises(SystemExit):
        cli.main(["status", "--help"])
    assert "--watch" in capsys.readouterr().out


def test_without_the_cluster_its_verbs_say_how_to_get_it(tmp_path: Path):
    """An `ops` of somebody else beside the package is left alone."""
    shutil.copytree(Path(cli.__file__).parent, tmp_path / "noidle")
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").write_text("raise SystemExit('somebody else')")
    (tmp_path / "ops" / "cli.py").write_text("")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "noidle.cli", "up"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "noidle: up needs the cluster's part of noidle, which this installation does not hold: run"
        " `make install` in a checkout of noidle, or use its image\n"
    )
