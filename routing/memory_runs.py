"""The pools' side of the memory board: claim, report, and the ways a lease ends. Owns the rules of
the scripts of those names; knows nothing of decisions."""

from noidle.results import JobResult, JobState, StreamEvent
from noidle.snapshot import ModelInfo
from routing.board import Checkpoint, Claim, Refusal, StepReport, Verdict
from routing.memory_record import Record, set_behind, to_claim, to_run
from routing.memory_state import MemoryPart
from routing.outcome import CANCELLED_BETWEEN, CANCELLED_RUNNING, EXPIRED, why


class MemoryRuns(MemoryPart):
    """The third part of a Board."""

    def claim(self, job_id: str, token: str, pool: str, pid: int) -> Claim | Refusal:
        with self._lock:
            state = self._state
            record = state.find(job_id)
            if record is not None and record.state is JobState.CANCELLED:
                return Refusal(reason="cancelled")
            if record is None or record.state is not JobState.LEASED or record.token != token:
                return Refusal(reason="stale")
            if record.pool != pool:
                return Refusal(reason="elsewhere", pool=record.pool)
            now = state.now
            if record.expires_at is not None and now >= record.expires_at:
                state.end_without_result(record, JobState.EXPIRED, EXPIRED)
                return Refusal(reason="stale")
            if state.late(record):
                state.end_late(record)
                return Refusal(reason="stale")
            record.state = JobState.RUNNING
            record.attempt += 1
            record.pid = pid
            record.lease_end = now + self._limits.lease_ms
            record.queued_ms = (record.queued_ms or 0.0) + max(0.0, now - record.leased)
            record.moved = False
            # once started, a job does not expire
            record.expires_at = None
            state.promises.claim(pool, job_id, now)
            return to_claim(record, now)

    def report(self, pool: str, reports: list[StepReport]) -> dict[str, Verdict]:
        with self._lock:
            return {report.job: self._report(pool, report) for report in reports}

    def _report(self, pool: str, report: StepReport) -> Verdict:
        record = self._state.running(report.job, report.token)
        if record is None or record.pool != pool:
            return Verdict.LOST
        self._emit(record, report.text, report.tokens)
        if report.step is not None:
            self._advance(record, report)
        record.revision = report.revision or record.revision
        record.lease_end = self._state.now + self._limits.lease_ms
        if record.state is JobState.CANCELLING:
            return Verdict.CANCELLED
        if self._state.late(record):
            return Verdict.OVERDUE
        if record.leave is None:
            return Verdict.GO_ON
        return Verdict.FREE if record.leave else Verdict.PAUSE

    def _emit(self, record: Record, text: str, tokens: tuple[int, ...]) -> None:
        if not text and not tokens:
            return
        record.events.append(StreamEvent(text=text or None, tokens=tokens))
        record.text += text
        record.tokens += tokens
        record.moved = True
        if record.first is None:
            record.first = self._state.now

    def _advance(self, record: Record, report: StepReport) -> None:
        assert report.step is not None
        record.events.append(
            StreamEvent(
                step=report.step,
                goal=report.goal,
                loss=report.loss,
                tokens_per_s=report.tokens_per_s,
            )
        )
        # steps that a crash undid are no progress the second time
        record.moved |= report.step > record.best
        record.best = max(record.best, report.step)
        record.step = report.step
        record.loss = record.loss if report.loss is None else report.loss

    def finish(self, job_id: str, token: str, result: JobResult) -> bool:
        with self._lock:
            record = self._state.running(job_id, token)
            if record is None:
                return self._spent(job_id, f"finish:{token}")
            if result.text is not None:
                # whoever reads the stream gets the same text as whoever reads the result
                rest = (result.tokens or ())[len(record.tokens) :]
                self._emit(record, result.text[len(record.text) :], rest)
            record.spent = f"finish:{token}"
            if result.state is JobState.DONE:
                tokens = len(result.tokens or ()) if result.text is not None else 0
                self._state.runs.append(to_run(record, tokens, self._state.now))
            self._state.end(record, result, why(result))
            return True

    def yield_slice(
        self, job_id: str, token: str, checkpoint: Checkpoint, model: ModelInfo, service_s: float
    ) -> bool:
        with self._lock:
            state = self._state
            record = state.running(job_id, token)
            if record is None:
                return self._spent(job_id, f"yield:{token}")
            record.spent = f"yield:{token}"
            state.models.set(model)
            if record.state is JobState.CANCELLING:
                state.end_without_result(record, JobState.CANCELLED, CANCELLED_BETWEEN)
                return True
            record.checkpoint = checkpoint
            record.step = record.best = checkpoint.step
            record.service += service_s
            record.order = record.service
            record.held_set = set_behind(record)
            # a slice that went well clears the job of suspicion
            record.alone = False
            record.crashes = record.falls = 0
            # a whole one may be preempted as often as the first
            record.row = record.row if record.leave is not None else 0
            state.hold_again(record)
            return True

    def hand_back(self, job_id: str, token: str, *, crashed: bool = False) -> bool:
        with self._lock:
            state = self._state
            record = state.find(job_id)
            if record is None or record.token != token:
                return self._spent(job_id, f"back:{token}")
            record.spent = f"back:{token}"
            if crashed and record.running:
                state.crashed(record, self._limits.crash_limit)
            elif record.state is JobState.CANCELLING:
                state.end_without_result(record, JobState.CANCELLED, CANCELLED_RUNNING)
            else:
                state.hold_again(record)
            return True

    def _spent(self, job_id: str, what: str) -> bool:
        """Whether this very call was made before."""
        record = self._state.find(job_id)
        return record is not None and record.spent == what

    def release_unclaimed(self, pool: str) -> list[str]:
        with self._lock:
            state = self._state
            found = [state.records[job_id] for job_id in state.promises.jobs(pool)]
            freed = [record for record in found if record.state is JobState.LEASED]
            for record in freed:
                state.hold_again(record)
            return [record.id for record in freed]
