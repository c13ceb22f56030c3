"""noidle up: the whole cluster on this host, until Ctrl-C or `noidle down`."""

import sys
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from noidle.errors import ConfigError
from noidle.jobs import EngineName
from ops.commands import output
from ops.commands.options import Data, Json, Preload, Redis
from ops.detach import start_detached
from ops.local_cluster import run_cluster
from ops.plan import PerEngine, UpOptions
from ops.programs import find_program
from ops.view import JsonView, LiveView, PlainView, View
from workers.settings import load_settings

T = TypeVar("T")

_PER_ENGINE = "For every engine, or for one: cuda=16. May be repeated."


Engines = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Only these, separated by commas; default all here."),
]
StandIn = Annotated[
    bool,
    typer.Option(
        "--stand-in", help="Let the CPU play engines whose device is missing, and label them so."
    ),
]
Slots = Annotated[
    list[str] | None, typer.Option(metavar="N", help=f"Jobs in flight a pool. {_PER_ENGINE}")
]
Threads = Annotated[
    list[str] | None, typer.Option(metavar="N", help=f"Cores an engine uses. {_PER_ENGINE}")
]
Program = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help=f"Engine program: tensor, echo or a TOML. {_PER_ENGINE}"),
]
WithFlower = Annotated[bool, typer.Option("--flower/--no-flower", help="Whether to run Flower.")]
FlowerPort = Annotated[
    int | None, typer.Option(min=1, max=65535, help="Flower's port; default 5555, or a free one.")
]
Port = Annotated[
    int | None,
    typer.Option(min=1, max=65535, help="The embedded server's port; default a free one."),
]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Return once everything is up.")]


def up(
    data: Data = None,
    redis: Redis = None,
    engines: Engines = None,
    stand_in: StandIn = False,
    slots: Slots = None,
    threads: Threads = None,
    program: Program = None,
    preload: Preload = None,
    flower: WithFlower = True,
    flower_port: FlowerPort = None,
    port: Port = None,
    detach: Detach = False,
    json: Json = False,
) -> None:
    """Start everything on this host: Valkey, a router, a pool for each engine found, Flower.

    What dies is started again. Ctrl-C or `noidle down` ends it in order: pools finish their jobs
    or hand them back, and jobs that wait are kept for the next start.
    """
    settings = load_settings(data_dir=data, url=redis)
    options = UpOptions(
        # an address that was set counts, wherever it was set
        redis=settings.url if "url" in settings.model_fields_set else None,
        engines=_engines(engines),
        stand_in=stand_in,
        flower=flower,
        flower_port=flower_port,
        port=port,
        slots=_per_engine("--slots", slots, _positive),
        threads=_per_engine("--threads", threads, _positive),
        program=_per_engine("--program", program, _program),
        preload=tuple(preload or ()) or settings.preload,
    )
    if not detach:
        run_cluster(options, settings, _view(json))
    elif json:
        cluster = start_detached(options, settings, say=lambda _: None)
        output.as_json(cluster.model_dump(exclude={"url": True, "flower": {"password"}}))
    else:
        start_detached(options, settings, say=output.line)


def supervise() -> None:
    """What `noidle up --detach` leaves running; its options come on standard input."""
    options = UpOptions.model_validate_json(sys.stdin.read())
    run_cluster(options, load_settings(), PlainView())


def _view(json: bool) -> View:
    if json:
        return JsonView()
    return LiveView(output.terminal()) if sys.stdout.isatty() else PlainView()


def _engines(names: str | None) -> tuple[EngineName, ...] | None:
    if names is None:
        return None
    return tuple(_engine("--engines", name.strip()) for name in names.split(","))


def _engine(flag: str, name: str) -> EngineName:
    try:
        return EngineName(name)
    except ValueError:
        raise _refusal(flag, name, ", ".join(EngineName)) from None


def _per_engine(
    flag: str, values: list[str] | None, convert: Callable[[str, str], T]
) -> PerEngine[T]:
    every: T | None = None
    single: dict[EngineName, T] = {}
    for value in values or ():
        name, equals, rest = value.partition("=")
        if equals and name in set(EngineName):
            single[EngineName(name)] = convert(flag, rest)
        else:
            every = convert(flag, value)
    return PerEngine(every=every, single=single)


def _positive(flag: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise _refusal(flag, text, "a whole number from 1, or ENGINE=NUMBER")
    return int(text)


def _program(flag: str, text: str) -> str:  # noqa: ARG001  the declaration names itself
    find_program(text)
    return text


def _refusal(flag: str, value: str, allowed: str) -> ConfigError:
    return ConfigError(
        f"{flag} = {value!r}: allowed is {allowed}", variable=flag, value=value, allowed=allowed
    )
