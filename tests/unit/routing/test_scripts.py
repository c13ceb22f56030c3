"""Rules that every Lua script keeps."""

import re
from pathlib import Path

import pytest

from noidle.script import SHARED
from routing.redis_running import SCRIPTS

ALL = [(path.stem, folder) for folder in (SHARED, SCRIPTS) for path in folder.glob("*.lua")]


@pytest.mark.parametrize(("name", "folder"), ALL)
def test_every_script_says_which_keys_it_touches(name: str, folder: Path) -> None:
    text = (folder / f"{name}.lua").read_text()
    head = re.match(r"(?:#!.*\n)?(?:--.*\n)+", text)
    assert head is not None
    assert re.search(r"[Kk]eys|prefix", head[0])


@pytest.mark.parametrize(("name", "folder"), ALL)
def test_no_script_reads_another_clock_or_draws_at_random(name: str, folder: Path) -> None:
    text = (folder / f"{name}.lua").read_text()
    assert "os.time" not in text
    assert "math.random" not in text
