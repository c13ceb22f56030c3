"""What a pool tells its engine through the environment, on both sides of it.

Owns the names, the writing and the only reading of NOIDLE_ variables in an engine process.
Knows nothing of tensors."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noidle.errors import ConfigError, shorten
from noidle.jobs import EngineName

PREFIX = "NOIDLE_"
Dtype = Literal["float32", "bfloat16", "int8", "int4"]
"""How weights lie in memory; the last two are packed: a code a weight, a scale a group."""


class EngineEnvironment(BaseModel):
    """One field a variable: `data_dir` is NOIDLE_DATA_DIR."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    engine: EngineName
    # models and their checkpoints
    data_dir: Path
    # training texts; a job's path may not leave it
    text_dir: Path
    # identity of the storage under data_dir
    storage: str
    # CPU threads
    threads: int = Field(default=1, ge=1, le=4096)
    # runs in flight at once
    slots: int = Field(default=1, ge=1, le=4096)
    # the CPU plays the accelerator
    stand_in: bool = False
    # absent: as stored where the engine is quick with that, else what suits the device
    dtype: Dtype | None = None
    # as torch names it, such as cuda:1; absent: the first of the engine's kind
    device: str | None = None
    # for weights and cache; absent: what the device or host has free, less a reserve
    memory_bytes: int | None = Field(default=None, ge=1)
    # models to load at start
    preload: tuple[str, ...] = ()

    def variables(self) -> dict[str, str]:
        """As an environment; what is absent is left out."""
        written = {name: _written(value) for name, value in self if value is not None}
        return {PREFIX + name.upper(): value for name, value in written.items()}

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> "EngineEnvironment":
        """
        Raises:
            ConfigError: a variable is unknown, missing or wrong.
        """
        values: dict[str, Any] = {}
        for variable in (name for name in environment if name.startswith(PREFIX)):
            name = variable.removeprefix(PREFIX).lower()
            if name not in cls.model_fields:
                raise _unknown(variable, environment[variable])
            values[name] = environment[variable]
        if "preload" in values:
            values["preload"] = tuple(filter(None, values["preload"].split(",")))
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            name = PREFIX + str(fault["loc"][0]).upper()
            raise _refusal(name, fault["input"], fault["msg"]) from None


def _written(value: object) -> str:
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, bool):
        return "1" if value else "0"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _unknown(variable: str, value: str) -> ConfigError:
    known = [PREFIX + name.upper() for name in EngineEnvironment.model_fields]
    close = difflib.get_close_matches(variable, known, n=1)
    return _refusal(variable, value, f"no such variable; did you mean {(close or known)[0]}?")


def _refusal(variable: str, value: object, allowed: str) -> ConfigError:
    shown = shorten(value)
    message = f"{variable} = {shown}: {allowed}"
    return ConfigError(message, variable=variable, value=shown, allowed=allowed)
