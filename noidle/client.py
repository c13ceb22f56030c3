"""What a producer holds: sends jobs and hands out their handles."""

import os
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from noidle.acceptance import AnyJob
from noidle.errors import ConfigError
from noidle.handle import Job
from noidle.jobs import Generate, Message, Score, Train, parse_job
from noidle.link import Link
from noidle.submission import Submission, send_many

URL_VARIABLE = "NOIDLE_URL"


class Client:
    """Sends jobs to a cluster and reads what became of them. Thread-safe; connects on first use.

    Sending a job again under the same id is sending it once, so every call may be repeated.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        connections: int = 64,
        patience_s: float = 60.0,
        rng: random.Random | None = None,
    ) -> None:
        """
        Args:
            url: the cluster's Redis, `redis://` or `rediss://`; absent, NOIDLE_URL is read.
            connections: the most connections; further waiting threads take turns.
            patience_s: how long a Redis that has answered before may be away.

        Raises:
            ConfigError: no address, or one that cannot be understood.
        """
        self._link = Link(
            url or url_from_environment(), connections=connections, patience_s=patience_s
        )
        self._rng = rng or random.SystemRandom()

    def generate(self, prompt: str, *, model: str, **fields: Any) -> Job:
        """Sends a job that continues `prompt`; `fields` are those of noidle.Generate.

        Raises:
            InvalidJob: naming the field, its value and what is allowed.
            Overloaded: the cluster takes no more jobs now.
            ClusterUnavailable: Redis does not answer.
        """
        return self.submit({"kind": "generate", "prompt": prompt, "model": model, **fields})

    def chat(
        self, messages: Sequence[Message | Mapping[str, str]], *, model: str, **fields: Any
    ) -> Job:
        """Sends a job that answers a conversation, each message with a `role` (system, user,
        assistant or tool) and its `content`; else like `generate`."""
        said = [one.model_dump() if isinstance(one, Message) else one for one in messages]
        return self.submit({"kind": "generate", "messages": said, "model": model, **fields})

    def score(self, text: str, *, model: str, **fields: Any) -> Job:
        """Sends a job that measures how probable `text` is; else like `generate`."""
        return self.submit({"kind": "score", "text": text, "model": model, **fields})

    def train(
        self, text: str | None = None, *, model: str, path: str | None = None, **fields: Any
    ) -> Job:
        """Sends a job that trains `model` on `text`, or on the file or folder `path` in the
        cluster's text folder; else like `generate`."""
        source = {"text": text, "path": path}
        return self.submit({"kind": "train", "model": model, **source, **fields})

    def submit(self, job: AnyJob | Mapping[str, Any]) -> Job:
        """Sends any job: a model, or JSON data; else like `generate`."""
        submission = self._submission(job)
        self._link.call(submission.send)
        return Job(self._link, submission.job.id, submission)

    def submit_many(self, jobs: Iterable[AnyJob | Mapping[str, Any]]) -> list[Job]:
        """Sends many jobs in few round trips.

        All are validated before the first is sent. Where the cluster refuses one, the others
        may have been accepted; sending the same jobs again does no harm.
        """
        submissions = [self._submission(job) for job in jobs]
        send_many(self._link, submissions)
        return [Job(self._link, one.job.id, one) for one in submissions]

    def job(self, job_id: str) -> Job:
        """The handle of a job that was sent before, by whomever."""
        return Job(self._link, job_id)

    def close(self) -> None:
        """Ends the connections; jobs go on."""
        self._link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submission(self, job: AnyJob | Mapping[str, Any]) -> Submission:
        if not isinstance(job, Generate | Score | Train):
            job = parse_job(dict(job) if isinstance(job, Mapping) else job)
        return Submission(job=job, entropy=self._rng.getrandbits(64), sent_s=self._link.now_s())


def url_from_environment() -> str:
    """NOIDLE_URL.

    Raises:
        ConfigError: it is not set.
    """
    url = os.environ.get(URL_VARIABLE)
    if not url:
        raise ConfigError(
            f"no address of a cluster: pass one, or set {URL_VARIABLE}; where"
            " `noidle up` runs: NOIDLE_URL=$(cat ~/.noidle/secrets/url)",
            variable=URL_VARIABLE,
            allowed="redis://[:password@]host[:port][/database], or rediss:// for TLS",
        )
    return url
