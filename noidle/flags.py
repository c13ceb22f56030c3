"""The flags of `noidle submit`, one for each field of the job models, and the job they make.
Owns the way from arguments and files to JSON data; what is right is for noidle.jobs to say."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noidle.errors import InvalidJob
from noidle.fault import allowed, resolved
from noidle.jobs import KINDS, Generate

# the field that holds the text, which is an argument of its own
TEXT_FIELD = {"generate": "prompt", "score": "text", "train": "text"}


def add_job_flags(parser: argparse.ArgumentParser, kind: str) -> None:
    """A flag for each field of `kind`, those of nested objects among them."""
    field = TEXT_FIELD[kind]
    if kind != "train":
        parser.add_argument(field, nargs="?", help="the text; - or nothing reads standard input")
    parser.add_argument("--file", metavar="FILE", help=f"read the {field} from a file of UTF-8")
    schema = KINDS[kind].model_json_schema()
    _add_fields(parser, schema, schema, prefix="", without=("kind", "messages", field))


def add_chat_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of a generate job, with the turns of a conversation in the prompt's place."""
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before all else")
    parser.add_argument(
        "--message",
        action="append",
        metavar="TEXT",
        help="a turn: the user's, then the model's, and so on; - or none reads standard input",
    )
    parser.add_argument("--file", metavar="FILE", help="read the last turn from a file of UTF-8")
    schema = Generate.model_json_schema()
    _add_fields(parser, schema, schema, prefix="", without=("kind", "prompt", "messages"))


def job_from_flags(flags: argparse.Namespace, kind: str) -> dict[str, Any]:
    """The job as JSON data: only what was given, the rest is left to its default.

    Raises:
        InvalidJob: the file or standard input is no UTF-8, or cannot be read; or the text is
            given twice.
    """
    job = _fields(flags, kind)
    text = _text(flags, TEXT_FIELD[kind], wanted=kind != "train")
    return job if text is None else {**job, TEXT_FIELD[kind]: text}


def chat_from_flags(flags: argparse.Namespace) -> dict[str, Any]:
    """A generate job with messages; else like `job_from_flags`.

    Raises:
        InvalidJob: also where the last turn would be the model's own.
    """
    turns = [read_text("-", "message") if one == "-" else one for one in flags.message or ()]
    if flags.file is not None:
        turns.append(read_text(flags.file, "message"))
    if not turns and piped_in():
        turns.append(read_text("-", "message"))
    if len(turns) % 2 == 0:
        odd = "an odd number: user and model take turns, and the last one asks"
        raise InvalidJob.of("message", f"{len(turns)} turns", odd)
    messages = [
        {"role": ("user", "assistant")[place % 2], "content": turn}
        for place, turn in enumerate(turns)
    ]
    if flags.system is not None:
        messages.insert(0, {"role": "system", "content": flags.system})
    return {**_fields(flags, "generate"), "messages": messages}


def _fields(flags: argparse.Namespace, kind: str) -> dict[str, Any]:
    job: dict[str, Any] = {"kind": kind}
    for name, value in vars(flags).items():
        # argparse leaves what is no field of the job under names of its own
        if not name.startswith("job.") or value is None:
            continue
        target, (*parents, last) = job, name.removeprefix("job.").split(".")
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = value
    return job


def piped_in() -> bool:
    """Whether no terminal can be asked; Python has no standard input where it is closed."""
    return sys.stdin is None or not sys.stdin.isatty()


def read_text(path: str, field: str) -> str:
    """A local file as text; - is standard input."""
    if path == "-" and sys.stdin is None:
        raise InvalidJob(f"{field}: cannot read '-': standard input is closed", field=field)
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise InvalidJob(f"{field}: cannot read {path!r}: {error}", field=field) from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        where = f"text in UTF-8; byte {error.start} of {path!r} is none"
        raise InvalidJob.of(field, data[error.start : error.end], where) from None


def _text(flags: argparse.Namespace, field: str, *, wanted: bool) -> str | None:
    given: str | None = getattr(flags, field, None)
    if given is not None and flags.file is not None:
        raise InvalidJob.of(field, given, "one text: an argument or --file, not both")
    if given is not None and given != "-":
        return given
    if flags.file is not None:
        return read_text(flags.file, field)
    if given == "-" or (wanted and piped_in()):
        return read_text("-", field)
    return None


def _add_fields(
    parser: argparse.ArgumentParser,
    part: dict[str, Any],
    schema: dict[str, Any],
    *,
    prefix: str,
    without: tuple[str, ...] = (),
) -> None:
    for name, field in part["properties"].items():
        inner = resolved(field, schema)
        if name in without:
            continue
        if inner.get("type") == "object":
            _add_fields(parser, inner, schema, prefix=f"{prefix}{name}.")
            continue
        default = field.get("default")
        known = "" if default in (None, []) else f" (default {default})"
        words = allowed(field, schema) + known
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=f"job.{prefix}{name}",
            # a percent sign would be read as a place in argparse's template
            help=words.replace("%", "%%"),
            **_reading(inner),
        )


def _reading(field: dict[str, Any]) -> dict[str, Any]:
    match field.get("type"):
        case "boolean":
            return {"action": argparse.BooleanOptionalAction}
        case "array":
            # given once for each entry
            return {"action": "append", "metavar": "TEXT"}
        case "integer":
            return {"type": _or_text(int), "metavar": "N"}
        case "number":
            return {"type": _or_text(float), "metavar": "X"}
    return {"metavar": "NAME" if "pattern" in field or "enum" in field else "TEXT"}


def _or_text(number: Callable[[str], float]) -> Callable[[str], float | str]:
    """Keeps what is no number as it is: the job's validation refuses it in better words."""

    def read(text: str) -> float | str:
        try:
            return number(text)
        except ValueError:
            return text

    return read
