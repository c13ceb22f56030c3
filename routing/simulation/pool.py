"""A pool that batches continuously, in virtual time. Owns how fast runs go beside each other;
knows nothing of who sent them there.

An engine step reads one part of an unread prompt, by class and then the one with the least left,
and makes one token for each sequence whose prompt is read, that one among them if it is its last
part, in one pass over the weights: what the engines of noidle do. Between two changes all steps are
alike, so time is counted in steps: a sequence with 100 tokens to make ends 100 steps on, however
long a step takes meanwhile. A start, an end or a prompt that is read changes the length of a step
at once, not at the next step's beginning. Training takes a share of the time, so steps take longer
beside it."""

import heapq
import math

from routing.simulation.described import DescribedPool
from routing.simulation.due import PASSED_BY_STEPS, Due, Point, Run, turn, whose_turn
from routing.simulation.paces import Paces
from routing.simulation.prefixes import Prefixes
from routing.simulation.request import Fate
from routing.simulation.training import Training


class SimulatedPool:
    """`steps` counts engine steps since the beginning; fractions are steps under way."""

    def __init__(
        self, described: DescribedPool, *, passed_by_steps: float = PASSED_BY_STEPS
    ) -> None:
        self.described = described
        self._passed_by_steps = passed_by_steps
        # leases, that of a training among them
        self.in_flight = 0
        self.kv_tokens = 0
        self.runs = 0
        # seconds in which an answer was made
        self.busy_s = 0.0
        # seconds; when the model is in memory, absent until a job asks for it
        self.ready_s: float | None = None if described.load_s else 0.0
        self.training = Training(described)
        # what a sequence aboard would have found, at any time
        self.paces = Paces(described)
        self._now_s = 0.0
        self._steps = 0.0
        self._runs: dict[int, Run] = {}
        # the first of them is being read; steps that the last turn took, and whether it went to
        # the one that had the least left
        self._last_parts = 1
        self._short_first = False
        self._unread: list[Run] = []
        self._read_from_step = 0.0
        self._read_at_step = math.inf
        # seconds a step spends on the prompt that is read, and those of its last part
        self._part_s = self._last_part_s = 0.0
        self._decoding = 0
        self._due: list[Due] = []
        self._serial = 0
        self._prefixes = Prefixes(described.cache_tokens, described.kv_tokens)
        self._mark()

    @property
    def free(self) -> int:
        return self.described.slots - self.in_flight

    def loaded(self, now_s: float) -> bool:
        """Whether the model is in memory."""
        return self.ready_s is not None and now_s >= self.ready_s

    def there_s(self, now_s: float) -> float:
        """When the model would have been in memory for a job that started at that time."""
        load_s = self.described.load_s
        if self.ready_s is None:
            return now_s + load_s
        return min(now_s + load_s, self.ready_s)

    def fits(self, kv_tokens: int) -> bool:
        room = self.described.kv_tokens - self.kv_tokens
        return self.free > 0 and kv_tokens <= room

    def start(self, fate: Fate) -> None:
        """Takes a run in now; the pool must have been advanced to that time."""
        assert self.fits(fate.request.kv_tokens)
        if self.ready_s is None:
            self.ready_s = self._now_s + self.described.load_s
        self.in_flight += 1
        self.runs += 1
        self.kv_tokens += fate.request.kv_tokens
        self._prefixes.join(fate.request)
        run = self._runs[fate.request.number] = Run(fate, since_step=self._steps)
        self._unread.append(run)
        self._turn_to_next()
        self._share()

    def evict(self, number: int) -> Fate:
        """A run leaves now; what it made is kept, the token under way is not."""
        run = self._runs.pop(number)
        run.gone = True
        if run.decodes:
            self._decoding -= 1
        self._keep(run)
        if run in self._unread:
            first = self._unread[0] is run
            self._unread.remove(run)
            if first:
                self._read_next()
        self._give_back(run.fate)
        self._share()
        return run.fate

    def _keep(self, run: Run) -> None:
        """What it made is kept."""
        fate = run.fate
        before = fate.made
        fate.made += self._made_here(run, self._steps)
        if fate.made and not fate.first_s:
            # due at this very moment
            fate.first_s = self._now_s
        fate.earlier.append(fate.stint(self._now_s, before))

    def made(self, number: int, now_s: float) -> int:
        """Tokens that a run will have made by then, if nothing happens before."""
        run = self._runs[number]
        return run.fate.made + self._made_here(run, self._steps_at(now_s))

    def kv_of(self, number: int) -> int:
        return self._runs[number].fate.request.kv_tokens

    def leaves_s(self) -> float:
        """Seconds until whatever leaves has left: one step, or one part of training."""
        part_s = self.described.train_part_s if self.training.rank is not None else 0.0
        return max(part_s, self._step_s())

    def teach(self, rank: int) -> None:
        """A training of that rank takes a slot."""
        assert self.free > 0
        self.in_flight += 1
        self.training.begin(rank)
        self._share()

    def rest(self, *, paused: bool) -> None:
        """It leaves; paused: before its slice was over."""
        self.in_flight -= 1
        self.training.end(paused=paused)
        self._share()

    def advance(self, now_s: float) -> None:
        """Moves to a time not behind the next event."""
        begun_s = self._begun_s()
        self.training.advance(self._now_s, min(begun_s, now_s), now_s)
        if self._runs:
            self.busy_s += now_s - self._now_s
            self._steps = self._steps_at(now_s)
        self._now_s = now_s

    def next_s(self) -> float:
        """When something happens next; infinite while nothing runs."""
        at_step = self._next_step()
        if at_step == math.inf:
            return math.inf
        return self._begun_s() + max(at_step - self._steps, 0.0) * self._step_s()

    def happen(self, now_s: float) -> list[Fate]:
        """Moves to the next event, which is at `now_s`, and past all of that step; the runs that
        ended."""
        at_step = self._next_step()
        self.advance(now_s)
        # exactly, so that rounding leaves nothing of a step behind
        self._steps = at_step
        if self._read_at_step <= at_step:
            self._finish_reading(now_s)
        ended = []
        while self._due and self._due[0].at_step <= at_step:
            due = heapq.heappop(self._due)
            if due.void:
                continue
            run = due.run
            match due.point:
                case Point.JOIN:
                    self._part_s = self._last_part_s
                    self._decoding += 1
                    run.decodes = True
                case Point.FIRST:
                    run.fate.first_s = now_s
                case Point.LAST:
                    run.fate.finish_s = now_s
                    ended.append(self._runs.pop(due.number).fate)
        self._decoding -= len(ended)
        for fate in ended:
            self._give_back(fate)
        self._share()
        return ended

    def _next_step(self) -> float:
        while self._due and self._due[0].void:
            heapq.heappop(self._due)
        return min(self._read_at_step, self._due[0].at_step if self._due else math.inf)

    def _begun_s(self) -> float:
        """From when on steps are made: the model is there, and a part of training is over."""
        return max(self._now_s, self.ready_s or 0.0, self.training.held_until_s)

    def _steps_at(self, now_s: float) -> float:
        begun_s = self._begun_s()
        return self._steps + (now_s - begun_s) / self._step_s() if now_s > begun_s else self._steps

    def _made_here(self, run: Run, steps: float) -> int:
        """The last token is never cut off: with it a run ends."""
        if steps <= run.join_step:
            return 0
        return min(int(steps - run.join_step), run.fate.request.output - run.fate.made - 1)

    def _step_s(self) -> float:
        alone_s = self.described.step_s_of(self._part_s, self._decoding)
        return alone_s / (1 - self.training.share) if self.training.share else alone_s

    def _give_back(self, fate: Fate) -> None:
        self.in_flight -= 1
        self.kv_tokens -= fate.request.kv_tokens
        self._prefixes.leave(fate.request)

    def _share(self) -> None:
        """Something changed: training may get more of the time, or less."""
        if self.training.rank is not None:
            unread = min((run.fate.rank for run in self._unread), default=None)
            self.training.share_with(self._now_s, others=bool(self._runs), unread_rank=unread)
        self._mark()

    def _mark(self) -> None:
        unread = bool(self._unread)
        self.paces.note(self._now_s, self._decoding, self._part_s, self.training.beside(unread))

    def _turn_to_next(self) -> None:
        """Somebody came. A prompt whose last part is under way is not put aside."""
        first = self._unread[0]
        if not first.turns:
            self._read_next()
        elif self._short_first and not first.decodes:
            read = (self._steps - self._read_from_step) * self.described.chunk_tokens
            before, first.left = first.left, max((first.left or 0.0) - read, 1.0)
            if min(self._unread, key=turn) is first:
                first.left = before
            else:
                first.turns += 1
                first.join_step = math.inf
                self._read_next()

    def _begin_reading(self) -> None:
        run = self._unread[0]
        fate = run.fate
        if run.left is None:
            fate.reused = self._prefixes.reuse(fate.request)
            # what was made before it was evicted is read again
            run.left = fate.request.prompt + fate.made - fate.reused
        chunk, per_s = self.described.chunk_tokens, self.described.prefill_tokens_per_s
        parts = math.ceil(run.left / chunk)
        if not self._short_first and parts > self._last_parts:
            # the turn of who was passed by: as many steps as were taken before it
            self._part_s = self._last_part_s = chunk / per_s
            self._read_from_step = self._steps
            self._read_at_step = self._steps + self._last_parts
            run.turns += 1
            run.join_step = math.inf
            return
        self._part_s, self._last_part_s = chunk / per_s, (run.left - (parts - 1) * chunk) / per_s
        self._read_from_step, self._read_at_step = self._steps, self._steps + parts
        run.turns += 1
        join = run.join_step = self._read_at_step - 1
        self._expect(join, Point.JOIN, run)
        if not fate.made:
            self._expect(join + 1, Point.FIRST, run)
        self._expect(join + fate.request.output - fate.made, Point.LAST, run)

    def _expect(self, at_step: float, point: Point, run: Run) -> None:
        self._serial += 1
        number = run.fate.request.number
        heapq.heappush(self._due, Due(at_step, number, point, self._serial, run, run.turns))

    def _finish_reading(self, now_s: float) -> None:
        run = self._unread[0]
        self._last_parts = max(int(self._read_at_step - self._read_from_step), 1)
        if run.join_step == math.inf:
            assert run.left is not None
            run.left -= self._last_parts * self.described.chunk_tokens
            self._read_next()
            return
        fate = self._unread.pop(0).fate
        fate.read_s = now_s
        self._prefixes.read(fate.request)
        self._read_next()

    def _read_next(self) -> None:
        self._part_s, self._read_at_step = 0.0, math.inf
        if self._unread:
            since_step = self._steps - self._passed_by_steps
            first = whose_turn(self._unread, since_step, after_short=self._short_first)
            self._short_first = first is min(self._unread, key=turn)
            self._unread.remove(first)
            self._unread.insert(0, first)
            self._begin_reading()
