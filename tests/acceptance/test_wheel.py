"""The wheel: what is in it, and that a producer needs no more than it."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integration.ops.local import Local

ROOT = Path(__file__).parents[2]
PRODUCER = """
import json, sys
from noidle import Client, InvalidJob
with Client() as client:
    job = client.generate("to be or not", model="echo", max_tokens=6, temperature=0.5)
    pieces = list(job.stream(timeout_s=60))
    result = job.result(timeout_s=60)
    score = client.score("to be", model="echo").result(timeout_s=60)
    try:
        client.generate("", model="echo")
    except InvalidJob as error:
        refused = error.field
names = {name.partition(".")[0] for name in sys.modules}
print(json.dumps({
    "streamed": "".join(pieces), "text": result.text, "perplexity": score.perplexity,
    "refused": refused, "loaded": sorted(names),
}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # built from a copy: a build leaves files beside its source
    source = folder / "source"
    skipped = shutil.ignore_patterns(".*", "__pycache__", "dist", "build")
    shutil.copytree(ROOT, source, ignore=skipped)
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def producer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment with the wheel and what it asks for."""
    folder = tmp_path_factory.mktemp("producer")
    python("-m", "venv", "--without-pip", folder)
    programs = folder / "bin"
    where = ("--python", programs / "python", "--quiet", "--disable-pip-version-check")
    python("-m", "pip", *where, "install", "--no-compile", "-c", ROOT / "constraints.txt", wheel)
    return programs


def test_the_wheel_carries_the_package_alone(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"noidle", "noidle-0.1.0.dist-info"}
    own = {name for name in names if name.startswith("noidle/")}
    assert own == {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "noidle").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"noidle/py.typed", "noidle/scripts/accept.lua"} <= own


def test_the_wheel_asks_for_celery_and_pydantic_only(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read("noidle-0.1.0.dist-info/METADATA").decode()
    asked = [
        line.partition(": ")[2]
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    names = sorted(re.split("[<>=]", one)[0] for one in asked)
    assert names == ["celery[redis]", "pydantic"]


def test_a_producer_sends_and_reads_with_the_wheel_alone(producer: Path, echo_cluster: Local):
    done = run(producer / "python", "-c", PRODUCER, url=echo_cluster.file.url)
    told = json.loads(done)
    assert told["streamed"] == told["text"] != ""
    assert told["perplexity"] > 1
    assert told["refused"] == "prompt"
    assert not {"torch", "typer", "rich", "psutil", "ops", "workers"} & set(told["loaded"])


def test_the_wheels_command_submits_and_explains(producer: Path, echo_cluster: Local):
    command, url = producer / "noidle", echo_cluster.file.url
    flags = ("--model", "echo", "--max-tokens", "6")
    sent = run(command, "submit", "generate", "to be or not", *flags, "--json", url=url)
    result = json.loads(sent)
    assert result["state"] == "done"
    assert "is done on cpu@box" in run(command, "status", result["id"], url=url)
    assert "to cpu@box" in run(command, "explain", result["id"], url=url)
    assert "noidle 0.1.0" in run(command, "--version", url=url)


def test_the_wheels_command_says_how_to_get_the_cluster(producer: Path):
    done = subprocess.run([producer / "noidle", "up"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "run `make install` in a checkout of noidle" in done.stderr
    assert done.stderr.count("\n") == 1


def python(*arguments: str | Path) -> str:
    return run(Path(sys.executable), *arguments)


def run(program: Path, *arguments: str | Path, url: str = "") -> str:
    """What it printed; without this checkout on its path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept = {name: value for name, value in kept.items() if not name.startswith("NOIDLE_")}
    done = subprocess.run(
        [program, *arguments],
        cwd=program.parent,
        env={**kept, "NOIDLE_URL": url} if url else kept,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
