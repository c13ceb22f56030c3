"""Why a job went where it went, or why it waits: the router's decisions, in words."""

from dataclasses import dataclass
from datetime import UTC, datetime

from noidle.results import Decision, JobState, JobStatus, PoolVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of a job and what the router thought of it; `str()` puts it in words."""

    status: JobStatus
    # newest first
    decisions: tuple[Decision, ...]

    def __str__(self) -> str:
        lines = [f"job {self.status.id} ({self.status.kind}) {state_in_words(self.status)}"]
        for decision in self.decisions:
            lines += ["", _headline(decision), *map(_verdict_line, decision.verdicts)]
        if not self.decisions:
            lines.append("no router has looked at it yet")
        return "\n".join(lines)


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
