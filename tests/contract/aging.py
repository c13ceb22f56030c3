"""Lets time pass in Redis: moves every moment that the board keeps there into the past."""

from typing import cast

import redis

from noidle import keys

MOMENTS = (
    "accepted",
    "held_since",
    "leased",
    "claimed",
    "first",
    "ended",
    "expires_at",
    "cause_at",
    "at",
)


def age(client: redis.Redis, milliseconds: float) -> None:
    """Makes everything the board keeps that much older."""
    for key in cast("list[str]", client.keys("*")):
        if key.startswith(f"{keys.PREFIX}held:"):
            continue
        match client.type(key):
            case "zset":
                for member in client.zrange(key, 0, -1):
                    client.zincrby(key, -milliseconds, member)
            case "hash" if key.endswith(":leases"):
                _age_leases(client, key, milliseconds)
            case "hash":
                _age_record(client, key, milliseconds)
            case "string" if key.endswith(":shared"):
                moment = float(cast("str", client.get(key)))
                client.set(key, repr(moment - milliseconds), keepttl=True)
        left = cast("int", client.pttl(key))
        if left > 0:
            client.pexpire(key, max(0, int(left - milliseconds)))


def _age_leases(client: redis.Redis, key: str, milliseconds: float) -> None:
    for job_id, entry in cast("dict[str, str]", client.hgetall(key)).items():
        *rest, claimed = entry.split(" ")
        if float(claimed):
            client.hset(key, job_id, " ".join([*rest, repr(float(claimed) - milliseconds)]))


def _age_record(client: redis.Redis, key: str, milliseconds: float) -> None:
    for name in MOMENTS:
        moment = cast("str | None", client.hget(key, name))
        if moment:
            client.hset(key, name, repr(float(moment) - milliseconds))
