"""Lua scripts as files. Owns finding them, joining them with the parts they include, and calling
them by digest; knows nothing of what they do."""

import hashlib
import re
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import NoScriptError

from noidle import keys

SHARED = Path(__file__).parent / "scripts"
_INCLUDE = re.compile(r"^-- include (\w+)$", re.MULTILINE)

Argument = str | int | float


class Script:
    """One script of `folder`; its parts lie there or in noidle's own folder."""

    def __init__(self, name: str, folder: Path = SHARED) -> None:
        self.text = _joined(name, folder)
        self.digest = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, client: redis.Redis, *arguments: Argument) -> Any:
        """Runs it on the server, which may have forgotten it (restart, SCRIPT FLUSH)."""
        try:
            return client.evalsha(self.digest, 1, keys.PREFIX, *arguments)
        except NoScriptError:
            return client.eval(self.text, 1, keys.PREFIX, *arguments)


def _joined(name: str, folder: Path) -> str:
    path = folder / f"{name}.lua"
    if not path.exists():
        path = SHARED / f"{name}.lua"
    return _INCLUDE.sub(lambda found: _joined(found[1], folder), path.read_text("utf-8"))
