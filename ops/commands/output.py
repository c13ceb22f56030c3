"""Writes outcomes: lines and tables for people, JSON for programs, errors on stderr."""

import json
import sys
from typing import Any

from rich.console import Console, RenderableType


def line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def error(text: str) -> None:
    sys.stderr.write(f"noidle: {text}\n")


def as_json(value: Any) -> None:
    """One value, indented for a terminal and in one line otherwise."""
    line(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


def draw(*parts: RenderableType) -> None:
    """Tables; as wide as they need where nobody looks at a terminal."""
    console = terminal()
    for part in parts:
        console.print(part)


def terminal() -> Console:
    return Console(width=None if sys.stdout.isatty() else 200, highlight=False)
