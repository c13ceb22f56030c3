"""Where the kernels' library lies and who has to wait for a compiler."""

import os
import sys
from pathlib import Path

import pytest

from tensor_llm.kernels import builder


def test_only_what_is_not_there_must_be_built(tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "_check_tools", lambda: None)
    assert builder.must_build(tmp_path)
    built = []
    monkeypatch.setattr(builder, "_build", lambda path: (built.append(path), path.touch()))
    path = builder.library_path(tmp_path)
    assert builder.library_path(tmp_path) == path
    assert built == [path]
    assert not builder.must_build(tmp_path)


def test_without_a_compiler_nobody_waits(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert not builder.must_build(tmp_path)
    with pytest.raises(builder.BuildFault, match="no-such-compiler"):
        builder.library_path(tmp_path)


def test_tools_beside_the_interpreter_are_found_without_an_active_environment(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("PATH", "/nowhere")
    seen = []
    monkeypatch.setattr(builder, "_build", lambda path: seen.append(os.environ["PATH"]))
    builder.library_path(tmp_path)
    assert seen == [f"/nowhere{os.pathsep}{Path(sys.executable).parent}"]
    assert os.environ["PATH"] == "/nowhere"
