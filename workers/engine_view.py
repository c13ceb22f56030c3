"""What a pool knows of its engine program, gathered from what it says.

Owns the latest hello, rates, room and models. Written by the board loop, read by the reporter;
knows nothing of runs."""

from engines.protocol import AnyEvent, Done, Drop, Hello, ModelSeen, Pause, RatesMeasured, Step
from noidle.snapshot import Rates


class EngineView:
    """Each field is replaced whole, so a reader in another thread sees no half of it."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        # why the engine is not up
        self.why: str | None = "its engine starts"
        # short lives in a row; their number says whether waiting helps
        self.failures = 0
        self.rates = Rates()
        # those of the program itself; what lies on the storage is looked up there, for it may go
        self.models: tuple[str, ...] = ()
        self._seen: set[str] = set()
        self.loaded: tuple[str, ...] = ()
        # absent: not bounded by tokens, or not known before a model is in memory
        self.kv_tokens_total: int | None = None
        self.kv_tokens_free: int | None = None
        # what a step takes beside weights and cache
        self.working_bytes: int | None = None
        self.batch: int | None = None
        # it finds prompts that begin alike in its cache; known once a run said how much it found
        self.keeps_prompts = False

    def hear(self, event: AnyEvent) -> bool:
        """True if routers should be told at once."""
        match event:
            case Step():
                return self._step(event)
            case Hello():
                self.hello, self.why = event, None
                self.models = tuple(dict.fromkeys((*self.models, *event.models)))
                self.kv_tokens_total = self.kv_tokens_free = event.kv_tokens_total
            case RatesMeasured():
                self.rates = event.plain()
            case Done() if event.result.prefix_tokens is not None and not self.keeps_prompts:
                self.keeps_prompts = True
            case ModelSeen() if event.model.name not in self._seen:
                self._seen.add(event.model.name)
                if event.model.storage is None:
                    self.models = (*self.models, event.model.name)
            case _:
                return False
        return True

    def pause(self, run: str, *, free: bool) -> Drop | Pause:
        """What makes the engine end a run that is to go on later."""
        if self.hello is not None and self.hello.pauses:
            return Pause(run=run, free=free)
        return Drop(run=run)

    def down(self, why: str, failures: int) -> None:
        """Its life ended; nothing is in its memory any more."""
        self.hello, self.why, self.failures = None, why, failures
        self.loaded, self.batch, self.working_bytes = (), None, None
        self.kv_tokens_total = self.kv_tokens_free = None

    def _step(self, step: Step) -> bool:
        self.kv_tokens_free = step.kv_tokens_free
        self.batch = step.batch
        self.working_bytes = step.working_bytes
        bound = step.kv_tokens_total
        if bound is None and self.hello is not None:
            bound = self.hello.kv_tokens_total
        if (step.loaded, bound) == (self.loaded, self.kv_tokens_total):
            return False
        self.loaded, self.kv_tokens_total = step.loaded, bound
        return True
