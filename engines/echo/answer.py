"""Runs that read and write text: generate and score.

Owns what an echo says, which the prompt, the seed and the position decide; knows nothing of
time. A conversation is read as its turns, one a line. Prompts, or last messages, that begin with
!crash, !hang or !fail do what they say, behind as many tokens as follow (`!crash 5`)."""

import hashlib
import math
import os
import re
import threading

from engines.echo.described import Described, JobFault, Json, rank_of

PIECES = re.compile(r"\S{1,12}|\s+")
TRICK = re.compile(r"!(crash|hang|fail)(?: (\d+))?")


class Answer:
    """A generate run."""

    def __init__(self, start: Json, described: Described) -> None:
        job = start["job"]
        field, prompt, asked = _read(job)
        pieces = PIECES.findall(prompt)
        self.model, self.rank = job["model"], rank_of(job)
        self.revision = described.revision(self.model, start.get("revision"))
        self.limit, self.stop = job.get("max_tokens", 128), job.get("stop", [])
        described.check_fits(field, len(pieces), self.limit)
        self.prefill_left = self.prompt_tokens = len(pieces)
        self.kv_tokens = len(pieces) + self.limit
        self._words = [piece for piece in pieces if not piece.isspace()] or ["…"]
        seed = start["seed"].to_bytes(8, "big")
        self._salt = hashlib.blake2b(prompt.encode(), digest_size=8, key=seed)
        self._trick = TRICK.match(asked)
        self._wants_logprobs = job.get("logprobs", False)
        self._position = len(start.get("tokens", ()))
        known = "".join(self._piece(at)[1] for at in range(self._position))
        # not emitted yet, as it may be the beginning of a stop string
        self._pending = known[len(start.get("text", "")) :]
        self._text: list[str] = []
        self._tokens: list[int] = []
        self.prefill_s = self.decode_s = 0.0

    def step(self) -> tuple[Json, Json | None]:
        """What the next token adds, and the result if it was the last."""
        self._play_trick()
        tokens = []
        if self._position < self.limit and self._stop_at() is None:
            token, piece = self._piece(self._position)
            tokens.append(token)
            self._pending += piece
            self._position += 1
        text, reason = self._release()
        self._text.append(text)
        self._tokens += tokens
        step = {"text": text, "tokens": tokens, "revision": self.revision}
        return step, self._result(reason) if reason else None

    def _piece(self, position: int) -> tuple[int, str]:
        digest = self._salt.copy()
        digest.update(position.to_bytes(8, "big"))
        token = int.from_bytes(digest.digest()[:3], "big")
        return token, self._words[token % len(self._words)] + " "

    def _release(self) -> tuple[str, str | None]:
        """The text that may be emitted now, and why the run ends if it does."""
        end = self._stop_at()
        if end is not None:
            return self._pending[:end], "stop"
        if self._position >= self.limit:
            return self._pending, "length"
        cut = len(self._pending) - self._undecided()
        text, self._pending = self._pending[:cut], self._pending[cut:]
        return text, None

    def _stop_at(self) -> int | None:
        found = [at for at in map(self._pending.find, self.stop) if at >= 0]
        return min(found) if found else None

    def _undecided(self) -> int:
        """How many characters at the end could begin a stop string."""
        longest = min(len(self._pending), max(map(len, self.stop), default=0))
        for size in range(longest, 0, -1):
            if any(stop.startswith(self._pending[-size:]) for stop in self.stop):
                return size
        return 0

    def _play_trick(self) -> None:
        if not self._trick or self._position < int(self._trick[2] or 0):
            return
        match self._trick[1]:
            case "crash":
                os._exit(70)
            case "hang":
                threading.Event().wait()
        raise JobFault("engine", f"the prompt asked to fail behind {self._position} tokens")

    def _result(self, reason: str) -> Json:
        # those of former attempts too: a real model reads all tokens again
        shown = map(self._piece, range(self._position))
        return {
            "logprobs": [_logprob(piece) for _, piece in shown] if self._wants_logprobs else None,
            "text": "".join(self._text),
            "tokens": self._tokens,
            "finish_reason": reason,
            "prompt_tokens": self.prompt_tokens,
            "model": self.model,
            "revision": self.revision,
            "prefill_ms": self.prefill_s * 1000,
            "decode_ms": self.decode_s * 1000,
            "tpot_ms": self.decode_s * 1000 / max(1, len(self._tokens) - 1),
        }


class Reading:
    """A score run."""

    def __init__(self, start: Json, described: Described) -> None:
        self._pieces = PIECES.findall(start["job"]["text"])
        self.model, self.rank = start["job"]["model"], rank_of(start["job"])
        self.revision = described.revision(self.model)
        described.check_fits("text", len(self._pieces))
        self.prefill_left = self.kv_tokens = self.prompt_tokens = len(self._pieces)
        self.prefill_s = self.decode_s = 0.0

    def step(self) -> tuple[Json, Json | None]:
        logprobs = [_logprob(piece) for piece in self._pieces[1:]]
        result = {
            "prompt_tokens": self.prompt_tokens,
            "logprobs": logprobs,
            "perplexity": math.exp(-sum(logprobs) / max(1, len(logprobs))),
            "model": self.model,
            "revision": self.revision,
            "prefill_ms": self.prefill_s * 1000,
        }
        return {}, result


def _read(job: Json) -> tuple[str, str, str]:
    """The field that holds what is read, its text, and the part that asks."""
    if "messages" not in job:
        return "prompt", job["prompt"], job["prompt"]
    turns = [f"{one['role']}: {one['content']}\n" for one in job["messages"]]
    return "messages", "".join(turns), job["messages"][-1]["content"]


def _logprob(piece: str) -> float:
    """Longer pieces are less likely."""
    return -len(piece.encode()) / 4
