"""Which job goes where: the decision itself, a pure function of jobs, cluster and time.

Owns the look at all jobs in their order and what each choice takes from the next; gate,
forecast and order are its neighbours. Does no I/O, so that a simulation can replay it."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from noidle.jobs import EngineName
from noidle.snapshot import ModelInfo, PoolState, Pressure
from routing.board import HeldJob, PoolLoad
from routing.cluster import Cluster
from routing.forecast import forecast, ready_s
from routing.gate import Refused, kv_too_small, refusal, too_long
from routing.order import in_order
from routing.outlook import Lane, Outlook
from routing.placement import Action, Cause, Forecast, Grant, Need, Placement, Scene
from routing.prediction import kv_tokens, prompt_tokens

WAITING_SHOWN = 64
"""Once nothing is free, so many more jobs are looked at, to say why they wait."""
_IDLE = PoolLoad()


def decide(jobs: Iterable[HeldJob], cluster: Cluster, now_ms: int) -> list[Placement]:
    """One look at all held jobs, in the order they are served.

    Each job goes where it is predicted to end first. If that pool is full and waiting for it
    still beats what is free, the job waits, and its slot is taken out of what the jobs behind
    it see. A job that no pool can run takes nothing from anybody.
    """
    return _Decider(cluster, now_ms).decide(in_order(jobs))


class _Decider:
    """The state of one look."""

    def __init__(self, cluster: Cluster, now_ms: int) -> None:
        self.cluster = cluster
        self.looks = [
            Outlook(
                pool,
                cluster.loads.get(pool.pool, _IDLE),
                cluster.promises.get(pool.pool, ()),
                cluster.models,
                now_ms,
            )
            for pool in cluster.pools
        ]
        self.free = sum(look.free for look in self.looks if _takes(look))
        self.shared = _shared(cluster)
        self.scenes: dict[tuple[str, str, EngineName | None, str | None], Scene] = {}
        self.lanes: dict[tuple[str, str, bool], Lane] = {}

    def decide(self, jobs: Sequence[HeldJob]) -> list[Placement]:
        placements = []
        waiting = 0
        for job in jobs:
            if self.free <= 0:
                waiting += 1
            if waiting > WAITING_SHOWN:
                placements.append(Placement(job=job, action=Action.WAIT))
            else:
                placements.append(self.place(job))
        return placements

    def place(self, job: HeldJob) -> Placement:
        key = (job.kind, job.model, job.engine, job.storage)
        scene = self.scenes.get(key)
        if scene is None:
            scene = self.scenes[key] = self.scene(job)
        prompt = prompt_tokens(job.prompt_bytes, scene.model)
        training = job.kind == "train"
        need = Need(prompt, 0 if training else kv_tokens(prompt, job.max_tokens, scene.model))
        lanes, refused = scene.lanes, scene.refused
        if need.kv_tokens > scene.kv_least or job.max_tokens >= scene.context:
            lanes, refused = _fitting(job, scene, need)
        if not lanes:
            lasting = all(one.lasting for one in refused.values())
            action = Action.UNPLACEABLE if lasting else Action.WAIT
            return Placement(job, action, scene, need, refused=refused)
        forecasts, best = forecast(job, scene, lanes, need)
        grant = None
        if forecasts[best][2] is Cause.FREE:
            grant = self.grant(job, lanes[best], forecasts[best], need)
        else:
            _wait(job, lanes[best].look, forecasts[best], need)
        action = Action.LEASE if grant else Action.WAIT
        return Placement(job, action, scene, need, lanes, forecasts, best, refused, grant)

    def grant(self, job: HeldJob, lane: Lane, chosen: Forecast, need: Need) -> Grant:
        """Takes the slot; what comes after sees one less."""
        look = lane.look
        free = look.free
        memory_bytes = lane.load_bytes + need.kv_tokens * lane.kv_bytes
        ready = ready_s(lane, 0.0)
        lane.will_load(ready)
        look.start(chosen[0], need.kv_tokens, memory_bytes, alone=job.alone)
        if job.kind == "train":
            look.training_s = chosen[0]
        self.free -= free - look.free
        return Grant(
            queue=look.pool.pool if look.pool.engine in self.shared else look.pool.engine.value,
            memory_bytes=memory_bytes,
            memory_limit=look.memory_limit if memory_bytes else None,
            kv_tokens_total=look.pool.kv_tokens_total if lane.kv_counts else None,
            ready_s=ready,
        )

    def scene(self, job: HeldJob) -> Scene:
        """Gate and speeds, once for all jobs that are alike in what the gate asks."""
        model = self.cluster.models.get(job.model) or ModelInfo(name=job.model)
        lanes = []
        refused = {}
        for look in self.looks:
            no = refusal(job, look.pool, model, look.room)
            if no is None:
                lanes.append(self.lane(job, look, model))
            else:
                refused[look.pool.pool] = no
        return Scene(
            model=model,
            lanes=lanes,
            refused=refused,
            kv_least=min((lane.kv_limit for lane in lanes), default=0),
            context=model.context or math.inf,
            train_tokens_per_s=max((lane.train_tokens_per_s for lane in lanes), default=1),
        )

    def lane(self, job: HeldJob, look: Outlook, model: ModelInfo) -> Lane:
        key = (look.pool.pool, model.name, job.kind == "train")
        lane = self.lanes.get(key)
        if lane is None:
            promises = self.cluster.promises.get(look.pool.pool, ())
            lane = self.lanes[key] = Lane(look, job, model, promises)
        return lane


def _takes(look: Outlook) -> bool:
    return look.pool.state is PoolState.READY and look.pool.pressure is not Pressure.HARD


def _shared(cluster: Cluster) -> frozenset[EngineName]:
    """Engines whose queue several pools consume: only a pool's own queue enforces a choice."""
    counts = Counter(pool.engine for pool in cluster.pools)
    return cluster.shared | {engine for engine, count in counts.items() if count > 1}


def _fitting(
    job: HeldJob, scene: Scene, need: Need
) -> tuple[Sequence[Lane], Mapping[str, Refused]]:
    """The lanes left for a job that is too long for some of them."""
    long = too_long(job, scene.model)
    refused = dict(scene.refused)
    lanes = []
    for lane in scene.lanes:
        pool = lane.look.pool
        if long is not None:
            refused[pool.pool] = long
        elif need.kv_tokens > lane.kv_limit:
            refused[pool.pool] = kv_too_small(need.kv_tokens, pool)
        else:
            lanes.append(lane)
    return lanes, refused


def _wait(job: HeldJob, look: Outlook, chosen: Forecast, need: Need) -> None:
    """The job keeps its place before those behind it, in the pool it waits for."""
    finish_s, start_s, cause, _ = chosen
    if job.alone:
        look.reserve(look.all_free_s(), None)
    elif cause in (Cause.KV, Cause.FENCED):
        look.reserve(start_s, need.kv_tokens)
    elif cause in (Cause.FULL, Cause.SPARE):
        look.queue(finish_s)
