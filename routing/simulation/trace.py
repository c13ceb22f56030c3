"""Traces of requests as files. Owns the formats and how one is recognised; knows nothing of
clusters.

Two formats: the CSV of the Azure LLM inference traces (TIMESTAMP, ContextTokens,
GeneratedTokens) and the JSON lines of the Mooncake traces (timestamp in ms, input_length,
output_length, hash_ids: one id a block of 512 prompt tokens; equal ids are equal prefixes)."""

import csv
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from noidle.errors import ConfigError

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOONCAKE_FIELDS = ("timestamp", "input_length", "output_length")
BLOCK_TOKENS = 512
"""Tokens a prefix block of a Mooncake trace stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One request, as the trace has it."""

    # seconds since the first request of the trace
    arrive_s: float
    prompt: int
    output: int
    # ids of the prompt's blocks, from its beginning; empty: the trace tells none
    blocks: tuple[int, ...] = ()


def read_trace(path: Path, limit: int | None = None) -> list[Row]:
    """The first `limit` rows by arrival, in that order.

    Raises:
        ConfigError: the file cannot be read, is of no known format, or a line is malformed.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            rows = sorted(_parse(path, lines), key=lambda row: row.arrive_s)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--trace {path} cannot be read: {error}") from error
    if not rows:
        raise ConfigError(f"--trace {path} holds no request")
    first_s = rows[0].arrive_s
    return [
        Row(
            arrive_s=row.arrive_s - first_s, prompt=row.prompt, output=row.output, blocks=row.blocks
        )
        for row in rows[:limit]
    ]


def _parse(path: Path, lines: Iterable[str]) -> Iterator[Row]:
    numbered = enumerate(lines, 1)
    number, first = next(numbered, (0, ""))
    if first.strip().lstrip("\ufeff").split(",") == list(AZURE_COLUMNS):
        parse = _azure
    elif first.lstrip().startswith("{"):
        parse = _mooncake
        yield _checked(path, number, first, parse)
    else:
        raise ConfigError(
            f"--trace {path} is of no known format: allowed are CSV with the columns "
            f"{','.join(AZURE_COLUMNS)}, and JSON lines with {', '.join(MOONCAKE_FIELDS)}"
        )
    for number, line in numbered:
        if line.strip():
            yield _checked(path, number, line, parse)


def _checked(path: Path, number: int, line: str, parse: Any) -> Row:
    try:
        row: Row = parse(line)
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"--trace {path}, line {number} is malformed: {error!r}") from error
    if row.prompt < 0 or row.output < 0 or not math.isfinite(row.arrive_s):
        raise ConfigError(
            f"--trace {path}, line {number}: lengths must not be negative, and times finite"
        )
    return row


def _azure(line: str) -> Row:
    stamp, prompt, output = next(csv.reader([line]))
    # the traces of 2024 name the zone; all are UTC
    stamp = stamp.strip().removesuffix("Z").removesuffix("+00:00")
    # seven decimals, of which datetime reads six
    whole, _, part = stamp.partition(".")
    seconds = datetime.fromisoformat(f"{whole}+00:00").timestamp()
    return Row(
        arrive_s=seconds + (float(f"0.{part[:7]}") if part else 0.0),
        prompt=int(prompt),
        output=int(output),
    )


def _mooncake(line: str) -> Row:
    data = json.loads(line)
    return Row(
        arrive_s=float(data["timestamp"]) / 1000,
        prompt=int(data["input_length"]),
        output=int(data["output_length"]),
        blocks=tuple(int(block) for block in data.get("hash_ids", ())),
    )
