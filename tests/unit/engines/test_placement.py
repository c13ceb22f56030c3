"""Which engines run where: sentence, machine, wanted placements."""

import pytest

from engines.machine import Machine
from engines.placement import find_engines
from noidle.jobs import EngineName

NO_DRIVER = "the NVIDIA driver does not answer: NVML Shared Library Not Found"
BARE = Machine(nvml_fault=NO_DRIVER, probe_fault="no device of any driver is there")
H200 = Machine(
    nvidia=("NVIDIA H200",),
    cuda=("NVIDIA H200",),
    accelerator="cuda",
    count=1,
    torch="2.13.0",
    cuda_built="13.0",
)
APPLE = Machine(nvml_fault=NO_DRIVER, accelerator="mps", count=1, torch="2.13.0")


def place(machine, **more):
    return {one.engine: one for one in find_engines(machine, cores=2, **more)}


def test_without_accelerator_only_the_cpu_runs_and_the_others_say_why():
    found = place(BARE)
    assert [engine for engine, one in found.items() if one.can_run] == [EngineName.CPU]
    assert NO_DRIVER in found[EngineName.CUDA].why
    assert "no device of any driver" in found[EngineName.GPU].why
    assert "no device of any driver" in found[EngineName.HYBRID].why
    assert found[EngineName.CPU].device == "2 cores"


def test_stand_ins_run_and_are_labelled_with_what_is_missing():
    found = place(BARE, stand_in=True)
    assert all(one.can_run for one in found.values())
    assert not found[EngineName.CPU].stand_in
    for engine in (EngineName.HYBRID, EngineName.CUDA, EngineName.GPU):
        assert found[engine].stand_in
        assert found[engine].torch_devices == ()
        assert "stands in" in found[engine].why


def test_an_nvidia_card_runs_all_four():
    found = place(H200, stand_in=True)
    assert all(one.can_run and not one.stand_in for one in found.values())
    assert found[EngineName.CUDA].torch_devices == ("cuda:0",)
    assert found[EngineName.HYBRID].device == "NVIDIA H200"


def test_each_card_is_a_device_of_its_own():
    two = Machine(nvidia=("A", "B"), cuda=("A", "B"), accelerator="cuda", count=2, torch="2")
    assert place(two)[EngineName.GPU].torch_devices == ("cuda:0", "cuda:1")


def test_another_accelerator_runs_gpu_and_hybrid_but_not_cuda():
    found = place(APPLE)
    assert found[EngineName.GPU].torch_devices == ("mps:0",)
    assert found[EngineName.HYBRID].can_run
    assert not found[EngineName.CUDA].can_run


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (Machine(nvidia=("NVIDIA H200",), torch="2.13.0+cpu"), "built without CUDA"),
        (Machine(nvidia=("NVIDIA H200",), torch="2.13", cuda_built="13.0"), "driver is too old"),
        (Machine(nvidia=("NVIDIA H200",), probe_fault="No module named torch"), "No module named"),
    ],
)
def test_a_card_that_torch_cannot_use_is_named_with_the_remedy(machine, words):
    why = place(machine)[EngineName.CUDA].why
    assert "NVIDIA H200" in why
    assert words in why
