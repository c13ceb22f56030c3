"""Scripts are joined with their parts."""

from pathlib import Path

from noidle.script import Script


def test_parts_come_from_the_scripts_folder_or_the_shared_one(tmp_path: Path) -> None:
    (tmp_path / "whole.lua").write_text("#!lua\n-- include base\n-- include part\nreturn NOW")
    (tmp_path / "part.lua").write_text("local part = 1\n")
    text = Script("whole", tmp_path).text
    assert "local part = 1" in text
    assert "local NOW = clock()" in text
    assert "include" not in text
