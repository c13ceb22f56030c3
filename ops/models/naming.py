"""What a model is called in the store when nobody says so."""

import re
from pathlib import Path

from noidle.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ALLOWED = "1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"
# Hugging Face's cache: models--OWNER--NAME/snapshots/REVISION
_CACHE = re.compile(r"models--.+?--(.+)")


def model_name(given: str | None, folder: Path) -> str:
    """
    Raises:
        ConfigError: what is given, or the folder's own name, cannot name a model.
    """
    if given is not None:
        if not NAME.fullmatch(given):
            raise ConfigError.of("--name", given, ALLOWED)
        return given
    name = _own_name(folder.resolve())
    if not NAME.fullmatch(name):
        raise ConfigError.of("--name", name, f"{ALLOWED}; choose one with --name")
    return name


def _own_name(folder: Path) -> str:
    if folder.parent.name == "snapshots":
        match = _CACHE.fullmatch(folder.parent.parent.name)
        if match:
            return match[1]
    return folder.name
