"""The pump's view of the cluster, as fresh as it must be and no fresher. Owns what is read how
often and what is remembered between looks; knows nothing of decisions."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import compress, count
from operator import attrgetter, is_not

from noidle.jobs import EngineName
from noidle.snapshot import ModelInfo, PoolSnapshot
from routing.arrivals import Arrivals
from routing.board import Board, PoolLoad
from routing.cluster import Cluster
from routing.experience import Experience
from routing.placement import Placement
from routing.promises import Promises
from routing.rhythm import Timer
from routing.waits import Waits
from routing.warm import Warm, room_bytes

SNAPSHOTS_S = 0.25
"""Snapshots come once a second and on change; at a thousand pools reading them is what costs."""
NEWS_A_LOOK = 64
"""Of a thousand pools a quarter says something new each time; so many are weighed in one look, so
that none takes long."""
PUBLISH_S = 0.5
"""What was learned counts from then on."""
IDLE_S = 1.0
"""With nothing to decide they are read less often, but read: see `shared`."""
SHARED_S = 60.0
"""An engine counts as having several pools until so long after the last time it had."""

_weighty = attrgetter(
    "state", "pressure", "slots", "kinds", "models", "storage", "loaded", "device"
)


class Picture:
    """Reads through the board; `clock` counts seconds and never goes back."""

    def __init__(self, board: Board, clock: Callable[[], float]) -> None:
        self._board = board
        self._clock = clock
        self.promises = Promises()
        self.warm = Warm()
        self.arrivals = Arrivals()
        self.experience = Experience()
        self.waits = Waits()
        self._publish = Timer(clock, PUBLISH_S)
        self._pools: tuple[PoolSnapshot, ...] = ()
        self._models: dict[str, ModelInfo] = {}
        # the snapshots that were read last, and the places of those not shown yet
        self._fresh: tuple[PoolSnapshot, ...] = ()
        self._due: list[int] = []
        # when it was read, by this process's clock, and what Redis's clock said then
        self._read_s: float | None = None
        self._read_ms = 0
        self._shared: dict[EngineName, float] = {}

    @property
    def pools(self) -> tuple[PoolSnapshot, ...]:
        """As they were last read."""
        return self._pools

    def now_ms(self) -> int:
        """Redis's clock, as of the last reading and moved on by this process's own."""
        if self._read_s is None:
            self.refresh()
        assert self._read_s is not None
        return self._read_ms + int((self._clock() - self._read_s) * 1000)

    def remember(self, placement: Placement, now_ms: int) -> None:
        """A lease was granted."""
        self.promises.make(placement, now_ms)
        assert placement.pool is not None
        self.warm.note(placement.job, placement.pool.pool, room_bytes(placement))

    def learn(self) -> None:
        """From the runs that ended since the last time; their promises are fulfilled."""
        runs = self._board.runs()
        self.experience.learn([(run, self.promises.end(run.job)) for run in runs])

    def refresh(self) -> None:
        """Reads the snapshots now."""
        now_s = self._clock()
        self._offer(tuple(sorted(self._board.pools(), key=lambda pool: pool.pool)))
        self._models = self._board.models()
        present = {pool.pool for pool in self._pools}
        self.warm.forget(present)
        self.experience.forget(present)
        self._read_ms = self._board.now_ms()
        self._read_s = self._clock()
        counts = Counter(pool.engine for pool in self._pools)
        for engine in [engine for engine, pools in counts.items() if pools > 1]:
            self._shared[engine] = now_s

    def _offer(self, pools: tuple[PoolSnapshot, ...]) -> None:
        """What changes where leases may go is taken in at once, the rest a part with each look."""
        if [one.pool for one in pools] == [one.pool for one in self._pools]:
            late = set(self._due)
            new = list(compress(count(), map(is_not, pools, self._pools)))
            self._due = [
                i for i in new if i not in late and _weighty(pools[i]) == _weighty(self._pools[i])
            ]
            # the last round's are not put off again
            self._take_in(pools, [i for i in new if i not in set(self._due)])
        else:
            self._pools, self._due = pools, []
        self._fresh = pools

    def _take_in(self, fresh: tuple[PoolSnapshot, ...], places: Iterable[int]) -> None:
        pools = list(self._pools)
        for i in places:
            pools[i] = fresh[i]
        self._pools = tuple(pools)

    def glance(self) -> None:
        """Keeps an eye on which pools there are while nothing is to be decided."""
        self._refresh_after(IDLE_S)

    def _refresh_after(self, age_s: float) -> None:
        if self._read_s is None or self._clock() - self._read_s >= age_s:
            self.refresh()

    def cluster(self, loads: Mapping[str, PoolLoad]) -> Cluster:
        """With what is promised to the pools as of now."""
        self._refresh_after(SNAPSHOTS_S)
        if self._due:
            self._take_in(self._fresh, self._due[:NEWS_A_LOOK])
            del self._due[:NEWS_A_LOOK]
        now_s = self._clock()
        promises = self.promises.settle(loads)
        if self._publish.due():
            self.experience.publish(promises, self.now_ms())
        return Cluster(
            pools=self._pools,
            loads=loads,
            models=self._models,
            promises=promises,
            drag=self.experience.drag,
            lengths=self.experience.lengths,
            waits=self.waits.factors,
            warm=self.warm.where,
            urgent_per_s=self.arrivals.per_s(self.now_ms()),
            serving=self.promises.serving,
            lifted=self.promises.lifted,
            shared=frozenset(
                engine for engine, at_s in self._shared.items() if now_s - at_s < SHARED_S
            ),
        )
