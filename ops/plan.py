"""What `noidle up` is to run on this host: which processes, with which commands. Decides from
the options and what the host has; starts nothing itself."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from engines.placement import Placement
from noidle.errors import ConfigError
from noidle.jobs import EngineName
from ops.child import ChildSpec
from ops.valkey import Valkey
from workers.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
# beyond its own grace, for handing back and closing connections
_DRAIN_EXTRA_S = 10.0
_STOP_S = 10.0
# of a device that pools share; the rest is for contexts, kernels and fragments
_SHARED_MEMORY = 0.9

T = TypeVar("T")


class PerEngine(BaseModel, Generic[T]):
    """A value for every engine, or different ones."""

    model_config = ConfigDict(frozen=True)

    every: T | None = None
    single: dict[EngineName, T] = {}

    def of(self, engine: EngineName) -> T | None:
        return self.single.get(engine, self.every)


class UpOptions(BaseModel):
    """What the user asks of `noidle up`, beside the settings."""

    model_config = ConfigDict(frozen=True)

    # a Redis elsewhere; absent: a server of our own
    redis: str | None = None
    # absent: every engine that this host can run
    engines: tuple[EngineName, ...] | None = None
    stand_in: bool = False
    flower: bool = True
    # absent: the usual one, or a free one where that is taken
    flower_port: int | None = None
    # of the embedded server; absent: the former one, or a free one
    port: int | None = None
    slots: PerEngine[int] = PerEngine()
    threads: PerEngine[int] = PerEngine()
    # the name of a shipped engine program, or a declaration's path
    program: PerEngine[str] = PerEngine()
    preload: tuple[str, ...] = ()


def choose_placements(
    placements: Sequence[Placement], wanted: tuple[EngineName, ...] | None
) -> list[Placement]:
    """Those to run.

    Raises:
        ConfigError: a wanted engine cannot run here.
    """
    chosen = [each for each in placements if wanted is None or each.engine in wanted]
    for each in chosen:
        if wanted is not None and not each.can_run:
            raise ConfigError(
                f"--engines {each.engine}: cannot run here: {each.why}; leave it out, or let the "
                "CPU stand in with --stand-in",
                variable="--engines",
                value=each.engine,
                allowed=", ".join(other.engine for other in placements if other.can_run),
            )
    return [each for each in chosen if each.can_run]


def memory_shares(
    placements: Sequence[Placement], device_bytes: Mapping[str, int]
) -> dict[str, int]:
    """Bytes each pool may take of a device that several pools use; a device with one pool has
    none, since that one may take what is free.

    Args:
        device_bytes: total memory by device, as torch names them.
    """
    users = Counter(device for each in placements for device in each.torch_devices)
    return {
        device: int(device_bytes[device] * _SHARED_MEMORY) // count
        for device, count in users.items()
        if count > 1 and device in device_bytes
    }


def command(*arguments: str) -> tuple[str, ...]:
    """One of noidle's own commands, whatever folder it is started in."""
    return sys.executable, "-P", "-m", "ops", *arguments


def environment(settings: Settings, base: dict[str, str]) -> dict[str, str]:
    """For every child. The address travels here, where only its owner can read it."""
    return {
        **base,
        # before what the user has on the path, which may hold our dependencies
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), base.get("PYTHONPATH")))),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "NOIDLE_URL": settings.url,
        "NOIDLE_DATA_DIR": str(settings.data_dir),
        "NOIDLE_TEXT_DIR": str(settings.texts),
        "NOIDLE_HOST": settings.host,
    }


def valkey_spec(server: Valkey, base: dict[str, str]) -> ChildSpec:
    return ChildSpec(name="valkey", command=server.command, environment=base, grace_s=2 * _STOP_S)


def router_spec(settings: Settings, base: dict[str, str], orphan: signal.Signals) -> ChildSpec:
    return ChildSpec(
        name="router",
        command=command("router"),
        environment=environment(settings, base),
        grace_s=_STOP_S,
        orphan_signal=orphan,
    )


def flower_spec(
    settings: Settings, base: dict[str, str], port: int, orphan: signal.Signals
) -> ChildSpec:
    return ChildSpec(
        name="flower",
        command=command("flower", "--port", str(port)),
        environment=environment(settings, base),
        grace_s=_STOP_S,
        orphan_signal=orphan,
    )


def pool_specs(
    placement: Placement,
    options: UpOptions,
    settings: Settings,
    base: dict[str, str],
    orphan: signal.Signals,
    shares: Mapping[str, int],
) -> list[ChildSpec]:
    """One pool a device; one where the engine needs none.

    Args:
        shares: what `memory_shares` found.
    """
    return [
        ChildSpec(
            name=placement.engine if index == 0 else f"{placement.engine}.{index}",
            command=command("worker", *_pool_arguments(placement, options, index, shares)),
            environment=environment(settings, base),
            grace_s=settings.grace_s + _DRAIN_EXTRA_S,
            orphan_signal=orphan,
        )
        for index in range(max(1, len(placement.torch_devices)))
    ]


def _pool_arguments(
    placement: Placement, options: UpOptions, index: int, shares: Mapping[str, int]
) -> list[str]:
    engine = placement.engine
    # found already, so that no pool has to ask torch again
    device = placement.torch_devices[index] if placement.torch_devices else None
    named = {
        "--index": index or None,
        "--slots": options.slots.of(engine),
        "--threads": options.threads.of(engine),
        "--program": options.program.of(engine),
        "--device": device,
        "--memory-bytes": shares.get(device) if device else None,
    }
    arguments: list[str] = [engine]
    for name, value in named.items():
        if value is not None:
            arguments += [name, str(value)]
    for model in options.preload:
        arguments += ["--preload", model]
    return [*arguments, "--stand-in"] if placement.stand_in else arguments
