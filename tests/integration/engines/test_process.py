"""Supervision of engine programs, well-behaved and not, as real processes."""

import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading

import psutil
import pytest

from engines import child
from engines.process import EngineGone, EngineProcess
from engines.program import load_program, shipped
from engines.protocol import Done, Hello, Start
from noidle.jobs import Generate
from tests.contract.engine_driver import Driver

HELLO = 'print(\'{"event":"hello","protocol":1,"device":"d","kinds":[]}\', flush=True)\n'
SILENT = "import sys\nfor line in sys.stdin: pass\n"


class Watch:
    """What an engine process told, and a way to wait for more."""

    def __init__(self):
        self.changed = threading.Condition()
        self.events, self.exits = [], []

    def hear(self, event):
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()

    def bury(self, end):
        with self.changed:
            self.exits.append(end)
            self.changed.notify_all()

    def until(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, 30), (self.events, self.exits)


@pytest.fixture
def watch():
    return Watch()


@pytest.fixture
def launch(tmp_path, watch):
    """Starts a program from its Python source."""
    started = []

    def start(source, **more):
        (tmp_path / "program.py").write_text(textwrap.dedent(source))
        declaration = tmp_path / "engine.toml"
        declaration.write_text('name = "odd"\ncommand = ["{python}", "{here}/program.py"]\n')
        one = EngineProcess(
            load_program(declaration),
            "odd",
            {},
            on_message=watch.hear,
            on_exit=watch.bury,
            **more,
        )
        one.start()
        started.append(one)
        return one

    yield start
    for one in started:
        one.stop(grace_s=0.1)


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_program_that_says_nothing_is_killed_and_started_again(launch, watch):
    launch(SILENT, hello_timeout_s=0.2)
    watch.until(lambda: len(watch.exits) >= 2)
    assert "said nothing for 0.2 s" in watch.exits[0].reason
    assert not watch.exits[0].said_hello
    assert [end.failures for end in watch.exits[:2]] == [1, 2]
    assert watch.exits[1].restart_in_s > watch.exits[0].restart_in_s


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (HELLO.replace('"protocol":1', '"protocol":2'), "allowed is 1"),
        ('print("Loading…", flush=True)\n', "not a JSON object"),
        ('print(\'{"event":"dropped","run":"r"}\', flush=True)\n', "spoke before its hello"),
        (HELLO + 'print(\'{"event":"done","run":"r"}\', flush=True)\n', "done.result"),
    ],
    ids=["protocol", "no-json", "before-hello", "wrong-fields"],
)
def test_a_program_that_breaks_the_protocol_is_killed_with_the_reason(launch, watch, source, words):
    launch(source + SILENT)
    watch.until(lambda: watch.exits)
    assert words in watch.exits[0].reason


def test_a_line_without_end_does_not_fill_the_memory(launch, watch, monkeypatch):
    monkeypatch.setattr(child, "MAX_LINE_BYTES", 1000)
    launch(HELLO + 'print("x" * 5000, flush=True)\n' + SILENT)
    watch.until(lambda: watch.exits)
    assert "more than 1000 bytes" in watch.exits[0].reason


def test_an_event_of_a_newer_protocol_is_passed_over(launch, watch):
    newer = 'print(\'{"event":"telemetry"}\', flush=True)\n'
    known = 'print(\'{"event":"dropped","run":"r"}\', flush=True)\n'
    launch(HELLO + newer + known + SILENT)
    watch.until(lambda: len(watch.events) == 2)
    assert not watch.exits


def test_a_program_that_cannot_be_found_is_named(tmp_path, watch):
    declaration = tmp_path / "engine.toml"
    declaration.write_text('name = "odd"\ncommand = ["no-such-program"]\n')
    one = EngineProcess(
        load_program(declaration), "odd", {}, on_message=watch.hear, on_exit=watch.bury
    )
    one.start()
    watch.until(lambda: watch.exits)
    one.stop()
    assert "cannot start no-such-program" in watch.exits[0].reason


def test_what_it_writes_to_stderr_is_logged_and_explains_its_end(launch, watch, caplog):
    caplog.set_level(logging.INFO, "noidle.engine")
    launch("import missing_module\n")
    watch.until(lambda: watch.exits)
    assert "No module named 'missing_module'" in watch.exits[0].reason
    assert "missing_module" in caplog.text


def test_its_log_events_are_logged_at_their_level(launch, watch, caplog):
    caplog.set_level(logging.INFO, "noidle.engine")
    event = '{"event":"log","level":"warning","message":"model m is cut"}'
    launch(HELLO + f"print('{event}', flush=True)\n" + 'print("x", flush=True)\n')
    watch.until(lambda: watch.exits)
    found = [record for record in caplog.records if "model m is cut" in record.message]
    assert [record.levelname for record in found] == ["WARNING"]


def test_sending_never_waits_for_a_program_that_does_not_read(launch, watch):
    one = launch(HELLO + "import time\ntime.sleep(60)\n")
    watch.until(lambda: watch.events)
    job = Generate(model="m", prompt="x" * 1_000_000)
    for number in range(20):
        one.send(Start.of(f"r{number}", job, 1))
    one.kill("has not moved")
    watch.until(lambda: watch.exits)


def test_nothing_can_be_sent_to_a_life_that_is_over(launch, watch):
    one = launch(HELLO + SILENT)
    watch.until(lambda: watch.events)
    one.send(Start.of("r", Generate(model="m", prompt="x"), 1), generation=1)
    one.kill("enough")
    watch.until(lambda: len(watch.events) == 2)
    with pytest.raises(EngineGone, match="life 1"):
        one.send(Start.of("r", Generate(model="m", prompt="x"), 1), generation=1)


def test_a_fault_of_a_listener_does_not_end_the_supervision(launch, watch, caplog):
    def hear(event):
        watch.hear(event)
        raise ValueError("listener")

    one = launch(HELLO + SILENT)
    one._on_message = hear
    watch.until(lambda: watch.events)
    one.kill("enough")
    watch.until(lambda: len(watch.events) == 2)
    assert one.hello is not None


def test_whatever_it_started_ends_with_it(launch, watch, tmp_path):
    note = tmp_path / "pid"
    one = launch(
        "import subprocess, sys\n"
        'other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])\n'
        f"open({str(note)!r}, 'w').write(str(other.pid))\n" + HELLO + SILENT
    )
    watch.until(lambda: watch.events)
    pid = int(note.read_text())
    one.kill("enough")
    watch.until(lambda: watch.exits and gone(pid))


def test_a_program_that_will_not_stop_is_killed_after_the_grace(launch, watch):
    one = launch(HELLO + "import time\ntime.sleep(600)\n")
    watch.until(lambda: watch.events)
    one.stop(grace_s=0.1)
    assert watch.exits[0].expected
    assert "did not stop in time" in watch.exits[0].reason
    assert one.pid is None


def test_it_has_a_session_of_its_own_so_signals_to_the_pool_pass_it_by(launch, watch):
    one = launch(HELLO + SILENT)
    watch.until(lambda: watch.events)
    assert os.getsid(one.pid) == one.pid


def test_it_dies_with_the_process_that_started_it(tmp_path):
    source = """
        import sys, time
        from engines.process import EngineProcess
        from engines.program import load_program, shipped
        one = EngineProcess(
            load_program(shipped("echo")), "cpu", {},
            on_message=lambda _: print(one.pid, flush=True), on_exit=lambda _: None,
        )
        one.start()
        time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)], stdout=subprocess.PIPE, text=True
    )
    with parent:
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
        assert gone(pid)


@pytest.fixture
def echo():
    with Driver(load_program(shipped("echo")), "cpu", {"ECHO_STEP_S": "0.002"}) as one:
        yield one


def ask(prompt, max_tokens=5):
    return Generate(model="echo", prompt=prompt, max_tokens=max_tokens)


def test_a_crash_in_one_run_takes_the_life_and_all_its_runs_but_not_the_pool(echo):
    other = echo.start(ask("a long answer", 10_000))
    echo.until(lambda: echo.runs[other].tokens)
    poison = echo.start(ask("!crash 3"))
    end = echo.finish(poison).end
    assert end is echo.finish(other).end
    assert (end.code, end.expected) == (70, False)
    echo.until(lambda: len(echo.hellos) == 2)
    assert isinstance(echo.do(ask("and on")).end, Done)


def test_an_engine_that_hangs_says_no_more_until_its_pool_kills_it(echo):
    run = echo.start(ask("!hang 2"))
    echo.until(lambda: len(echo.runs[run].tokens) == 2)
    other = echo.start(ask("nobody answers"))
    echo.process.kill("run 1 has not moved for 8 s")
    assert "has not moved" in echo.finish(run).end.reason
    assert echo.finish(other).tokens == ()
    echo.until(lambda: len(echo.hellos) == 2)
    assert isinstance(echo.hellos[1], Hello)
    assert isinstance(echo.do(ask("and on")).end, Done)


def test_a_run_can_fail_alone(echo):
    other = echo.start(ask("the other", 50))
    failed = echo.do(ask("!fail 2"))
    assert failed.end.error.code == "engine"
    assert len(failed.tokens) == 2
    assert len(echo.finish(other).tokens) == 50
    assert not echo.exits
