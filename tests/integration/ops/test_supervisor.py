"""The supervisor over small real processes."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ops import leftovers
from ops.child import ChildSpec, ChildState
from ops.supervisor import Supervisor
from ops.wakeup import Wakeup
from tests.integration.ops.commands import ROOT, environment, wait_for

SLEEPER = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('deaf', flush=True); time.sleep(600)"
)
PARENT = (
    "import subprocess, sys, time; "
    f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}]); "
    "print(child.pid, flush=True); time.sleep(600)"
)
SUPERVISOR = """
import os, sys, pathlib
from ops.child import ChildSpec
from ops.supervisor import Supervisor
from ops.wakeup import Wakeup

folder = pathlib.Path(sys.argv[1])
with Wakeup() as wakeup:
    supervisor = Supervisor(folder=folder, logs=folder, wakeup=wakeup, say=lambda line: None)
    command = (sys.executable, "-c", sys.argv[2])
    supervisor.start(ChildSpec(name="one", command=command, environment=dict(os.environ)))
    print(supervisor.pids["one"], flush=True)
    while True:
        supervisor.tick()
"""


class Scene:
    """A supervisor in this process, and what it said."""

    def __init__(self, folder: Path, wakeup: Wakeup) -> None:
        self.said: list[str] = []
        self.folder = folder
        self.wakeup = wakeup
        self.supervisor = Supervisor(
            folder=folder, logs=folder, wakeup=wakeup, say=self.said.append
        )

    def start(self, name: str, script: str, grace_s: float = 10.0) -> int:
        command = (sys.executable, "-c", script)
        spec = ChildSpec(name=name, command=command, environment=dict(os.environ), grace_s=grace_s)
        self.supervisor.start(spec)
        return self.supervisor.pids[name]

    def first_line(self, name: str) -> str:
        log = self.supervisor.log(name)
        return wait_for(lambda: log.last_lines(1), f"a line of {name}")[0]

    def tick_until(self, condition) -> None:
        def look() -> bool:
            self.supervisor.tick(0.05)
            return condition()

        wait_for(look, "what the supervisor should do")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with Wakeup() as wakeup:
        found = Scene(tmp_path, wakeup)
        yield found
        found.supervisor.kill_all()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_killed_process_is_started_again_under_another_number(scene: Scene):
    first = scene.start("one", SLEEPER)
    os.kill(first, signal.SIGKILL)
    scene.tick_until(lambda: scene.supervisor.pids.get("one") not in (None, first))
    assert scene.supervisor.children["one"].restarts == 1
    assert "one ended (killed by SIGKILL)" in scene.said[0]


def test_one_that_always_dies_is_started_ever_more_rarely(scene: Scene):
    scene.start("one", "raise SystemExit(3)")
    child = scene.supervisor.children["one"]
    scene.tick_until(lambda: child.restarts == 3)
    ends = [line for line in scene.said if "ended" in line]
    pauses = [float(re.findall(r"in (\d+\.\d) s", line)[0]) for line in ends[:3]]
    assert pauses[0] * 1.5 <= pauses[1]
    assert pauses[1] * 1.5 <= pauses[2]
    assert child.last_exit == "exit status 3"


def test_what_a_killed_process_had_started_dies_before_the_restart(scene: Scene):
    first = scene.start("one", PARENT)
    grandchild = int(scene.first_line("one"))
    os.kill(first, signal.SIGKILL)
    scene.tick_until(lambda: scene.supervisor.pids.get("one") not in (None, first))
    wait_for(lambda: not alive(grandchild), "the end of the grandchild")


def test_ending_is_asked_first_and_nothing_stays(scene: Scene):
    first = scene.start("one", PARENT)
    grandchild = int(scene.first_line("one"))
    scene.supervisor.end(["one"])
    assert scene.supervisor.children["one"].state is ChildState.ENDED
    wait_for(lambda: not alive(first) and not alive(grandchild), "the end of both")


def test_one_that_does_not_listen_is_killed_after_its_grace(scene: Scene):
    first = scene.start("deaf", STUBBORN, grace_s=0.3)
    assert scene.first_line("deaf") == "deaf"
    scene.supervisor.end(["deaf"])
    assert not alive(first)
    assert scene.said == ["deaf did not end in time and is killed"]


def test_a_second_ctrl_c_ends_the_waiting(scene: Scene):
    first = scene.start("deaf", STUBBORN, grace_s=600)
    assert scene.first_line("deaf") == "deaf"
    os.kill(os.getpid(), signal.SIGINT)
    wait_for(lambda: scene.wakeup.ending == 1, "the first signal")
    # comes while the supervisor waits
    impatient = subprocess.Popen(
        [sys.executable, "-c", f"import os, time; time.sleep(1); os.kill({os.getpid()}, 2)"]
    )
    scene.supervisor.end(["deaf"])
    assert not alive(first)
    impatient.wait()


def test_a_process_that_ended_is_not_started_again(scene: Scene):
    scene.start("one", SLEEPER)
    scene.supervisor.end(["one"])
    scene.supervisor.tick(0.0)
    assert scene.supervisor.pids == {}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's orphan signal is Linux's")
def test_processes_die_with_a_supervisor_that_is_killed(tmp_path: Path):
    supervisor = subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path), SLEEPER],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(tmp_path),
    )
    assert supervisor.stdout is not None
    child = int(supervisor.stdout.readline())
    assert alive(child)
    supervisor.kill()
    supervisor.communicate()
    wait_for(lambda: not alive(child), "the end of the child")


def test_leftovers_of_a_killed_supervisor_are_found_by_their_mark(tmp_path: Path):
    supervisor = subprocess.Popen(
        # deaf to the kernel's signal, as a process on another system would be
        [sys.executable, "-c", SUPERVISOR, str(tmp_path), STUBBORN],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(tmp_path),
    )
    assert supervisor.stdout is not None
    child = int(supervisor.stdout.readline())
    wait_for(lambda: "deaf" in (tmp_path / "one.log").read_text(), "the child's deafness")
    supervisor.kill()
    supervisor.communicate()
    assert alive(child)
    assert leftovers.clear(tmp_path / "another") == []
    assert leftovers.clear(tmp_path) == [f"process {child}"]
    assert not alive(child)
