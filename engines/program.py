"""The declaration of an engine program: a small TOML with name, command and environment.

Owns its reading and checking; knows nothing of how a program is run."""

import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noidle.errors import ConfigError, shorten

HERE = Path(__file__).resolve().parent
_FIELDS = ("name", "command", "folder", "env")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start, where, and with which variables beside the cluster's own."""

    name: str
    # the program and its arguments, all places filled in
    command: tuple[str, ...]
    # working directory, absolute
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)


def shipped(name: str) -> Path:
    """The declaration of an engine that comes with noidle: `echo` or `tensor`."""
    return HERE / f"{name}.toml"


def load_program(path: Path) -> Program:
    """Reads a declaration. In `command`, {python} stands for this interpreter and {here} for
    the declaration's folder; `folder` is relative to it.

    Raises:
        ConfigError: naming the file, the field, its value and what is allowed.
    """
    data = _read(path)
    here = path.resolve().parent
    unknown = sorted(set(data) - set(_FIELDS))
    if unknown:
        raise _refusal(path, unknown[0], data[unknown[0]], f"the fields {', '.join(_FIELDS)}")
    command = _words(path, data.get("command"))
    folder = here / _text(path, "folder", data.get("folder", "."))
    if not folder.is_dir():
        raise _refusal(path, "folder", str(folder), "a folder that exists")
    places = {"{python}": sys.executable, "{here}": str(here)}
    return Program(
        name=_text(path, "name", data.get("name")),
        command=tuple(_filled(word, places) for word in command),
        folder=folder.resolve(),
        env=_variables(path, data.get("env", {})),
    )


def child_variables(program: Program, own: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a child: this process's without noidle's settings, which may
    carry passwords, then the program's, then the `own` ones that the pool sets."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("NOIDLE_")}
    return {**inherited, **program.env, **own}


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _refusal(path, "file", str(path), "a TOML file that exists") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _refusal(path, "file", str(error), "TOML in UTF-8") from None


def _text(path: Path, name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _refusal(path, name, value, "text that is not empty")
    return value


def _words(path: Path, value: object) -> list[str]:
    if not isinstance(value, list) or not value:
        raise _refusal(path, "command", value, "a list: the program, then its arguments")
    return [_text(path, "command", word) for word in value]


def _variables(path: Path, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise _refusal(path, "env", value, "a table of variables, each value text")
    return dict(value)


def _filled(word: str, places: Mapping[str, str]) -> str:
    for place, value in places.items():
        word = word.replace(place, value)
    return word


def _refusal(path: Path, name: str, value: object, allowed: str) -> ConfigError:
    shown = shorten(value)
    return ConfigError(
        f"{path}: {name} = {shown}: allowed is {allowed}",
        variable=name,
        value=shown,
        allowed=allowed,
    )
