"""Which engines this machine can run, on which device, and why the others cannot.

Owns that decision, from what `engines.machine` found; knows nothing of pools."""

import dataclasses
from dataclasses import dataclass

from engines.machine import Machine
from noidle.jobs import EngineName


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """An engine on this machine."""

    engine: EngineName
    can_run: bool
    # for people, such as "NVIDIA H200" or "16 cores"; absent where it cannot run
    device: str | None = None
    # as torch names them, one pool each; empty for the CPU and for stand-ins
    torch_devices: tuple[str, ...] = ()
    stand_in: bool = False
    # why it cannot run and what to do, or what it stands in for
    why: str | None = None


def find_engines(machine: Machine, *, cores: int, stand_in: bool = False) -> tuple[Placement, ...]:
    """Every engine, in EngineName's order. With `stand_in`, those whose device is missing run
    on the CPU with one thread, and say so."""
    found = tuple(_place(engine, machine, cores) for engine in EngineName)
    return tuple(_stood_in(one) if stand_in else one for one in found)


def _place(engine: EngineName, machine: Machine, cores: int) -> Placement:
    if engine is EngineName.CPU:
        unit = "core" if cores == 1 else "cores"
        return Placement(engine=engine, can_run=True, device=f"{cores} {unit}")
    if engine is EngineName.CUDA:
        return _on_cuda(engine, machine)
    return _on_accelerator(engine, machine)


def _on_cuda(engine: EngineName, machine: Machine) -> Placement:
    if machine.cuda:
        devices = tuple(f"cuda:{index}" for index in range(len(machine.cuda)))
        return Placement(engine=engine, can_run=True, device=machine.cuda[0], torch_devices=devices)
    return Placement(engine=engine, can_run=False, why=_why_no_cuda(machine))


def _why_no_cuda(machine: Machine) -> str:
    if not machine.nvidia:
        return f"no NVIDIA device: {machine.nvml_fault}"
    card = machine.nvidia[0]
    if machine.torch is None:
        return f"{card} is there, but torch did not answer: {machine.probe_fault}"
    if machine.cuda_built is None:
        return (
            f"{card} is there, but torch {machine.torch} is built without CUDA; "
            "install a CUDA build of torch"
        )
    return (
        f"{card} is there, but torch {machine.torch} for CUDA {machine.cuda_built} cannot use "
        "it; its driver is too old for this build, or CUDA_VISIBLE_DEVICES hides it"
    )


def _on_accelerator(engine: EngineName, machine: Machine) -> Placement:
    kind = machine.accelerator
    if kind is None:
        if machine.torch is None:
            why = f"no accelerator: {machine.probe_fault}"
        else:
            why = f"torch {machine.torch} finds no accelerator"
        return Placement(engine=engine, can_run=False, why=why)
    return Placement(
        engine=engine,
        can_run=True,
        device=machine.cuda[0] if kind == "cuda" and machine.cuda else kind,
        torch_devices=tuple(f"{kind}:{index}" for index in range(machine.count)),
    )


def _stood_in(placement: Placement) -> Placement:
    if placement.can_run:
        return placement
    return dataclasses.replace(
        placement,
        can_run=True,
        device="1 core, standing in",
        stand_in=True,
        why=f"the CPU stands in: {placement.why}",
    )
