"""Models in memory: found, loaded, shared by runs, and let go.

Owns who may use which revision and what leaves when memory is short: idle models, the longest
unused first, and at once those that a newer revision replaced. Knows nothing of batches.

Runs are given models by the loop's thread and, after a load, by the porter's: hence the lock."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from engines.tensor.porter import Progress
from engines.tensor.step_memory import StepMemory
from noidle.errors import InvalidJob
from noidle.snapshot import ModelInfo
from tensor_llm.chat import ChatTemplate
from tensor_llm.serving.core import Core
from tensor_llm.store import ModelStore
from tensor_llm.tokenizer import Tokenizer

WAIT_S = 0.5


@dataclass(slots=True, kw_only=True, eq=False)
class Resident:
    """A revision of a model in memory."""

    name: str
    revision: str
    tokenizer: Tokenizer
    # absent: the model came without one
    chat: ChatTemplate | None
    core: Core
    # tokens: what the model was made for, and what fits here
    context: int
    capacity: int
    # any of them ends an answer
    eos_tokens: frozenset[int]
    weight_bytes: int
    cache_bytes: int
    # beside these, while it takes a step
    step_memory: StepMemory = field(default_factory=StepMemory)
    # runs that hold it
    users: int = 0
    used_at_s: float = 0.0

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.cache_bytes


class Opener(Protocol):
    """Where and how models are put into memory."""

    def prepare(self, progress: Progress) -> None:
        """Whatever takes long the first time."""

    def needed_bytes(self, info: ModelInfo) -> int:
        """The least a model takes: its weights and the cache of one short run."""

    def room_bytes(self, taken: int) -> int | None:
        """What is left beside `taken` bytes of models; None where nobody can tell."""

    def open(self, info: ModelInfo, room_bytes: int | None, progress: Progress) -> Resident: ...


class Library:
    """Every `take` and `load` counts a user; every user is given back once."""

    def __init__(
        self,
        store: ModelStore,
        opener: Opener,
        clock: Callable[[], float],
        on_short: Callable[[], bool],
    ) -> None:
        self._store = store
        self._opener = opener
        self._clock = clock
        # frees what is kept only to be quick; true if more may come free later
        self._on_short = on_short
        self._residents: list[Resident] = []
        self._changed = threading.Condition()
        # somebody waits for memory: who comes after it queues up
        self.short = False

    @property
    def loaded(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.name for one in tuple(self._residents)))

    @property
    def kv_tokens(self) -> tuple[int, int] | None:
        """Of all models in memory, total and free; None while there is none."""
        cores = [one.core for one in tuple(self._residents)]
        if not cores:
            return None
        return sum(one.kv_tokens_total for one in cores), sum(one.kv_tokens_free for one in cores)

    def working_bytes(self, part_tokens: Callable[[str], int]) -> int | None:
        """What the largest step takes beside them: models take turns. `part_tokens` of a prompt
        are read by a model in one step at most."""
        steps = [one.step_memory.bytes(part_tokens(one.name)) for one in tuple(self._residents)]
        return max(steps, default=None)

    def newest(self, name: str) -> str:
        """The revision that a new run uses.

        Raises:
            InvalidJob: there is no such model here.
        """
        revision = self._store.current(name)
        if revision is None:
            known = ", ".join(self._store.names()) or "none yet: train one"
            raise InvalidJob.of("model", name, f"a model that is here: {known}")
        return revision

    def revision_for(self, name: str, former: str | None) -> str:
        """That of the former attempt while it is there, else the newest."""
        newest = self.newest(name)
        return former if former in self._store.revisions(name) else newest

    def take(self, name: str, revision: str) -> Resident | None:
        """The revision if it is in memory."""
        with self._changed:
            for one in self._residents:
                if (one.name, one.revision) == (name, revision):
                    one.users += 1
                    return one
        return None

    def take_any(self, wanted: Callable[[Resident], bool]) -> Resident | None:
        """One in memory of which that is true."""
        with self._changed:
            for one in self._residents:
                if wanted(one):
                    one.users += 1
                    return one
        return None

    def hold(self, resident: Resident) -> None:
        """One user more of a model that has one."""
        with self._changed:
            resident.users += 1

    def give(self, resident: Resident) -> None:
        with self._changed:
            resident.users -= 1
            resident.used_at_s = self._clock()
            self._drop_replaced(resident.name)
            self._changed.notify_all()

    def load(self, name: str, revision: str, progress: Progress) -> Resident:
        """From memory or storage; waits for runs to end where only they can make room.

        Raises:
            InvalidJob: it needs more memory than there is.
            CheckpointError: its files cannot be used.
        """
        known = self.take(name, revision)
        if known is not None:
            return known
        self._opener.prepare(progress)
        info = self._store.info(name, revision)
        self.make_room(self._opener.needed_bytes(info), "model", name, progress)
        resident = self._opener.open(info, self._room_bytes(), progress)
        resident.users = 1
        with self._changed:
            self._residents.append(resident)
            self._drop_replaced(name)
        return resident

    def make_room(self, needed: int, field: str, value: str, progress: Progress) -> None:
        """Lets idle models go, and waits for busy ones, until so many bytes are free.

        Raises:
            InvalidJob: even without any model there is less.
        """
        with self._changed:
            while (room := self._room_bytes()) is not None and room < needed:
                may_wait = self._on_short()
                if self._drop_idle():
                    continue
                if not self._residents and not may_wait:
                    allowed = f"what fits in {room >> 20} MiB of memory"
                    raise InvalidJob.of(field, f"{value} ({needed >> 20} MiB)", allowed)
                self.short = True
                progress.mark()
                self._changed.wait(WAIT_S)
            self.short = False

    def _room_bytes(self) -> int | None:
        return self._opener.room_bytes(sum(one.bytes for one in tuple(self._residents)))

    def _drop_idle(self) -> bool:
        idle = [one for one in self._residents if not one.users]
        if not idle:
            return False
        self._let_go(min(idle, key=lambda one: one.used_at_s))
        return True

    def _drop_replaced(self, name: str) -> None:
        """Older revisions, and all of a model that was removed from the store."""
        newest = self._store.current(name)
        for one in [one for one in self._residents if one.name == name]:
            if not one.users and one.revision != newest:
                self._let_go(one)

    def _let_go(self, resident: Resident) -> None:
        self._residents.remove(resident)
        resident.core.close()
