import os
import subprocess
import sys
import time

from ops.metrics.process import ProcessMeter


def test_this_process_has_a_working_set_and_threads():
    sample = ProcessMeter("test", os.getpid()).sample(1.0)
    assert sample is not None
    assert sample.rss_bytes
    assert sample.peak_bytes
    assert sample.peak_bytes >= sample.rss_bytes // 2
    assert sample.pss_bytes
    assert sample.uss_bytes
    assert sample.uss_bytes <= sample.pss_bytes
    assert sample.threads


def test_rates_need_two_samples():
    meter = ProcessMeter("test", os.getpid())
    first = meter.sample(time.monotonic())
    assert first is not None
    assert first.cpu_percent is None
    assert first.run_queue_wait_percent is None
    _burn_cpu_s(0.05)
    second = meter.sample(time.monotonic())
    assert second is not None
    assert second.cpu_percent
    assert second.run_queue_wait_percent is not None


def test_mappings_are_walked_at_a_low_rate():
    meter = ProcessMeter("test", os.getpid())
    first = meter.sample(0.0)
    ballast = bytearray(os.urandom(32 << 20))
    soon, later = meter.sample(1.0), meter.sample(11.0)
    assert first is not None
    assert soon is not None
    assert later is not None
    assert soon.uss_bytes == first.uss_bytes
    assert later.uss_bytes is not None
    assert first.uss_bytes is not None
    assert later.uss_bytes > first.uss_bytes + len(ballast) // 2


def test_a_process_that_ended_is_absent():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    meter = ProcessMeter("child", child.pid)
    assert meter.sample(1.0) is not None
    child.communicate(b"\n")
    assert meter.sample(2.0) is None


def _burn_cpu_s(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
