"""Addresses and errors of the connection; what needs a server stands under tests/integration."""

import pytest
import redis
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
)

from noidle.connection import BLOCK_LIMIT_S, SOCKET_TIMEOUT_S, connect, reachable, safe_url
from noidle.errors import ClusterUnavailable, ConfigError


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://:secret@host/1", "redis://:***@host/1"),
        ("redis://me:se:cr@et@host/1", "redis://me:***@host/1"),
        ("rediss://h?ssl_cert_reqs=none&password=s", "rediss://h?ssl_cert_reqs=none&password=***"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock?db=1"),
        ("unix://:secret@/run/redis.sock", "unix://:***@/run/redis.sock"),
        ("redis://[::1", "***"),
        ("host:6379", "host:6379"),
        ("secret@host", "host"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert safe_url(url) == shown


@pytest.mark.parametrize(
    "url", ["", "host:6379", "amqp://:secret@host", "redis://:secret@host:port", "redis://[::1"]
)
def test_an_address_that_cannot_be_understood_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match="redis://") as raised:
        connect(url)
    assert "secret" not in str(raised.value)


def test_tls_comes_from_the_address() -> None:
    client = connect("rediss://host:1?ssl_cert_reqs=none&ssl_ca_certs=/ca.pem")
    assert client.connection_pool.connection_class is redis.SSLConnection
    assert client.get_connection_kwargs()["ssl_ca_certs"] == "/ca.pem"


def test_connections_are_bounded_and_outwait_every_blocking_command() -> None:
    client = connect("redis://host", max_connections=3)
    assert client.connection_pool.max_connections == 3
    assert client.get_connection_kwargs()["socket_timeout"] == SOCKET_TIMEOUT_S > BLOCK_LIMIT_S


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("refused"),
        redis.TimeoutError("too slow"),
        BusyLoadingError("loading"),
        ReadOnlyError("a replica"),
        AuthenticationError("wrong password"),
        # a full disk, a full memory, a wrong database or user once ended in a traceback
        redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
        redis.ResponseError("DB index is out of range"),
        OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
        NoPermissionError("this user has no permissions to run the 'evalsha' command"),
    ],
)
def test_a_server_that_cannot_be_used_is_named(error: Exception) -> None:
    with (
        pytest.raises(ClusterUnavailable, match="Redis at host:7") as raised,
        reachable(connect("redis://:secret@host:7")),
    ):
        raise error
    assert raised.value.address == "host:7"
    assert "secret" not in str(raised.value)


def test_other_errors_of_redis_are_not_hidden() -> None:
    with pytest.raises(redis.ResponseError), reachable(connect("redis://host")):
        raise redis.ResponseError("wrong type")


def test_a_socket_is_named_by_its_path() -> None:
    with (
        pytest.raises(ClusterUnavailable, match=r"unix:///run/redis\.sock"),
        reachable(connect("unix:///run/redis.sock")),
    ):
        raise redis.ConnectionError("no such file")
