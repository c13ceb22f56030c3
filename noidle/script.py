"""Lua scripts as files. Owns finding them, joining them with the parts they include, and calling
them by digest; knows nothing of what they do."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import NoScriptError, OutOfMemoryError

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

    def many(
        self, client: redis.Redis, calls: Sequence[Sequence[Argument]]
    ) -> list[list[str] | OutOfMemoryError]:
        """Runs it once for each list of arguments, in one round trip. What a full server refused
        stands in place of its answer."""
        with client.pipeline(transaction=False) as pipe:
            # in the same trip: a server that restarts in between has forgotten it
            pipe.script_load(self.text)
            for arguments in calls:
                pipe.evalsha(self.digest, 1, keys.PREFIX, *arguments)
            _, *answers = pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and not isinstance(answer, OutOfMemoryError):
                raise answer
        return answers


def together(client: redis.Redis, *calls: tuple[Script, Sequence[Argument]]) -> list[Any]:
    """Runs several scripts, each with its arguments, in one round trip. Where the server has
    forgotten one, all of them run once more: for scripts that may be repeated."""
    try:
        with client.pipeline(transaction=False) as pipe:
            for script, arguments in calls:
                pipe.evalsha(script.digest, 1, keys.PREFIX, *arguments)
            return list(pipe.execute())
    except NoScriptError:
        return [script(client, *arguments) for script, arguments in calls]


def _joined(name: str, folder: Path) -> str:
    path = folder / f"{name}.lua"
    if not path.exists():
        path = SHARED / f"{name}.lua"
    return _INCLUDE.sub(lambda found: _joined(found[1], folder), path.read_text("utf-8"))
