from pathlib import Path

from ops.metrics import procfs


def test_a_file_that_is_not_there_is_absent_not_zero(tmp_path: Path):
    missing = tmp_path / "missing"
    assert procfs.read(missing) is None
    assert procfs.number(missing) is None
    assert procfs.fields(missing) == {}
    assert procfs.stall_percent(missing) is None


def test_no_limit_is_not_a_number(tmp_path: Path):
    file = tmp_path / "memory.max"
    file.write_text("max\n")
    assert procfs.number(file) is None


def test_fields_come_with_and_without_colons(tmp_path: Path):
    file = tmp_path / "mixed"
    file.write_text("MemTotal:       1024 kB\npgmajfault 7\nVmHWM:\t  99 kB\nName:\tpython\n")
    assert procfs.fields(file) == {"MemTotal": 1024, "pgmajfault": 7, "VmHWM": 99}


def test_stall_is_told_for_some_and_for_all_tasks(tmp_path: Path):
    file = tmp_path / "memory"
    file.write_text(
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=12\n"
        "full avg10=0.25 avg60=0.00 avg300=0.00 total=3\n"
    )
    assert procfs.stall_percent(file) == 1.5
    assert procfs.stall_percent(file, "full") == 0.25
