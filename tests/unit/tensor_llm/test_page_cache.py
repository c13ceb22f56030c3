"""Cold and warm files."""

import os
import sys

import pytest

from tensor_llm.page_cache import resident_share, temperature

SIZE = 8 << 20


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(SIZE))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    yield path, descriptor
    os.close(descriptor)


def test_a_file_just_read_is_warm(file):
    path, _ = file
    path.read_bytes()
    assert temperature(resident_share([path])) in ("warm", "unmeasured")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a file be forgotten")
def test_a_file_that_the_system_forgot_is_cold_and_warms_as_it_is_read(file):
    path, descriptor = file
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    share = resident_share([path])
    if share is None or share == 1.0:
        pytest.skip("this file system keeps its files in memory")
    assert temperature(share) == "cold"
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    os.pread(descriptor, SIZE // 2, 0)
    assert share < resident_share([path]) < 1.0


def test_files_are_counted_together(file, tmp_path):
    path, _ = file
    assert resident_share([path, path]) == pytest.approx(resident_share([path]), abs=0.01)


def test_what_cannot_be_measured_is_not_guessed(tmp_path):
    (tmp_path / "empty").touch()
    assert resident_share([tmp_path / "missing"]) is None
    assert resident_share([tmp_path / "empty"]) is None
    assert resident_share([]) is None
    assert temperature(None) == "unmeasured"
