"""What is replayed: every trace on both clusters at every load. Owns the grid and the order in
which its replays begin; knows nothing of what comes of them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from routing.simulation.study import Question

CLUSTERS = ("one-cpu-one-gpu", "four-mixed-hosts")
LOADS = (0.5, 0.8, 0.95, 1.2)


class Place(BaseModel):
    """One replay's place in the grid; as large as one trace on one cluster at one load."""

    model_config = ConfigDict(frozen=True)

    trace: str
    cluster: str
    # of the cluster's capacity; absent: all jobs come at time 0
    load: float | None

    @property
    def words(self) -> str:
        coming = "all at once" if self.load is None else f"load {self.load:g}"
        return f"{self.trace} on {self.cluster}, {coming}"


def places(
    traces: Mapping[str, Path], *, released: bool, arrivals: bool
) -> Sequence[tuple[Place, Path]]:
    """Those of long traces first, so that no process is left alone with one in the end."""
    loads = [*([None] if released else []), *(LOADS if arrivals else ())]
    found = [
        (Place(trace=name, cluster=cluster, load=load), path)
        for name, path in traces.items()
        for cluster in CLUSTERS
        for load in loads
    ]
    return sorted(found, key=lambda one: -one[1].stat().st_size)


def in_order(found: Sequence[Place], traces: Sequence[str]) -> Iterator[Place]:
    """As they are shown."""
    for name in traces:
        for cluster in CLUSTERS:
            for load in (None, *LOADS):
                place = Place(trace=name, cluster=cluster, load=load)
                if place in found:
                    yield place


def question(place: Place, path: Path, rows: int | None) -> Question:
    return Question(
        trace=path,
        cluster=place.cluster,
        load=place.load,
        release_all=place.load is None,
        rows=rows,
    )
