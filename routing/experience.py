"""What the runs that ended teach about those to come. Owns what is learned: how much slower pools
are than their rates say, how long answers are, how far predictions were off. Bounded in memory;
knows nothing of how it is used."""

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping

from noidle.snapshot import PredictionError
from routing.cluster import AS_TOLD, Drag, LengthKey, Promise, length_key
from routing.ended import Run

WEIGHT = 0.1
"""Of a new observation; about the last twenty runs of a pool count."""
LEAST, MOST = 0.2, 20.0
SLACK_S = 0.1
"""Added to what was predicted and what was seen: messages and looks take that long."""
OVERDUE_S = 1.0
"""Added to the longest that a run may take, before it tells something without having ended."""
PLAIN = 2.0
"""What is less than so many times off is taken as told."""
WINDOW = 64
"""Runs of one kind, model and label that are remembered."""
FEWEST = 8
"""Fewer tell nothing of how long answers are."""
KEYS = 512
ERRORS = 512


class Experience:
    """Told of runs, it gives what the policy looks at; a mapping is replaced when it changes."""

    def __init__(self) -> None:
        self.drag: Mapping[str, Drag] = {}
        self.lengths: Mapping[LengthKey, float] = {}
        self._drag: dict[str, Drag] = {}
        self._windows: OrderedDict[LengthKey, deque[float]] = OrderedDict()
        self._errors: deque[tuple[str, float]] = deque(maxlen=ERRORS)
        # something was learned since it was published
        self._news = False

    def learn(self, runs: Iterable[tuple[Run, Promise | None]]) -> None:
        """Of each run also the promise, where this router made it."""
        for run, promise in runs:
            self._news = True
            self._length(run)
            if promise is not None:
                self._compare(run, promise)

    def publish(self, promises: Mapping[str, tuple[Promise, ...]], now_ms: int) -> None:
        """From now on the policy sees what was learned. What is overdue tells before it ends: a
        pool that is ten times slower than it claims must not be believed until its first run is
        over."""
        for pool, made in promises.items():
            first = min(made, key=_ends_ms, default=None)
            if first is None or first.read_ms is None or not first.tokens:
                continue
            drag = self._drag.get(pool, AS_TOLD)
            # prompts that were sent there later may have been read before its own
            later_s = max(one.sent_s for one in made) - first.sent_s
            least = _drag_so_far(first, (now_ms - first.leased_ms) / 1000, later_s)
            if least > max(PLAIN, drag.decode):
                self._drag[pool] = drag._replace(decode=min(least, MOST))
                self._news = True
        if self._news:
            self._news = False
            self._publish()

    def forget(self, pools: Iterable[str]) -> None:
        """Pools that are gone; all others are named."""
        kept = set(pools)
        if self._drag.keys() - kept:
            self._drag = {pool: drag for pool, drag in self._drag.items() if pool in kept}
            self._news = True

    def error(self) -> PredictionError | None:
        """Over the last 512 runs."""
        return _error([error for _, error in self._errors]) if self._errors else None

    def errors(self) -> dict[str, PredictionError]:
        """By pool, over the same runs."""
        found: dict[str, list[float]] = {}
        for pool, error in self._errors:
            found.setdefault(pool, []).append(error)
        return {pool: _error(errors) for pool, errors in found.items()}

    def _length(self, run: Run) -> None:
        if run.kind != "generate":
            return
        key = length_key(run.kind, run.model, run.label, run.max_tokens)
        window = self._windows.pop(key, None) or deque(maxlen=WINDOW)
        window.append(run.tokens / max(run.max_tokens, 1))
        self._windows[key] = window
        if len(self._windows) > KEYS:
            self._windows.popitem(last=False)

    def _compare(self, run: Run, promise: Promise) -> None:
        if promise.read_ms is None:
            return
        took_s = (run.ended_ms - run.leased_ms) / 1000
        predicted_s = (promise.ends_ms - promise.leased_ms) / 1000
        self._errors.append((promise.pool, (predicted_s - took_s) / max(took_s, 0.001)))
        resumed = run.first_ms is not None and run.first_ms < run.leased_ms
        if resumed or promise.ready_ms > promise.leased_ms:
            # its first token lies before its lease; what loading takes says nothing of the rates
            return
        drag = self._drag.get(promise.pool, AS_TOLD)
        first_ms = run.ended_ms if run.first_ms is None else run.first_ms
        if first_ms < run.leased_ms:
            return
        moved = _nearer(drag.read, _read_drag(promise, (first_ms - run.leased_ms) / 1000))
        decode = drag.decode
        if run.first_ms is not None and run.tokens > 1 and promise.tokens:
            made_s = (run.ended_ms - run.first_ms) / 1000
            decode = _nearer(decode, _decode_drag(promise, made_s, run.tokens - 1))
        self._drag[promise.pool] = Drag(moved, decode)

    def _publish(self) -> None:
        self.drag = dict(self._drag)
        self.lengths = {
            key: sorted(window)[len(window) // 2]
            for key, window in self._windows.items()
            if len(window) >= FEWEST
        }


def _error(errors: list[float]) -> PredictionError:
    sizes = sorted(map(abs, errors))
    return PredictionError(
        runs=len(sizes),
        p50=sizes[len(sizes) // 2],
        p95=sizes[int(len(sizes) * 0.95)],
        bias=sum(errors) / len(sizes),
    )


def _ends_ms(promise: Promise) -> int:
    return promise.ends_ms


def _nearer(drag: float, seen: float) -> float:
    """The drag after one more observation, as a mean on a logarithmic scale."""
    seen = min(max(seen, LEAST), MOST)
    return drag * math.exp(WEIGHT * math.log(seen / drag))


def _drag_so_far(promise: Promise, taken_s: float, later_s: float) -> float:
    """How many times longer than by the rates a run takes that has not ended, where all others
    are given the blame that they may have."""
    assert promise.read_ms is not None
    read_s = (promise.read_ms - promise.leased_ms) / 1000 / promise.drag.read
    step_s = max(promise.full_step_s, promise.crowded_step_s)
    others_s = later_s * promise.drag.read
    return taken_s / (read_s + others_s + promise.tokens * step_s + OVERDUE_S)


def _read_drag(promise: Promise, took_s: float) -> float:
    """How many times longer than by the rates the prompt took, with those before it. What is less
    than twice off is the order in which prompts were read."""
    assert promise.read_ms is not None
    predicted_s = (promise.read_ms - promise.leased_ms) / 1000 / promise.drag.read
    seen = (max(took_s, 0.0) + SLACK_S) / (max(predicted_s, 0.0) + SLACK_S)
    return 1.0 if 1 / PLAIN < seen < PLAIN else seen


def _decode_drag(promise: Promise, took_s: float, steps: int) -> float:
    """How many times longer than by the rates decode steps took. Prompts that were sent there after
    its own, or were unread before, may have been read between its steps, and all slots may have
    been taken: that is no fault of the rates."""
    if took_s < steps * promise.step_s:
        return took_s / (steps * promise.step_s)
    assert promise.read_ms is not None
    before_s = (promise.read_ms - promise.leased_ms) / 1000 / promise.drag.read - promise.prompt_s
    others_s = promise.later_s + max(before_s, 0.0)
    crowded_s = steps * max(promise.crowded_step_s, promise.step_s, 1e-6)
    return max((took_s - others_s * promise.drag.read) / crowded_s, 1.0)
