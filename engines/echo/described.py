"""What an echo engine keeps to: rates, sizes and models, from variables named ECHO_…

Owns what can be wrong with a run; knows nothing of the loop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
BUILT_IN = "built-in"


class JobFault(Exception):
    """A run that cannot go on; `error` is what the pool is told."""

    def __init__(self, code: str, message: str, **fields: str) -> None:
        super().__init__(message)
        self.error: Json = {"code": code, "message": message, **fields}

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> "JobFault":
        message = f"{field} = {value!r}: allowed is {allowed}"
        return cls("invalid", message, field=field, value=repr(value), allowed=allowed)


CLASSES = ("interactive", "standard", "batch", "background")


def rank_of(job: Json) -> int:
    """The smaller is read first."""
    return CLASSES.index(job.get("class", "standard"))


class Described:
    """Reads the environment once, at start."""

    def __init__(self, env: Mapping[str, str]) -> None:
        def number(name: str, default: float) -> float:
            return float(env.get(f"ECHO_{name}", default))

        self.prefill_tokens_per_s = number("PREFILL_TOKENS_PER_S", 50_000)
        self.step_s = number("STEP_S", 0.002)
        self.step_s_per_sequence = number("STEP_S_PER_SEQUENCE", 0.0002)
        self.train_step_s = number("TRAIN_STEP_S", 0.01)
        self.load_s = number("LOAD_S", 0)
        self.context = int(number("CONTEXT", 131_072))
        self.chunk_tokens = int(number("CHUNK_TOKENS", 1024))
        self.kv_tokens = int(number("KV_TOKENS", 0)) or None
        self.models = tuple(env.get("ECHO_MODELS", "echo").split(","))
        self.kinds = tuple(env.get("ECHO_KINDS", "generate,score,train").split(","))
        self.data = Path(env.get("NOIDLE_DATA_DIR", "."))
        self.storage = env.get("NOIDLE_STORAGE", "echo")
        self.engine = env.get("NOIDLE_ENGINE", "echo")

    def step_s_of(self, part_s: float, sequences: int) -> float:
        """Seconds of a step that reads for `part_s` and makes a token for so many sequences."""
        if not sequences:
            return part_s
        return max(part_s, self.step_s) + self.step_s_per_sequence * sequences

    def revision(self, model: str, former: str | None = None) -> str:
        """That of a run's former attempt while it is there, else the newest."""
        if model in self.models:
            return BUILT_IN
        current = self.data / "models" / model / "current"
        newest = current.read_text().strip() if current.is_file() else ""
        for name in filter(None, (former, newest)):
            if (current.parent / name / "echo.json").is_file():
                return name
        raise JobFault.of("model", model, "a model here: " + ", ".join(self.models))

    def model_info(self, model: str, revision: str) -> Json:
        info: Json = {"name": model, "revision": revision, "context": self.context}
        if model not in self.models:
            info["storage"] = self.storage
        return {**info, "weight_bytes": 0, "kv_bytes_per_token": 0, "bytes_per_token": 3.0}

    def check_fits(self, field: str, tokens: int, more: int = 0) -> None:
        if tokens + more > self.context:
            allowed = f"at most {max(0, self.context - more)} tokens"
            if more:
                allowed += f", as {more} are to be generated in a context of {self.context}"
            raise JobFault.of(field, f"{tokens} tokens", allowed)
