"""The cluster's settings: the one place that reads the environment.

Owns names, defaults and limits of every NOIDLE_ variable; knows nothing of what uses them."""

import difflib
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from engines.environment import Dtype
from noidle.errors import ConfigError, shorten
from noidle.fault import allowed

PREFIX = "NOIDLE_"
_HOST = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:64] or "localhost"


class Settings(BaseModel):
    """One field a variable: `lease_s` is NOIDLE_LEASE_S."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # redis:// or rediss:// with password and database number; never printed
    url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    # models, the embedded Valkey's file, logs
    data_dir: Path = Field(default=Path("~/.noidle"), validate_default=True)
    # training texts that jobs may name by path; absent: `text` in data_dir
    text_dir: Path | None = None
    # this host's name in pool names; must differ between hosts of one cluster
    host: str = Field(default_factory=_host_name)
    # jobs in flight a pool; absent: what suits the engine
    slots: int | None = Field(default=None, ge=1, le=1024)
    # cores a CPU engine may use; absent: all less a reserve
    threads: int | None = Field(default=None, ge=1, le=4096)
    # models that pools load at start, separated by commas
    preload: tuple[str, ...] = ()
    # how weights lie in memory; int8 and int4 are packed as they load, by the cpu engine alone;
    # absent: as they are stored, where the engine is quick with that
    dtype: Dtype | None = None
    # a claimed job that does not move this long is taken from its pool
    lease_s: float = Field(default=8.0, ge=1, le=3600)
    # what a pool that is told to stop leaves its jobs before it hands them back
    grace_s: float = Field(default=10.0, ge=0, le=3600)
    # a message taken by a worker that died comes back to its queue after this
    visibility_s: float = Field(default=5.0, ge=1, le=3600)
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("url")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("redis", "rediss") or not parts.hostname:
            raise ValueError("redis://[:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS")
        return value

    @field_validator("host")
    @classmethod
    def _host(cls, value: str) -> str:
        if not _HOST.match(value):
            raise ValueError("up to 64 letters, digits, dots, dashes and underscores")
        return value

    @field_validator("preload", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(name.strip() for name in value.split(",") if name.strip())
        return value

    @field_validator("data_dir", "text_dir")
    @classmethod
    def _path(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value else None

    @property
    def texts(self) -> Path:
        """The folder that a training job's path may not leave."""
        return self.text_dir or self.data_dir / "text"


def load_settings(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """Settings from the environment; what is `given` (and not None) goes before it.

    Raises:
        ConfigError: a variable is unknown or its value is not allowed.
    """
    found = os.environ if environment is None else environment
    fields = Settings.model_fields
    values: dict[str, Any] = {}
    for variable in sorted(name for name in found if name.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX).lower()
        if name not in fields or variable != variable.upper():
            raise _unknown(variable, found[variable])
        # as a compose file leaves a variable that is not set
        if found[variable]:
            values[name] = found[variable]
    values |= {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**values)
    except ValidationError as error:
        raise _refusal(error) from None


def _unknown(variable: str, value: str) -> ConfigError:
    known = [PREFIX + name.upper() for name in Settings.model_fields]
    close = difflib.get_close_matches(variable.upper(), known, n=1, cutoff=0.5)
    allowed = f"no such variable; did you mean {close[0]}?" if close else ", ".join(known)
    return _error(variable, value, allowed)


def _refusal(error: ValidationError) -> ConfigError:
    fault = error.errors(include_url=False)[0]
    name = str(fault["loc"][0])
    # an address may hold a password
    value = "…" if name == "url" else fault["input"]
    return _error(PREFIX + name.upper(), value, _allowed(name, fault))


def _allowed(name: str, fault: ErrorDetails) -> str:
    # a validator of ours says it in its own words
    if fault["type"] == "value_error":
        return fault["msg"].removeprefix("Value error, ")
    schema = Settings.model_json_schema()
    return allowed(schema["properties"][name], schema)


def _error(variable: str, value: object, allowed: str) -> ConfigError:
    shown = shorten(value)
    return ConfigError(
        f"{variable} = {shown}: allowed is {allowed}",
        variable=variable,
        value=shown,
        allowed=allowed,
    )
