import os
from pathlib import Path

from ops.metrics import cgroup

GIB = 1 << 30


def make_group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def membership(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "cgroup"
    file.write_text(text)
    return file


def test_no_limit_means_none(tmp_path: Path):
    make_group(tmp_path / "fs/app", memory__max="max", memory__current="5")
    assert cgroup.memory(tmp_path / "fs", membership(tmp_path, "0::/app\n")) is None


def test_the_tightest_limit_above_the_process_counts(tmp_path: Path):
    mount = tmp_path / "fs"
    make_group(mount / "slice", memory__max=str(2 * GIB), memory__current=str(GIB))
    make_group(mount / "slice/app", memory__max=str(8 * GIB), memory__current=str(GIB))
    found = cgroup.memory(mount, membership(tmp_path, "0::/slice/app\n"))
    assert found is not None
    assert (found.limit_bytes, found.available_bytes) == (2 * GIB, GIB)
    assert found.pressure_file == mount / "slice/memory.pressure"


def test_file_cache_counts_as_available(tmp_path: Path):
    mount = tmp_path / "fs"
    make_group(
        mount,
        memory__max=str(4 * GIB),
        memory__current=str(4 * GIB),
        memory__stat=f"anon 1\ninactive_file {GIB}\n",
    )
    found = cgroup.memory(mount, membership(tmp_path, "0::/\n"))
    assert found is not None
    assert found.available_bytes == GIB


def test_the_old_hierarchy_is_read_too_and_its_huge_number_is_no_limit(tmp_path: Path):
    mount, lines = tmp_path / "fs", "4:memory:/box\n0::/\n"
    make_group(
        mount / "memory",
        memory__limit_in_bytes="9223372036854771712",
        memory__usage_in_bytes="1",
    )
    make_group(
        mount / "memory/box",
        memory__limit_in_bytes=str(GIB),
        memory__usage_in_bytes=str(GIB // 4),
    )
    found = cgroup.memory(mount, membership(tmp_path, lines))
    assert found is not None
    assert (found.limit_bytes, found.available_bytes) == (GIB, GIB * 3 // 4)


def test_a_quota_bounds_the_cores_and_is_rounded_up(tmp_path: Path):
    make_group(tmp_path / "fs/app", cpu__max="50000 100000")
    assert cgroup.cores(tmp_path / "fs", membership(tmp_path, "0::/app\n")) == 1


def test_without_a_quota_the_affinity_counts(tmp_path: Path):
    make_group(tmp_path / "fs/app", cpu__max="max 100000")
    found = cgroup.cores(tmp_path / "fs", membership(tmp_path, "0::/app\n"))
    assert found == len(os.sched_getaffinity(0))
