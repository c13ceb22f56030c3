"""Which job goes where: the decision itself, a pure function of jobs, cluster and time.

Owns the look at all jobs in their order and what each choice takes from the next; gate,
forecast and order are its neighbours. Does no I/O, so that a simulation can replay it."""

import math
from collections.abc import Iterable

from noidle.jobs import EngineName, JobClass
from noidle.snapshot import ModelInfo
from routing.board import HeldJob
from routing.cluster import Cluster, length_key
from routing.decided import Decided
from routing.facts import Column
from routing.forecast import best, decode_s, rank, unread
from routing.lane import Lane
from routing.order import RANKS, Rank, Turns, by_rank, starves
from routing.outlook import Outlook
from routing.placement import Action, Cause, Forecast, Grant, Need, Placement
from routing.prediction import kv_tokens, prompt_tokens
from routing.profile import RESPONSE_FIRST, Profile
from routing.roster import Roster
from routing.view import View

WAITING_SHOWN = 16
"""Once nothing is free, so many more jobs are looked at, to say why they wait."""
AHEAD_S = 0.5
"""Prompts are read one after the other: more than so many seconds of them in a pool, and the next
job is better held, where what is more urgent can still overtake it. Above the time between two
looks, so that a pool never runs out of prompts."""
LOOKED_AT = 24
"""A look that is not deep ends with so many jobs: the pump takes another one at once if slots
were leased, and those behind jobs that wait are looked at by the next deep one."""

GLANCES = 64
"""Of jobs that are not looked at, so many with a deadline are asked whether they can still meet it,
as if nobody waited before them."""

_ViewKey = tuple[str, str, EngineName | None, str | None, JobClass]


def decide(
    jobs: Iterable[HeldJob],
    cluster: Cluster,
    now_ms: int,
    roster: Roster | None = None,
    profile: Profile = RESPONSE_FIRST,
    *,
    deep: bool = True,
) -> Decided:
    """One look at all held jobs, in the order they are served.

    Each job goes where it is predicted to end first. If that pool is full and waiting for it
    still beats what is free, the job waits, and its slot is taken out of what the jobs behind
    it see. A job that no pool can run takes nothing from anybody.

    Args:
        roster: kept from the last look, it saves time; the decisions are the same.
        deep: look at every job while anything is free; else at no more than is quickly done.
    """
    roster = roster or Roster()
    roster.show(cluster)
    turns = Turns(
        now_ms=now_ms,
        serving=cluster.serving,
        room=_lift_room(cluster, profile, roster.slots.sum()),
        training_first=profile.training_first,
        lift_s=profile.lift_s,
        starve_s=profile.starve_s,
        warm=cluster.warm,
        weights=profile.weights,
    )
    return _Decider(cluster, roster, profile, turns).decide(by_rank(jobs, turns), deep=deep)


def _lift_room(cluster: Cluster, profile: Profile, slots: float) -> int:
    """Jobs that starve take a share of the slots at most, and one at least."""
    return max(int(profile.lifted_share * slots), 1) - cluster.lifted


class _Decider:
    """The state of one look."""

    def __init__(self, cluster: Cluster, roster: Roster, profile: Profile, turns: Turns) -> None:
        self.roster = roster
        self.turns = turns
        self.look = Outlook(roster, turns.now_ms)
        # engines whose queue several pools consume: only a pool's own enforces a choice
        self.profile = profile
        self.urgent_per_s = cluster.urgent_per_s
        self.kept: dict[JobClass, Column] = {}
        self.lengths = cluster.lengths
        self.warm = cluster.warm
        self.waits = cluster.waits
        self.shared = cluster.shared | roster.shared
        self.views: dict[_ViewKey, View] = {}
        self.lanes: dict[tuple[str, bool], Lane] = {}

    def decide(self, ranks: Iterable[Rank], *, deep: bool) -> Decided:
        placements: list[Placement] = []
        behind: list[HeldJob] = []
        # jobs that a pool could run, and those of them that came when nothing was free
        seen = shown = glances = 0
        over = False
        for group in ranks:
            unasked = not group.has_deadlines()
            if over and (unasked or glances >= GLANCES):
                behind += group.jobs()
                continue
            jobs = group.in_turn(self.turns)
            for number, job in enumerate(jobs):
                shown += self.look.slots_left <= 0
                over = over or shown > WAITING_SHOWN or (seen >= LOOKED_AT and not deep)
                if over and (unasked or glances >= GLANCES):
                    behind += jobs[number:]
                    break
                if not over:
                    placement = self.place(job)
                    seen += placement.best is not None
                    placements.append(placement)
                    continue
                late = None
                if job.deadline_ms is not None:
                    glances += 1
                    late = self.glance(job)
                if late is None:
                    behind.append(job)
                else:
                    placements.append(late)
        return Decided(placements, behind, self.peek)

    def place(self, job: HeldJob) -> Placement:
        view = self.view(job)
        need = self.need(job, view)
        moment = len(self.look.log)
        if not view.count or job.max_tokens >= view.context:
            return self.nowhere(job, view, need)
        rows = rank(job, view, need)
        found = best(job, view, need, rows)
        if found is None:
            return self.nowhere(job, view, need)
        i, forecast = found
        if self.is_late(job, forecast[0]):
            return Placement(job, Action.REFUSED, view, need, moment, rows, i, forecast)
        if forecast[2] is Cause.FREE:
            grant = self.grant(job, view, i, forecast, need)
            lifted = starves(job, self.turns)
            return Placement(
                job, Action.LEASE, view, need, moment, rows, i, forecast, False, grant, lifted
            )
        spurns = view.open_count > 0
        self.wait(job, view, i, forecast, need)
        return Placement(job, Action.WAIT, view, need, moment, rows, i, forecast, spurns)

    def glance(self, job: HeldJob) -> Placement | None:
        """Takes nothing from anybody: a job that is late is refused, others wait."""
        seen = self.peek(job)
        if seen.forecast is not None and self.is_late(job, seen.forecast[0]):
            return seen._replace(action=Action.REFUSED)
        return None

    def peek(self, job: HeldJob) -> Placement:
        """How it would fare behind those that were looked at; for whoever wants to know later."""
        view = self.view(job)
        need, moment = self.need(job, view), len(self.look.log)
        if not view.count or job.max_tokens >= view.context:
            return self.nowhere(job, view, need)
        rows = rank(job, view, need)
        found = best(job, view, need, rows)
        if found is None:
            return self.nowhere(job, view, need)
        return Placement(job, Action.WAIT, view, need, moment, rows, *found)

    def is_late(self, job: HeldJob, finish_s: float) -> bool:
        """How long a whole training takes is not predicted."""
        if job.deadline_ms is None:
            return False
        left_ms = job.deadline_ms - self.turns.now_ms
        return left_ms < (0 if job.kind == "train" else 1000 * finish_s)

    def nowhere(self, job: HeldJob, view: View, need: Need) -> Placement:
        lasting = view.lasting
        if job.max_tokens >= view.context:
            lasting = lasting | view.able
        elif need.kv_tokens > view.lane.facts.kv_least:
            lasting = lasting | (view.able & (view.lane.facts.kv_limit < need.kv_tokens))
        action = Action.UNPLACEABLE if lasting.all() else Action.WAIT
        if action is Action.WAIT and self.is_late(job, 0.0):
            action = Action.REFUSED
        return Placement(job, action, view, need, len(self.look.log))

    def grant(self, job: HeldJob, view: View, i: int, chosen: Forecast, need: Need) -> Grant:
        """Takes the slot; what comes after sees one less."""
        look, lane, pool = self.look, view.lane, self.roster.pools[i]
        memory_bytes = int(lane.memory_bytes(i, need.kv_tokens))
        limit = self.roster.memory_limit.item(i)
        ready_s = lane.begins_s(i, 0.0)
        read_s = chosen[0] - decode_s(view, i, need, chosen[3])
        look.start(i, read_s, chosen[0], need.kv_tokens, memory_bytes, alone=job.alone)
        lane.will_load(i, ready_s)
        if job.kind == "train":
            look.train(i, chosen[0])
        sequences_s = lane.facts.sequence_s.item(i) * chosen[3]
        step_s = lane.facts.step_s.item(i) + sequences_s
        bounded = lane.kv_counted(i, 1) > 0
        return Grant(
            queue=pool.pool if pool.engine in self.shared else pool.engine.value,
            memory_bytes=memory_bytes,
            memory_limit=int(limit) if memory_bytes and limit < math.inf else None,
            sharers=self.sharers(i) if memory_bytes else (),
            kv_tokens_total=pool.kv_tokens_total if bounded else None,
            ready_s=ready_s,
            read_s=read_s,
            step_s=step_s,
            full_step_s=max(step_s, lane.facts.part_s.item(i) + sequences_s),
            crowded_step_s=lane.facts.step_s.item(i) + lane.facts.sequence_s.item(i) * pool.slots,
            prompt_s=unread(i, need) * lane.facts.prefill_s.item(i),
        )

    def sharers(self, i: int) -> tuple[str, ...]:
        beside = self.roster.sharers.get(int(self.roster.device[i]), ())
        return tuple(self.roster.names[j] for j in beside if j != i)

    def wait(self, job: HeldJob, view: View, i: int, chosen: Forecast, need: Need) -> None:
        """The job keeps its place before those behind it, in the pool it waits for."""
        finish_s, start_s, cause, batch = chosen
        if job.alone:
            self.look.reserve(i, self.look.bay(i).all_free_s(), None)
        elif cause in (Cause.KV, Cause.FENCED):
            self.look.reserve(i, start_s, need.kv_tokens)
        elif cause in (Cause.FULL, Cause.SPARE, Cause.READING):
            read_s = finish_s - decode_s(view, i, need, batch)
            slot = self.look.bay(i).free > view.kept.item(i)
            self.look.queue(i, read_s, None if slot else finish_s)

    def need(self, job: HeldJob, view: View) -> Need:
        """What a job takes of a pool, estimated; room is made for all that it asks for."""
        prompt = prompt_tokens(job.prompt_bytes, view.model)
        training = job.kind == "train"
        kv = 0 if training else kv_tokens(prompt, job.max_tokens, view.model)
        tokens = job.expected_tokens
        if tokens is None:
            key = length_key(job.kind, job.model, job.label, job.max_tokens)
            tokens = math.ceil(self.lengths.get(key, 1.0) * job.max_tokens)
        warm = self.warm_in(job, prompt, view) if job.beginnings and self.warm else {}
        return Need(prompt, kv, min(tokens, job.max_tokens), warm)

    def warm_in(self, job: HeldJob, prompt: int, view: View) -> dict[int, int]:
        """Tokens that pools need not read again; the last one always is, for its logits."""
        found: dict[int, int] = {}
        for size, digest in reversed(job.beginnings):
            for pool in self.warm.get(digest, ()):
                i = self.roster.index.get(pool)
                if i is not None and i not in found and self.roster.pools[i].prefix_cache_tokens:
                    found[i] = min(int(size / view.model.bytes_per_token), prompt - 1)
        return found

    def view(self, job: HeldJob) -> View:
        """Gate and speeds, once for all jobs that are alike in what they ask."""
        kept = self.kept.get(job.job_class)
        if kept is None:
            kept = self.kept[job.job_class] = self.keep(job.job_class)
        key = (job.kind, job.model, job.engine, job.storage, job.job_class)
        view = self.views.get(key)
        if view is None:
            scene = self.roster.scene(job)
            lane = self.lane(job, scene.model)
            view = self.views[key] = View(
                self.look,
                scene,
                lane,
                kept,
                ahead_s=AHEAD_S,
                wait=self.waits[RANKS[job.job_class]],
            )
        return view

    def keep(self, job_class: JobClass) -> Column:
        share = self.profile.kept_share(job_class, self.urgent_per_s, self.look.slots)
        return self.look.kept(share, spare=job_class is JobClass.BACKGROUND)

    def lane(self, job: HeldJob, model: ModelInfo) -> Lane:
        key = (model.name, job.kind == "train")
        lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = Lane(self.roster.lane(job, model), self.look, model)
        return lane
