"""The cluster's verbs as one typer application; `noidle` and `python -m ops` run it. Owns the
list of verbs and the exit status of errors."""

import importlib
from typing import Any

import typer
from typer.core import TyperGroup

from noidle.errors import (
    CheckpointError,
    ClusterUnavailable,
    ConfigError,
    InvalidJob,
    NoidleError,
)
from ops.commands import output

_WRONG = 2
_UNREACHABLE = 4
_FAILED = 1
_INTERRUPTED = 130


VERBS = {
    name: f"ops.commands.{name}"
    for name in (
        "up",
        "down",
        "status",
        "jobs",
        "logs",
        "worker",
        "router",
        "flower",
        "doctor",
        "demo",
        "simulate",
        "profile",
        "weights",
        "model",
        "run",
    )
}
"""Each verb's module, which holds a function of the same name, or an application of further
verbs."""
_HIDDEN = {"supervise": "ops.commands.up"}
# typer keeps click's errors inside itself or beside it, by version
_UsageError: Any = typer.BadParameter.__bases__[0]


class _Verbs(TyperGroup):
    """Loads a verb when it is asked for: a pool must not carry Flower's and rich's memory.

    Contexts and commands are Any: typer keeps click inside itself or beside it, by version.
    """

    def list_commands(self, _: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, _: Any, cmd_name: str) -> Any:
        module = {**VERBS, **_HIDDEN}.get(cmd_name)
        if module is None:
            return None
        found = getattr(importlib.import_module(module), cmd_name)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name=cmd_name)(found)
        return typer.main.get_command(single)

    def invoke(self, ctx: Any) -> Any:
        """Turns errors meant for people into one line and an exit status."""
        try:
            return super().invoke(ctx)
        except NoidleError as error:
            output.error(str(error))
            raise typer.Exit(exit_status(error)) from None
        except _UsageError as error:
            where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
            output.error(f"{error.format_message()}{where}")
            raise typer.Exit(_WRONG) from None
        except KeyboardInterrupt:
            raise typer.Exit(_INTERRUPTED) from None


app = typer.Typer(
    cls=_Verbs, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


@app.callback()
def noidle() -> None:
    """Keep neither CPU nor GPU idle: the cluster's verbs."""


def exit_status(error: NoidleError) -> int:
    """2 for a wrong setting, text or model, 4 where Redis cannot be reached, 1 for the rest."""
    if isinstance(error, ConfigError | InvalidJob | CheckpointError):
        return _WRONG
    return _UNREACHABLE if isinstance(error, ClusterUnavailable) else _FAILED
