"""What one look decided about all jobs. Owns that the jobs it did not get to cost next to nothing;
knows nothing of how a choice is made."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import overload

from routing.board import HeldJob
from routing.placement import Action, Placement


class Decided(Sequence[Placement]):
    """In the order in which jobs are served; behind those that were looked at, a thousand may
    follow, whose placements are made only while somebody goes through them."""

    def __init__(
        self,
        looked: list[Placement],
        behind: list[HeldJob],
        peek: Callable[[HeldJob], Placement],
    ) -> None:
        # one each for the jobs that were looked at
        self.looked = looked
        # the other jobs
        self.behind = behind
        self._peek = peek

    def __len__(self) -> int:
        return len(self.looked) + len(self.behind)

    def __iter__(self) -> Iterator[Placement]:
        return chain(self.looked, map(self._waiting, self.behind))

    def jobs(self) -> Iterator[HeldJob]:
        return chain((one.job for one in self.looked), self.behind)

    @overload
    def __getitem__(self, place: int) -> Placement: ...

    @overload
    def __getitem__(self, place: slice) -> list[Placement]: ...

    def __getitem__(self, place: int | slice) -> Placement | list[Placement]:
        return list(self)[place]

    def _waiting(self, job: HeldJob) -> Placement:
        return Placement(job, Action.WAIT, peek=self._peek)
