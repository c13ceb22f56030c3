"""Jobs and pools for the policy's tables, with figures that are easy to reckon with.

A default pool reads 1,000 prompt tokens a second and decodes 10 tokens a second whatever the
batch; a default job has a prompt of no weight and 10 tokens to generate: it takes 1 s."""

from typing import Any

from noidle.jobs import EngineName, JobClass
from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState, Rates
from routing.board import HeldJob, PoolLoad
from routing.cluster import Cluster, Promise

NOW_MS = 1_800_000_000_000
STORAGE = "disk-1"
MODEL = ModelInfo(
    name="mini", revision="step-000010-aa", storage=STORAGE, context=4096, bytes_per_token=4.0
)
_ids = iter(range(10**9))


def make_job(**fields: Any) -> HeldJob:
    """A standard generate job that was accepted a moment ago, after those made before it."""
    number = next(_ids)
    values: dict[str, Any] = {
        "id": f"job-{number}",
        "kind": "generate",
        "model": "mini",
        "job_class": JobClass.STANDARD,
        "engine": None,
        "label": None,
        "prompt_bytes": 0,
        "max_tokens": 10,
        "storage": None,
        "accepted_ms": NOW_MS - 1000,
        "held_since_ms": NOW_MS - 1000,
        "order": float(number),
    }
    if fields.get("kind") == "train":
        values |= {"job_class": JobClass.BACKGROUND, "max_tokens": 0, "order": 0.0}
    return HeldJob(**(values | fields))


def make_pool(pool: str = "cpu@a", **fields: Any) -> PoolSnapshot:
    """A ready pool with the model in memory; `tokens_per_s` is short for its decode rate."""
    name, _, host = pool.partition("@")
    tokens_per_s = fields.pop("tokens_per_s", 10.0)
    rates = Rates(
        prefill_tokens_per_s=1000.0,
        step_s=1 / tokens_per_s,
        step_s_per_sequence=0.0,
        load_bytes_per_s=1e9,
        train_tokens_per_s=fields.pop("train_tokens_per_s", None),
    )
    values: dict[str, Any] = {
        "pool": pool,
        "engine": EngineName(name.partition(".")[0]),
        "host": host,
        "device": name,
        "slots": 1,
        "state": PoolState.READY,
        "models": ("mini",),
        "loaded": ("mini",),
        "storage": STORAGE,
        "rates": rates,
        "published_ms": NOW_MS - 500,
    }
    return PoolSnapshot(**(values | fields))


def make_promise(pool: str, ends_s: float, **fields: Any) -> Promise:
    """A lease made a second ago that ends in `ends_s`."""
    values: dict[str, Any] = {
        "job": f"running-{next(_ids)}",
        "pool": pool,
        "kind": "generate",
        "model": "mini",
        "leased_ms": NOW_MS - 1000,
        "ready_ms": NOW_MS - 1000,
        "ends_ms": NOW_MS + int(ends_s * 1000),
    }
    return Promise(**(values | fields))


def make_cluster(*pools: PoolSnapshot, running: tuple[Promise, ...] = (), **fields: Any) -> Cluster:
    """The pools, with what runs in them counted from `running` unless `loads` says else."""
    promises: dict[str, tuple[Promise, ...]] = {}
    for promise in running:
        promises[promise.pool] = (*promises.get(promise.pool, ()), promise)
    values: dict[str, Any] = {
        "pools": pools,
        "loads": {pool: PoolLoad(in_flight=len(made)) for pool, made in promises.items()},
        "models": {"mini": MODEL},
        "promises": promises,
    }
    return Cluster(**(values | fields))
