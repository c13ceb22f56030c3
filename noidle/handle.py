"""The handle of one job: its stream, result, state, reasons, and its end. Owns what each final
state means to a caller."""

from collections.abc import Iterator

from noidle.acceptance import cancel
from noidle.errors import JobCancelled, JobExpired, JobFailed, UnknownJob
from noidle.explanation import Explanation
from noidle.follow import Follower, look
from noidle.inquiry import inquire
from noidle.link import Link
from noidle.record import FIRST, read_result, read_status
from noidle.results import JobResult, JobState, JobStatus, StreamEvent
from noidle.submission import Submission


class Job:
    """A job that was sent, by this client or another producer. Thread-safe.

    Every method raises ClusterUnavailable where Redis stays away longer than the client's
    patience, and UnknownJob where there is no record of the job: one that this client sent and
    Redis lost is sent again instead.
    """

    def __init__(self, link: Link, job_id: str, submission: Submission | None = None) -> None:
        self._link = link
        self.id = job_id
        self._submission = submission
        self._result: JobResult | None = None

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def stream(self, timeout_s: float | None = None) -> Iterator[str]:
        """The job's text in pieces as it is made, from the beginning; ends with the job.

        Args:
            timeout_s: the longest wait for the next piece; None waits for ever.

        Raises:
            ResultTimeout, and what `result` raises where the job ends without a result.
        """
        return (event.text for event in self.events(timeout_s) if event.text)

    def events(self, timeout_s: float | None = None) -> Iterator[StreamEvent]:
        """Text with its tokens, or the progress of a training job; else like `stream`."""
        for event in Follower(self._link, self.id, missing=self._send_again).events(timeout_s):
            if event.end not in (None, JobState.DONE):
                self.result(timeout_s)
            if event.end is None:
                yield event

    def result(self, timeout_s: float | None = None) -> JobResult:
        """Waits for the job's end. Fetched once, then kept.

        Raises:
            JobFailed: it ended without a result; `reason` tells the kind of failure.
            JobCancelled: somebody cancelled it.
            JobExpired: it could not start within its `expires_s`.
            ResultTimeout: it goes on after `timeout_s`.
        """
        return _succeeded(self.outcome(timeout_s))

    def outcome(self, timeout_s: float | None = None) -> JobResult:
        """Like `result`, but returns how the job ended, whatever the end."""
        if self._result is None:
            self._result = self._wait(timeout_s)
        return self._result

    def status(self) -> JobStatus:
        """Where the job stands now."""
        status = self._link.call(lambda client: read_status(client, self.id))
        if status is None:
            self._send_again()
            return self.status()
        return status

    def explain(self) -> Explanation:
        """What the router thought of the job and each pool, and how long it waited for what;
        `print` shows it in words."""
        found = self._link.call(lambda client: inquire(client, self.id))
        if found is None:
            self._send_again()
            return self.explain()
        return found

    def cancel(self) -> bool:
        """Ends the job at once where it is held, at its next step where it runs.

        Returns:
            False if it had ended already.
        """
        if self._link.call(lambda client: cancel(client, self.id)):
            return True
        if self._link.call(lambda client: read_status(client, self.id)) is None:
            raise _unknown(self.id)
        return False

    def _wait(self, timeout_s: float | None) -> JobResult:
        end_s = None if timeout_s is None else self._link.now_s() + timeout_s
        result, position = self._link.call(lambda client: look(client, self.id), end_s)
        if result is None:
            if position is None:
                self._send_again()
            follower = Follower(self._link, self.id, missing=self._send_again)
            follower.start_behind(position or FIRST)
            for _ in follower.events(end_s=end_s):
                pass
            result = self._link.call(lambda client: read_result(client, self.id), end_s)
        if result is None:
            raise _unknown(self.id)
        return result

    def _send_again(self) -> None:
        if self._submission is None or not self._submission.is_due_again(self._link):
            raise _unknown(self.id)
        self._link.call(self._submission.send)


def _succeeded(result: JobResult) -> JobResult:
    if result.state is JobState.DONE:
        return result
    if result.state is JobState.CANCELLED:
        raise JobCancelled(f"job {result.id} was cancelled", job_id=result.id, reason="cancelled")
    if result.state is JobState.EXPIRED:
        raise JobExpired(
            f"job {result.id} could not start within its expires_s",
            job_id=result.id,
            reason="expired",
        )
    reason, why = (
        (result.error.code, result.error.message) if result.error else ("internal", "no reason")
    )
    raise JobFailed(f"job {result.id} failed ({reason}): {why}", job_id=result.id, reason=reason)


def _unknown(job_id: str) -> UnknownJob:
    return UnknownJob(
        f"no job {job_id} is known: it was never accepted, or ended longer ago than its keep_s",
        job_id=job_id,
    )
