"""Every example runs as its first lines say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.ops.local import Local

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
TEXT = "It was the best of times, it was the worst of times. " * 40
RUNS = {
    "generate.py": (["echo", "so it goes"], ["64 tokens by echo built-in on cpu@box", "chosen"]),
    "chat.py": (["echo", "to be?", "or not?"], ["> to be?\n", "> or not?\n"]),
    "score.py": (["echo", "to be", "not to be"], ["  to be\n", "  not to be\n"]),
    "train_then_ask.py": (["FILE", "mini", "5"], ["step 5 of 5", "held-out loss"]),
    "plain_celery.py": (["echo"], ["on cpu@box"]),
    "celery_canvas.py": (["echo"], ["group: ", "chain: "]),
}


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(RUNS)


@pytest.mark.parametrize("name", RUNS)
def test_an_example_runs(name: str, echo_cluster: Local, tmp_path: Path):
    arguments, wanted = RUNS[name]
    (tmp_path / "text").write_text(TEXT)
    given = [str(tmp_path / "text") if one == "FILE" else one for one in arguments]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *given],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NOIDLE_URL": echo_cluster.file.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for part in wanted:
        assert part in done.stdout
