import os
import subprocess
import sys

from noidle.snapshot import Pressure
from ops.sampler import HostSampler


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_pool_without_a_device_has_the_hosts_memory_and_its_own_process():
    sample = HostSampler("box").sample(None)
    assert sample.host.host == "box"
    assert sample.memory_free_bytes == sample.host.memory_available_bytes
    assert [(each.name, each.pid) for each in sample.processes] == [("worker", os.getpid())]
    assert sample.devices == ()
    assert sample.engine_busy_percent is None
    assert isinstance(sample.pressure, Pressure)


def test_the_engine_is_measured_while_it_lives():
    engine = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert engine.stdout is not None
    # until it has started and only waits
    engine.stdout.readline()
    clock = Clock()
    sampler = HostSampler("box", clock=clock)
    names = [each.name for each in sampler.sample(engine.pid).processes]
    assert names == ["worker", "engine"]
    clock.now_s += 1
    assert sampler.sample(engine.pid).engine_busy_percent == 0.0
    engine.communicate(b"\n")
    clock.now_s += 1
    assert [each.name for each in sampler.sample(engine.pid).processes] == ["worker"]


def test_a_second_look_at_once_is_the_first_one_again():
    clock = Clock()
    sampler = HostSampler("box", clock=clock)
    first = sampler.sample(None)
    clock.now_s += 0.1
    assert sampler.sample(None) is first
    clock.now_s += 0.9
    assert sampler.sample(None) is not first


def test_the_memory_of_a_device_that_cannot_be_asked_is_absent():
    sample = HostSampler("box", "cuda:7", visible="").sample(None)
    assert sample.devices == ()
    assert sample.memory_free_bytes is None
