"""How quick a model was and what memory it took, as numbers and in words. Knows nothing of how
they are measured."""

from dataclasses import dataclass
from typing import Any

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadFigures:
    """One load of a model."""

    load_ms: float
    # cold, warm or unmeasured: whether its files were in the page cache
    temperature: str
    # resident, files it maps included; absent where the system does not tell
    before_bytes: int | None
    after_bytes: int | None

    def words(self) -> str:
        memory = f"working set {_mib(self.before_bytes)} before, {_mib(self.after_bytes)} after"
        return f"load {self.load_ms / 1000:.2f} s ({self.temperature}), {memory}"

    def fields(self) -> dict[str, Any]:
        return {"load_ms": round(self.load_ms, 3), "load": self.temperature}


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFigures:
    """One text that was read, and what followed it."""

    prompt_tokens: int
    # of these, the ones whose keys and values were in the cache already
    prefix_tokens: int
    tokens: int
    tokenize_ms: float
    # until the first token
    prefill_ms: float
    # after the first token
    decode_ms: float
    # from tokens to text
    stream_ms: float

    @property
    def prefill_tokens_per_s(self) -> float | None:
        return _per_s(self.prompt_tokens - self.prefix_tokens, self.prefill_ms)

    @property
    def decode_tokens_per_s(self) -> float | None:
        return _per_s(self.tokens - 1, self.decode_ms)

    def words(self) -> str:
        reused = f", {self.prefix_tokens} more from the prefix cache" if self.prefix_tokens else ""
        read = self.prompt_tokens - self.prefix_tokens
        parts = [f"prefill {read} tokens{_speed(self.prefill_tokens_per_s)}{reused}"]
        if self.tokens:
            parts.append(f"decode {self.tokens} tokens{_speed(self.decode_tokens_per_s)}")
        return "; ".join(parts)

    def fields(self) -> dict[str, Any]:
        speeds = {
            "prefill_tokens_per_s": self.prefill_tokens_per_s,
            "decode_tokens_per_s": self.decode_tokens_per_s,
        }
        times = {
            "tokenize_ms": self.tokenize_ms,
            "prefill_ms": self.prefill_ms,
            "decode_ms": self.decode_ms,
            "stream_ms": self.stream_ms,
        }
        known = {name: value for name, value in {**times, **speeds}.items() if value is not None}
        return {name: round(value, 3) for name, value in known.items()}


def memory_words(peak_bytes: int | None) -> str:
    return f"peak working set {_mib(peak_bytes)}"


def memory_fields(load: LoadFigures, peak_bytes: int | None) -> dict[str, Any]:
    return {
        "before_bytes": load.before_bytes,
        "after_load_bytes": load.after_bytes,
        "peak_bytes": peak_bytes,
    }


def _per_s(tokens: int, ms: float) -> float | None:
    return 1000 * tokens / ms if tokens > 0 and ms > 0 else None


def _speed(per_s: float | None) -> str:
    return "" if per_s is None else f" at {per_s:.1f} tok/s"


def _mib(size: int | None) -> str:
    return "unmeasured" if size is None else f"{size / _MIB:.0f} MiB"
