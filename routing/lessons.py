"""The part of the job board by which a router learns from runs that ended, hears which profile
counts, and tells what it learned."""

from typing import Protocol

from noidle.profile import ProfileName
from noidle.snapshot import RouterDetail
from routing.ended import Run


class Lessons(Protocol):
    """See routing.board.Board, of which this is a part."""

    def runs(self) -> list[Run]:
        """What the runs took that ended with a result since the last call, the first first; the
        last 512 are kept for it."""

    def profile(self) -> ProfileName: ...

    def set_profile(self, name: ProfileName) -> None: ...

    def weights(self) -> dict[str, float]:
        """Shares of labels relative to others, where they are not 1."""

    def set_weight(self, label: str, weight: float) -> bool:
        """1 forgets the label. False where as many labels as may be have a weight."""

    def tell(self, detail: RouterDetail) -> None:
        """What the deciding router learned, kept for 10 s."""

    def told(self) -> RouterDetail | None: ...
