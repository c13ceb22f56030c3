"""Why a job went where it went, or why it waits: the router's decisions, in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from noidle.profile import ProfileName
from noidle.results import Decision, JobState, JobStatus, PoolGroup, PoolVerdict, Waited
from noidle.snapshot import RouterDetail
from noidle.waiting import waited_in_words

NO_ROUTER = "no router runs, so nothing is decided: start one (noidle up, or noidle router)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The jobs that ask for the same and were accepted before."""

    before: int
    # the first of them, and what the router thought of it
    first: str
    decisions: tuple[Decision, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of a job and what the router thought of it; `str()` puts it in words."""

    status: JobStatus
    # newest first
    decisions: tuple[Decision, ...]
    waited: Waited | None = None
    # where others that ask for the same wait before it
    row: Row | None = None
    # the one that decides
    router: RouterDetail | None = None
    # it is held and no router runs
    unheard: bool = False
    # pools that were there lately, and seconds since they were last heard of
    silent: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        lines = [f"job {self.status.id} ({self.status.kind}) {state_in_words(self.status)}"]
        lines += self._around()
        if self.decisions:
            return "\n".join([*lines, *_decided(self.decisions)])
        if self.row is not None and self.row.decisions:
            return "\n".join([*lines, "", f"of the first, {self.row.first}:", *self._first()])
        return "\n".join([*lines, *self._unseen()])

    def _around(self) -> Iterator[str]:
        if self.waited is not None:
            yield waited_in_words(self.waited)
        if self.row is not None:
            before = self.row.before
            jobs = "1 job" if before == 1 else f"{before} jobs"
            yield f"{jobs} that ask for the same came before it"
        if self.unheard:
            yield NO_ROUTER
        for pool, age_s in self.silent:
            yield f"{pool} was last heard of {age_s:.1f} s ago and gets nothing"
        held = self.status.state is JobState.HELD
        if held and self.router and self.router.profile == ProfileName.TRAINING_FIRST:
            yield (
                "the profile is training_first: training goes before people who wait and makes"
                " no room for them; noidle profile response_first would change that"
            )

    def _first(self) -> list[str]:
        assert self.row is not None
        return _decided(self.row.decisions[:1])[1:]

    def _unseen(self) -> list[str]:
        if self.status.state.final:
            return []
        return ["no router has looked at it yet"]

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON data, without what is absent."""
        row = self.row
        data = {
            "status": _plain(self.status),
            "waited": _plain(self.waited),
            "before": row.before if row else None,
            "first": row.first if row else None,
            "first_decisions": [_plain(one) for one in row.decisions] if row else None,
            "router": _plain(self.router),
            "silent": dict(self.silent) or None,
            "decisions": [_plain(one) for one in self.decisions],
        }
        return {name: value for name, value in data.items() if value is not None}


def _plain(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _decided(decisions: Sequence[Decision]) -> list[str]:
    """What is known of the pools is told of the newest decision that looked at them; of the
    others, only what became of the job."""
    lines: list[str] = []
    shown = False
    for decision in decisions:
        looked = bool(decision.verdicts or decision.rest)
        if looked and not shown:
            verdicts = map(_verdict_line, decision.verdicts)
            lines += ["", _headline(decision), *verdicts, *map(_group_line, decision.rest)]
            shown = True
        else:
            lines += ["", _headline(decision)] if not lines else [_headline(decision)]
    return lines


def state_in_words(status: JobStatus) -> str:
    """What a person wants to know of a state, as the end of a sentence."""
    where = f" on {status.pool}" if status.pool else ""
    again = f", attempt {status.attempt}" if status.attempt > 1 else ""
    match status.state:
        case JobState.HELD:
            why = f": {status.why}" if status.why else ""
            return f"is held{_room(status)}{_progress(status)}{why}"
        case JobState.LEASED:
            return f"has a slot{where} and has not started there yet{again}"
        case JobState.RUNNING:
            return f"is running{where}{again}{_room(status)}{_progress(status)}"
        case JobState.CANCELLING:
            return f"is cancelled and stops{where} at its next step"
        case JobState.DONE:
            return f"is done{where}{again}{_progress(status)}"
        case JobState.FAILED:
            return f"has failed{where}{again}{f': {status.why}' if status.why else ''}"
        case JobState.CANCELLED:
            return "was cancelled"
        case JobState.EXPIRED:
            return "expired before it could start"


def _room(status: JobStatus) -> str:
    if not status.preemptions:
        return ""
    return f", made room {'once' if status.preemptions == 1 else f'{status.preemptions} times'}"


def _progress(status: JobStatus) -> str:
    if not status.progress:
        return ""
    unit = "steps" if status.kind == "train" else "tokens"
    goal = f" of {status.goal}" if status.goal else ""
    loss = f", loss {status.loss:.3f}" if status.loss is not None else ""
    return f", {status.progress}{goal} {unit}{loss}"


def _headline(decision: Decision) -> str:
    at = (
        datetime.fromtimestamp(decision.at_ms / 1000, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
    )
    what = f"to {decision.pool}" if decision.action == "lease" else decision.action
    queue = f" (queue {decision.queue})" if decision.queue else ""
    return f"{at} {what}{queue}: {decision.reason}"


def _verdict_line(verdict: PoolVerdict) -> str:
    finish = f" in {verdict.finish_s:.2f} s" if verdict.finish_s is not None else ""
    return f"  {verdict.pool:<20} {verdict.outcome:<8}{finish:>11}  {verdict.reason}"


def _group_line(group: PoolGroup) -> str:
    pools = "1 more pool" if group.count == 1 else f"{group.count} more pools"
    finish = _span(group.finish_from_s, group.finish_to_s)
    start = _span(group.start_from_s, group.start_to_s)
    reason = f"{group.reason}; {start} until it could start" if start else group.reason
    return f"  {pools:<20} {group.outcome:<8}{f' in {finish}' if finish else '':>11}  {reason}"


def _span(least: float | None, most: float | None) -> str:
    if least is None or most is None:
        return ""
    if f"{least:.2f}" == f"{most:.2f}":
        return f"{least:.2f} s"
    return f"{least:.2f} to {most:.2f} s"
