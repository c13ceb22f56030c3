"""The sides, each in a process of its own, so that their threads never meet.

`python -m tests.bench.cpu.sides NAME FOLDER THREADS` answers one JSON line for each it is sent;
between questions it sleeps."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tensor_llm.openmp import spin_shortly
from tests.bench.cpu.shape import Format
from tests.bench.cpu.taking import Taken
from tests.bench.processes import ROOT

SIDES = {"noidle": "NoidleSide", "llama.cpp": "LlamaSide", "transformers": "TransformersSide"}
_MODULES = {"llama.cpp": "llama"}


class SideProcess:
    """One side; a question at a time."""

    def __init__(self, name: str, folder: Path, threads: int, log: Path) -> None:
        self.name = name
        command = [sys.executable, "-m", "tests.bench.cpu.sides", name, str(folder), str(threads)]
        self._log = log.open("w")
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        told = self.ask()
        self.version: str = told["version"]
        self.formats = tuple(map(Format, told["formats"]))

    def load(self, format_: Format) -> int:
        found: int = self.ask(do="load", format=format_)["bytes"]
        return found

    def take(self, format_: Format, prompts: Sequence[Sequence[int]], steps: int) -> Taken:
        return Taken(**self.ask(do="take", format=format_, prompts=prompts, steps=steps))

    def bandwidth(self) -> float:
        found: float = self.ask(do="bandwidth")["bytes_per_s"]
        return found

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if question:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.flush()
            said = Path(self._log.name).read_text()[-3000:]
            raise RuntimeError(f"{self.name} ended:\n{said}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()
        self._log.close()


@contextmanager
def running(names: Sequence[str], folder: Path, threads: int) -> Iterator[list[SideProcess]]:
    with ExitStack() as ends:
        sides = []
        for name in names:
            side = SideProcess(name, folder, threads, folder / f"{name}.log")
            ends.callback(side.close)
            sides.append(side)
        yield sides


def _answer(side: Any, question: dict[str, Any]) -> dict[str, Any]:
    do = question.pop("do")
    if do == "bandwidth":
        return {"bytes_per_s": side.bandwidth()}
    format_ = Format(question.pop("format"))
    if do == "load":
        return {"bytes": side.load(format_)}
    taken: Taken = side.take(format_, **question)
    return taken.model_dump()


def _serve(name: str, folder: Path, threads: int) -> None:
    # what libraries print must not come between the answers
    answers, sys.stdout = sys.stdout, sys.stderr
    if name == "noidle":
        # as the engine and `noidle run` do
        spin_shortly(os.environ)
    module = importlib.import_module(f"tests.bench.cpu.{_MODULES.get(name, name)}_side")
    side = getattr(module, SIDES[name])(folder, threads)
    told: dict[str, Any] = {"version": module.VERSION, "formats": side.formats}
    print(json.dumps(told), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(side, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
