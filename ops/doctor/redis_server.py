"""Checks a Redis or Valkey server for what noidle needs of it. Reads only INFO, TIME and PING,
which managed servers allow too."""

import ipaddress
import statistics
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import redis

from noidle.connection import safe_url
from noidle.errors import ConfigError
from ops.doctor.check import Area, Check, failures

_AREA = Area("redis")
_TIMEOUT_S = 5.0
# scripts declare their flags in a first line that older servers cannot read
_OLDEST = (7, 0)
_PINGS = 7
_SLOW_MS = 5.0
_SKEW_S = 1.0
# a pool or router keeps about twelve connections
_LEAST_CLIENTS = 200
_CLIENTS_SHARE = 0.7
# acceptance closes at this share of maxmemory
_FULL_SHARE = 0.8
_NO_EVICTION = "set `maxmemory-policy noeviction` in its configuration (now: CONFIG SET)"

Info = dict[str, Any]


def check_redis(url: str, clock: Callable[[], float] = time.time) -> list[Check]:
    """All findings about the server at `url`; the address is shown without its password.

    Args:
        clock: this host's wall clock, in seconds.
    """
    try:
        client = redis.Redis.from_url(
            url,
            decode_responses=True,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
        )
    except ValueError as error:
        remedy = "use redis://[:PASSWORD@]HOST:PORT/DATABASE, or rediss:// for TLS"
        return [_AREA.fail("address", str(error), remedy)]
    with client:
        try:
            info: Info = client.info()
            return [
                _AREA.ok("reachable", f"{safe_url(url)} answers"),
                *_server(info),
                *_keeping(info),
                _clock(client, clock),
                _latency(client),
                _connections(info),
                *_exposure(url),
            ]
        except redis.RedisError as error:
            return [_unreachable(url, error)]


def require_redis(url: str) -> None:
    """Stops a start that would end badly.

    Raises:
        ConfigError: the first finding that must be put right, with its remedy.
    """
    for check in failures(check_redis(url)):
        raise ConfigError(
            f"Redis at {safe_url(url)}: {check.name}: {check.found}; {check.remedy}",
            variable="NOIDLE_URL",
            value=safe_url(url),
        )


def _unreachable(url: str, error: redis.RedisError) -> Check:
    if isinstance(error, redis.AuthenticationError):
        remedy = "put the right password into the address: redis://:PASSWORD@HOST:PORT/0"
        return _AREA.fail("reachable", f"{safe_url(url)} refuses the password", remedy)
    if isinstance(error, redis.BusyLoadingError):
        remedy = "wait until it has loaded its data"
        return _AREA.fail("reachable", f"{safe_url(url)} is loading its data", remedy)
    remedy = "start it, or correct NOIDLE_URL; `noidle up` brings a server of its own"
    reason = str(error).rstrip(".")
    return _AREA.fail("reachable", f"{safe_url(url)} does not answer: {reason}", remedy)


def _server(info: Info) -> list[Check]:
    return [_version(info), _mode(info), _role(info)]


def _version(info: Info) -> Check:
    if "valkey_version" in info:
        return _AREA.ok("version", f"Valkey {info['valkey_version']}")
    text = str(info.get("redis_version", "unknown"))
    parts = tuple(int(part) for part in text.split(".")[:2] if part.isdigit())
    if parts < _OLDEST:
        remedy = "use Redis 7.0 or newer, or Valkey"
        return _AREA.fail("version", f"Redis {text}", remedy)
    return _AREA.ok("version", f"Redis {text}")


def _mode(info: Info) -> Check:
    if info.get("cluster_enabled"):
        remedy = "use one server without cluster mode: a step touches keys of several jobs at once"
        return _AREA.fail("cluster mode", "is on", remedy)
    return _AREA.ok("cluster mode", "is off")


def _role(info: Info) -> Check:
    if info.get("role") == "slave":
        remedy = f"use its primary, {info.get('master_host')}:{info.get('master_port')}"
        return _AREA.fail("role", "is a replica, which refuses writes", remedy)
    return _AREA.ok("role", "is a primary")


def _keeping(info: Info) -> list[Check]:
    """Whether what is written stays."""
    return [_eviction(info), _memory(info), _persistence(info)]


def _eviction(info: Info) -> Check:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return _AREA.ok("eviction", policy)
    if info.get("maxmemory"):
        return _AREA.fail("eviction", f"{policy}: jobs and queues can be dropped", _NO_EVICTION)
    return _AREA.warn("eviction", f"{policy}, without effect while maxmemory is 0", _NO_EVICTION)


def _memory(info: Info) -> Check:
    limit, used = int(info.get("maxmemory") or 0), int(info.get("used_memory") or 0)
    if not limit:
        remedy = "set maxmemory, so that jobs are refused before the host runs out of memory"
        return _AREA.warn("memory", f"{used >> 20} MiB used, no limit", remedy)
    found = f"{used >> 20} of {limit >> 20} MiB used"
    if used > limit * _FULL_SHARE:
        remedy = "raise maxmemory, or wait for results to expire: no job is accepted above 80 %"
        return _AREA.fail("memory", found, remedy)
    return _AREA.ok("memory", found)


def _persistence(info: Info) -> Check:
    if not info.get("aof_enabled"):
        remedy = "set `appendonly yes` and `appendfsync everysec`: a restart loses jobs without"
        return _AREA.warn("persistence", "no append-only file", remedy)
    if info.get("aof_last_write_status") != "ok":
        remedy = "look at the server's log and its disk"
        return _AREA.fail("persistence", "the last write to the append-only file failed", remedy)
    return _AREA.ok("persistence", "append-only file")


def _clock(client: redis.Redis, clock: Callable[[], float]) -> Check:
    before_s = clock()
    seconds, microseconds = client.time()
    skew_s = seconds + microseconds / 1e6 - (before_s + clock()) / 2
    found = f"{abs(skew_s):.3f} s {'ahead of' if skew_s > 0 else 'behind'} this host"
    if abs(skew_s) > _SKEW_S:
        remedy = "run a time service on both hosts; leases use Redis's clock alone and stay right"
        return _AREA.warn("clock", found, remedy)
    return _AREA.ok("clock", found)


def _latency(client: redis.Redis) -> Check:
    times_ms = []
    for _ in range(_PINGS):
        began_s = time.perf_counter()
        client.ping()
        times_ms.append((time.perf_counter() - began_s) * 1000)
    median_ms = statistics.median(times_ms)
    if median_ms > _SLOW_MS:
        remedy = "bring Redis nearer: each token batch of a pool waits for one round trip"
        return _AREA.warn("latency", f"{median_ms:.1f} ms", remedy)
    return _AREA.ok("latency", f"{median_ms:.2f} ms")


def _connections(info: Info) -> Check:
    used, limit = int(info.get("connected_clients", 0)), int(info.get("maxclients", 0))
    found = f"{used} of {limit or 'unknown'}"
    if limit and (limit < _LEAST_CLIENTS or used > limit * _CLIENTS_SHARE):
        remedy = "raise maxclients: each pool, router and Flower keeps about 12 connections"
        return _AREA.warn("connections", found, remedy)
    return _AREA.ok("connections", found)


def _exposure(url: str) -> list[Check]:
    """Password and encryption, where other hosts can reach the server."""
    parts = urlsplit(url)
    if _is_loopback(parts.hostname):
        return []
    checks = []
    if not parts.password:
        remedy = "set requirepass there and put the password into the address"
        grade = _AREA.fail if _is_public(parts.hostname) else _AREA.warn
        checks.append(grade("password", f"none at {parts.hostname}", remedy))
    if parts.scheme != "rediss":
        remedy = "use rediss:// outside a network that only the cluster's hosts share"
        checks.append(_AREA.warn("encryption", "jobs and results travel in the clear", remedy))
    return checks


def _is_loopback(host: str | None) -> bool:
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_public(host: str | None) -> bool:
    try:
        return ipaddress.ip_address(host or "").is_global
    except ValueError:
        return False
