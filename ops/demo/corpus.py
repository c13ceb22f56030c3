"""What the demo trains on: the user's file or folder, or noidle's own papers and docstrings.
Owns where the text lies and the prompts taken from it."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from noidle.errors import ConfigError
from ops.plan import ROOT

_PACKAGES = ("noidle", "routing", "engines", "tensor_llm", "workers", "ops")
_PROMPT_BYTES = (12, 240)
_SMALLEST_BYTES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Text that a training job can name."""

    # the cluster's text folder, and the file or folder in it
    text_dir: Path
    path: str
    title: str
    # what prompts are taken from
    sample: str

    def prompts(self, count: int, rng: random.Random) -> list[str]:
        """Beginnings of lines, from a few letters to some sentences long."""
        lines = [line for line in self.sample.splitlines() if len(line.strip()) > _PROMPT_BYTES[0]]
        wanted = [rng.choice((12, 24, 48, 96, _PROMPT_BYTES[1])) for _ in range(count)]
        return [self._prompt(lines, size, rng) for size in wanted]

    def _prompt(self, lines: list[str], size: int, rng: random.Random) -> str:
        start = rng.randrange(len(lines))
        return "\n".join(lines[start : start + 8])[:size].strip() or lines[start].strip()


def papers(data: Path) -> Corpus:
    """noidle's papers and docstrings, in the cluster's own text folder. The papers alone are too
    short: a model that knows them by heart has learnt nothing about other text."""
    folder = data / "text" / "papers"
    folder.mkdir(parents=True, exist_ok=True)
    texts = [
        paper.read_text() for paper in sorted([*ROOT.glob("*.md"), *ROOT.glob("engines/*.md")])
    ]
    modules = sorted(file for name in _PACKAGES for file in (ROOT / name).rglob("*.py"))
    texts += ["\n\n".join(_docstrings(module)) for module in modules]
    (folder / "noidle.txt").write_text("\n\n".join(texts))
    return Corpus(
        text_dir=folder.parent,
        path=folder.name,
        title="noidle's own papers and docstrings",
        sample="\n".join(texts),
    )


def _docstrings(module: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def named(text: Path) -> Corpus:
    """The user's file or folder, where it lies.

    Raises:
        ConfigError: there is nothing to read, or too little.
    """
    place = text.expanduser().resolve()
    if not place.exists():
        raise ConfigError(
            f"--text = {str(text)!r}: allowed is a file or folder that exists", variable="--text"
        )
    files = [place] if place.is_file() else sorted(f for f in place.rglob("*") if f.is_file())
    sample = "\n".join(_readable(file) for file in files[:64])
    if len(sample.encode()) < _SMALLEST_BYTES:
        raise ConfigError(
            f"--text = {str(text)!r}: {len(sample.encode())} bytes of text; allowed is "
            f"{_SMALLEST_BYTES} or more, less teaches nothing that could be measured",
            variable="--text",
        )
    return Corpus(text_dir=place.parent, path=place.name, title=str(text), sample=sample)


def _readable(file: Path) -> str:
    with file.open(encoding="utf-8", errors="ignore") as source:
        return source.read(200_000)
