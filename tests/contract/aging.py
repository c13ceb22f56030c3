"""Lets time pass in Redis: moves every moment that the board keeps there into the past."""

from typing import Any, cast

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
    """Makes everything the board keeps that much older, in four round trips."""
    found = cast("list[str]", client.keys("*"))
    names = [key for key in found if not key.startswith(f"{keys.PREFIX}held:")]
    with client.pipeline(transaction=False) as pipe:
        for key in names:
            pipe.type(key)
            pipe.pttl(key)
        answers = pipe.execute()
    kinds, left = answers[::2], answers[1::2]
    with client.pipeline(transaction=False) as pipe:
        for key, kind in zip(names, kinds, strict=True):
            _read(pipe, key, kind)
        contents = pipe.execute()
    with client.pipeline(transaction=False) as pipe:
        for key, kind, content, ms in zip(names, kinds, contents, left, strict=True):
            _age(pipe, key, kind, content, milliseconds)
            if ms > 0:
                pipe.pexpire(key, max(0, int(ms - milliseconds)))
        pipe.execute()


def _read(pipe: Any, key: str, kind: str) -> None:
    match kind:
        case "zset":
            pipe.zrange(key, 0, -1)
        case "hash":
            pipe.hgetall(key)
        case "string" if key.endswith(":shared"):
            pipe.get(key)
        case _:
            pipe.exists(key)


def _age(pipe: Any, key: str, kind: str, content: Any, milliseconds: float) -> None:
    match kind:
        case "zset":
            for member in content:
                pipe.zincrby(key, -milliseconds, member)
        case "hash" if key.endswith(":leases"):
            for job_id, entry in content.items():
                *rest, claimed = entry.split(" ")
                if float(claimed):
                    moved = repr(float(claimed) - milliseconds)
                    pipe.hset(key, job_id, " ".join([*rest, moved]))
        case "hash":
            for name in MOMENTS:
                if content.get(name):
                    pipe.hset(key, name, repr(float(content[name]) - milliseconds))
        case "string" if key.endswith(":shared"):
            pipe.set(key, repr(float(content) - milliseconds), keepttl=True)
