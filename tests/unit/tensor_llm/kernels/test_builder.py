"""Where the library cannot be built, a person is told why."""

import pytest

from tensor_llm.kernels import builder


def test_a_machine_without_a_compiler_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(builder.BuildFault, match=r"no c\+\+ on the path: install g\+\+"):
        builder.library_path(tmp_path)


def test_what_the_compiler_says_reaches_the_message(monkeypatch, tmp_path, levels):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "a.cpp").write_text("#error this cannot be built\n")
    monkeypatch.setattr(builder, "SOURCES", broken)
    with pytest.raises(builder.BuildFault, match="this cannot be built"):
        builder.library_path(tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir()), "the build's folder is gone"
