"""Described clusters and requests with figures that are easy to reckon with."""

from typing import Any

from noidle.jobs import JobClass
from routing.simulation.described import Described, DescribedPool
from routing.simulation.request import Fate, Request


def make_described(*pools: DescribedPool, **fields: Any) -> Described:
    return Described(**{"context": 4096, "pools": pools or (describe_pool(),)} | fields)


def describe_pool(pool: str = "cpu@a", **fields: Any) -> DescribedPool:
    """Reads 1,000 prompt tokens a second; one slot that makes 10 tokens a second."""
    values: dict[str, Any] = {
        "pool": pool,
        "reason": "a test",
        "slots": 1,
        "kv_tokens": 100_000,
        "prefill_tokens_per_s": 1000.0,
        "step_s": 0.1,
        "step_s_per_sequence": 0.0,
        "chunk_tokens": 100,
    }
    return DescribedPool(**values | fields)


def make_request(number: int = 0, **fields: Any) -> Request:
    """100 tokens to read, 10 to make: 1.1 s on the default pool."""
    values: dict[str, Any] = {
        "number": number,
        "arrive_s": 0.0,
        "prompt": 100,
        "output": 10,
        "job_class": JobClass.STANDARD,
        "label": "north",
    }
    return Request(**values | fields)


def make_fate(number: int = 0, **fields: Any) -> Fate:
    """Ran in pool 0 from 0 to 1.1 s."""
    own = {
        key: fields.pop(key) for key in ("pool", "start_s", "first_s", "finish_s") if key in fields
    }
    predicted_s = fields.pop("predicted_s", None)
    values: dict[str, Any] = {"pool": 0, "start_s": 0.0, "first_s": 0.2, "finish_s": 1.1} | own
    return Fate(request=make_request(number, **fields), predicted_s=predicted_s, **values)
