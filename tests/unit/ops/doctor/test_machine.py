"""What the doctor finds on this host."""

import pytest

from ops.data_dir import DataDir
from ops.doctor.check import Outcome
from ops.doctor.machine import check_machine


def compiler(tmp_path):
    [found] = [one for one in check_machine(DataDir(root=tmp_path)) if one.name == "C++ compiler"]
    return found


@pytest.fixture
def no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_without_a_compiler_it_says_what_to_install(no_compiler, tmp_path):
    found = compiler(tmp_path)
    assert found.outcome is Outcome.WARN
    assert "g++" in (found.remedy or "")


def test_kernels_that_are_built_need_no_compiler(no_compiler, tmp_path):
    (tmp_path / "noidle").mkdir()
    (tmp_path / "noidle" / "kernels-0123.so").touch()
    assert compiler(tmp_path).outcome is Outcome.OK


def test_a_compiler_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "sh")
    assert "sh, for the CPU's kernels" in compiler(tmp_path).found
