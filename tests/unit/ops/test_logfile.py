from pathlib import Path

from ops.logfile import LogFile


def test_a_log_is_cut_at_its_size_and_one_older_part_stays(tmp_path: Path):
    log = LogFile(tmp_path / "cpu.log", max_bytes=100)
    with log.open() as writer:
        writer.write(b"a" * 99)
        writer.flush()
        assert not log.cut()
        writer.write(b"b")
        writer.flush()
        assert log.cut()
        # the writer appends where the file now ends
        writer.write(b"c")
        writer.flush()
    assert (tmp_path / "cpu.log").read_bytes() == b"c"
    assert (tmp_path / "cpu.log.1").read_bytes() == b"a" * 99 + b"b"


def test_the_last_lines_come_oldest_first(tmp_path: Path):
    (tmp_path / "log").write_text("".join(f"line {number}\n" for number in range(20_000)))
    assert LogFile(tmp_path / "log").last_lines(2) == ["line 19998", "line 19999"]


def test_a_log_that_is_not_there_has_no_lines(tmp_path: Path):
    log = LogFile(tmp_path / "missing")
    assert log.last_lines(5) == []
    assert not log.cut()


def test_following_yields_whole_lines_and_survives_a_cut(tmp_path: Path):
    path = tmp_path / "log"
    path.write_text("old\n")
    follower = LogFile(path).follow(wait=lambda _: None)
    assert next(follower) == []
    with path.open("a") as file:
        file.write("one\ntw")
    assert next(follower) == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert next(follower) == ["two"]
    path.write_text("new\n")
    assert next(follower) == ["new"]
