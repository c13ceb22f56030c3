"""Models that came into memory and were not measured yet, and the one that is being measured.

Owns whose turn it is, and that it ends as soon as anybody has work. Knows nothing of what is
measured or of the runs."""

from collections import Counter
from collections.abc import Callable

from engines.tensor.calibration import Calibration
from engines.tensor.library import Library, Resident
from engines.tensor.pace import Pace
from engines.tensor.rates import RateBook

TRIES = 3
"""A model of which the measurement was broken off so often is left to what its work shows."""


class Measuring:
    """Advance it while there is nothing else to do; stop it before anything else is done."""

    def __init__(
        self,
        library: Library,
        *,
        rates: RateBook,
        pace: Pace,
        slots: int,
        settle: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._library, self._rates, self._pace = library, rates, pace
        self._slots, self._settle, self._clock = slots, settle, clock
        self._tries: Counter[str] = Counter()
        self._now: tuple[Resident, Calibration] | None = None

    @property
    def borrowed_tokens(self) -> int:
        """Of caches, that count as free."""
        return self._now[1].borrowed_tokens if self._now else 0

    def advance(self) -> bool:
        """One step; false if nothing is left to measure."""
        if self._now is None:
            self._now = self._next()
        if self._now is None:
            return False
        resident, calibration = self._now
        self._pace.alone = True
        goes_on = calibration.advance()
        self._pace.alone = False
        if not goes_on:
            self._tries[resident.name] = TRIES
            self._rates.tell_soon()
            self.stop()
        return True

    def stop(self) -> None:
        if self._now is None:
            return
        resident, calibration = self._now
        self._now = None
        calibration.close()
        self._library.give(resident)

    def _next(self) -> tuple[Resident, Calibration] | None:
        # of several revisions one is as quick as the other
        resident = self._library.take_any(lambda one: self._tries[one.name] < TRIES)
        if resident is None:
            return None
        self._tries[resident.name] += 1
        self._settle()
        calibration = Calibration(
            resident.core,
            self._rates.of(resident.name),
            rows=self._slots,
            capacity=resident.capacity,
            clock=self._clock,
        )
        return resident, calibration
