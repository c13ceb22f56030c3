"""Connections to Redis or Valkey. Owns timeouts, retries, their bounds, and what an address
looks like in a message; knows nothing of jobs.

A connection waits `SOCKET_TIMEOUT_S` for an answer, so nothing may block longer than
`BLOCK_LIMIT_S` in one command: who waits longer asks again."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlencode, urlsplit

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, OutOfMemoryError, ReadOnlyError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from noidle.errors import ClusterUnavailable, ConfigError

SOCKET_TIMEOUT_S = 10.0
BLOCK_LIMIT_S = 5.0
RETRIES = 3
SCHEMES = ("redis", "rediss", "unix")
_HIDDEN = "***"
_SECRETS = frozenset({"password", "ssl_password"})
_CANNOT_SERVE = ("DB index is out of range", "MISCONF")
"""How errors begin that say no command of ours can be done, and that redis-py has no class for."""


def connect(url: str, *, max_connections: int = 64) -> redis.Redis:
    """A client with bounded connections, timeouts and retries; connects on first use.

    `url` may be `redis://`, `rediss://` (TLS, with redis-py's `ssl_…` options as its query) or
    `unix://`. A call retries a lost connection three times within about a second; noidle's
    scripts may run again without harm.

    Raises:
        ConfigError: the address cannot be understood.
    """
    if url.partition("://")[0] not in SCHEMES:
        raise _bad_url(url)
    try:
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=max_connections,
            timeout=SOCKET_TIMEOUT_S,
            decode_responses=True,
            # the scripts answer in single strings: the newer protocol would only cost a handshake
            protocol=2,
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=3.0,
            socket_keepalive=True,
            health_check_interval=15,
            retry=Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), RETRIES),
            retry_on_error=[RedisConnectionError, RedisTimeoutError],
        )
    except ValueError:
        raise _bad_url(url) from None
    return redis.Redis.from_pool(pool)


def safe_url(url: str) -> str:
    """The address as it may be shown: passwords replaced by ***."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return _HIDDEN
    if "://" not in url:
        return url.rpartition("@")[2]
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    hidden = f"{name}:{_HIDDEN}" if colon else name
    fields = parse_qsl(parts.query, keep_blank_values=True)
    shown = [(key, _HIDDEN if key in _SECRETS else value) for key, value in fields]
    query = f"?{urlencode(shown, safe='*/')}" if shown else ""
    return f"{parts.scheme}://{hidden}{at}{host}{parts.path}{query}"


def address(client: redis.Redis) -> str:
    """Where a client connects to, without its password."""
    options = client.get_connection_kwargs()
    if "path" in options:
        return f"unix://{options['path']}"
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


@contextmanager
def reachable(client: redis.Redis) -> Iterator[None]:
    """Turns what redis-py raises when the server is away into ClusterUnavailable."""
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError, ReadOnlyError) as error:
        place = address(client)
        raise ClusterUnavailable(
            f"Redis at {place} does not answer ({error}): check that it runs and that the"
            f" address and password are right",
            address=place,
        ) from error
    except ResponseError as error:
        if not _cannot_serve(error):
            raise
        place = address(client)
        raise ClusterUnavailable(
            f"Redis at {place} does not serve ({error}): make room for it on its disk or in its"
            " memory, or correct the address",
            address=place,
        ) from error


def _cannot_serve(error: ResponseError) -> bool:
    return isinstance(error, NoPermissionError | OutOfMemoryError) or str(error).startswith(
        _CANNOT_SERVE
    )


def _bad_url(url: str) -> ConfigError:
    shown = safe_url(url)
    allowed = "redis://[:password@]host[:port][/database], rediss:// for TLS, or unix://path"
    return ConfigError(
        f"url = {shown!r}: allowed is {allowed}", variable="url", value=shown, allowed=allowed
    )
