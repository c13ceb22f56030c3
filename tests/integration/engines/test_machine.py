"""What is asked of the driver and of torch, on this very machine."""

from pathlib import Path

from engines.machine import inspect_machine
from engines.placement import find_engines


def test_a_sign_of_a_driver_has_torch_asked_in_a_process_of_its_own(tmp_path):
    sign = tmp_path / "driver"
    sign.touch()
    machine = inspect_machine([sign])
    assert machine.torch
    assert machine.probe_fault is None


def test_without_any_sign_nobody_is_asked():
    machine = inspect_machine([Path("/nothing/here")])
    if not machine.nvidia:
        assert machine.torch is None
        assert machine.probe_fault
        assert machine.nvml_fault


def test_every_engine_that_cannot_run_here_says_why():
    for placement in find_engines(inspect_machine(), cores=1):
        assert placement.can_run or placement.why
