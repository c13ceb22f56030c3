"""Which Redis the host's cluster uses: a Valkey of our own, or one elsewhere."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from noidle.connection import safe_url
from ops import plan, valkey
from ops.child import ChildSpec
from ops.data_dir import DataDir
from ops.plan import UpOptions
from ops.startup import failure, wait_until
from ops.supervisor import Supervisor
from ops.wakeup import Wakeup

# a large append-only file takes its time to load
_START_S = 120.0
_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRedis:
    """Where it is, and the process to start for it, if it is ours."""

    url: str
    spec: ChildSpec | None
    port: int | None = None

    @property
    def embedded(self) -> bool:
        return self.spec is not None

    @property
    def orphan(self) -> signal.Signals:
        """What its users get when the supervisor dies: with a server of our own there is nobody
        left to hand jobs back to, so leases bring them back at the next start."""
        return signal.SIGKILL if self.embedded else signal.SIGTERM


def find_redis(options: UpOptions, data: DataDir) -> LocalRedis:
    """
    Raises:
        ConfigError: no server program, or the wanted port is taken.
    """
    if options.redis is not None:
        return LocalRedis(url=options.redis, spec=None)
    server = valkey.prepare(data, options.port)
    spec = plan.valkey_spec(server, dict(os.environ))
    return LocalRedis(url=server.url, spec=spec, port=server.port)


def start_redis(
    source: LocalRedis, supervisor: Supervisor, wakeup: Wakeup, say: Callable[[str], None]
) -> None:
    """Returns once a server of our own answers; one elsewhere is left as it is.

    Raises:
        StartFailed: it does not come up.
    """
    if source.spec is None:
        say(f"using Redis at {safe_url(source.url)}")
        return
    supervisor.start(source.spec)
    with impatient_client(source.url) as client:
        if not wait_until(lambda: _answers(client), supervisor, wakeup, limit_s=_START_S):
            raise failure(supervisor, source.spec.name, f"did not answer in {_START_S:.0f} s")


def impatient_client(url: str) -> redis.Redis:
    """For the supervisor's looks: it must not hang while Redis is away."""
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
