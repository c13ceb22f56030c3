"""The cluster at one moment, for people: pools, held jobs, router. A wire model, so that
`--json` prints the same. Reads the board and a few keys; changes nothing."""

from typing import Any, Protocol

import redis
from pydantic import BaseModel, ConfigDict

from noidle import keys
from noidle.connection import reachable
from noidle.jobs import JobClass
from noidle.snapshot import PoolDetail, PoolSnapshot, RouterDetail


class Observed(Protocol):
    """The part of the board that is looked at."""

    def pools(self) -> list[PoolSnapshot]: ...

    def details(self) -> list[PoolDetail]: ...


class Overview(BaseModel):
    """What runs, and what waits."""

    model_config = ConfigDict(frozen=True)

    # the router whose pump decides now; absent: none does, and held jobs stay held
    router: str | None
    pools: tuple[PoolSnapshot, ...]
    # by pool; a pool that has published no details yet is absent
    details: dict[str, PoolDetail]
    # by class, only those that are not 0
    held: dict[JobClass, int]
    # messages of leases that a pool has not taken yet, by pool
    queued: dict[str, int]
    # leased or running
    in_flight: int
    # messages on the way to a router
    arriving: int
    # why no job is accepted now; absent: jobs are accepted
    closed: str | None
    # what the router that decides learned, such as how far its predictions were off
    routing: RouterDetail | None = None


def look(board: Observed, client: redis.Redis) -> Overview:
    """
    Raises:
        ClusterUnavailable: Redis does not answer.
    """
    pools = sorted(board.pools(), key=lambda pool: pool.pool)
    details = {detail.snapshot.pool: detail for detail in board.details()}
    with reachable(client):
        sets, pump, leases, arriving, closed, told = _ask(client)
        held = _held(client, sorted(sets))
        queued = _queued(client, pools)
    return Overview(
        router=_router(pump),
        pools=tuple(pools),
        details=details,
        held=held,
        queued=queued,
        in_flight=leases,
        arriving=arriving,
        closed=closed,
        routing=RouterDetail.model_validate_json(told) if told else None,
    )


def _ask(client: redis.Redis) -> list[Any]:
    with client.pipeline(transaction=False) as ask:
        ask.smembers(keys.HELD_SETS)
        ask.get(keys.PUMP)
        ask.zcard(keys.LEASES)
        ask.llen(keys.ROUTE_QUEUE)
        ask.get(keys.FULL)
        ask.get(keys.ROUTER)
        return ask.execute()


def _held(client: redis.Redis, sets: list[str]) -> dict[JobClass, int]:
    """`sets`: names such as `interactive:generate|echo|*|*|7`."""
    names = [name.split(":", 1) for name in sets]
    with client.pipeline(transaction=False) as ask:
        for job_class, requirement in names:
            ask.zcard(keys.held(job_class, requirement))
        counts = ask.execute()
    held: dict[JobClass, int] = {}
    for (job_class, _), count in zip(names, counts, strict=True):
        held[JobClass(job_class)] = held.get(JobClass(job_class), 0) + count
    return {name: held[name] for name in JobClass if held.get(name)}


def _queued(client: redis.Redis, pools: list[PoolSnapshot]) -> dict[str, int]:
    """In the pool's own queue and, where it is its engine's only pool, in the engine's."""
    engines = [pool.engine for pool in pools]
    with client.pipeline(transaction=False) as ask:
        for pool in pools:
            ask.llen(pool.pool)
            ask.llen(pool.engine)
        counts = ask.execute()
    return {
        pool.pool: own + (shared if engines.count(pool.engine) == 1 else 0)
        for pool, own, shared in zip(pools, counts[::2], counts[1::2], strict=True)
    }


def _router(pump: str | None) -> str | None:
    """The key holds the fence number, then the router's name."""
    return pump.partition(" ")[2] if pump else None
