"""The ways in which a run may leave its pool, before the board is told.

Records only; some of them are the engine's own words."""

from dataclasses import dataclass

from engines.protocol import Done, Failed, Yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Back:
    """The run goes back to the held jobs."""

    crashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Every run is to go back, with its engine's last word if that comes in time."""

    wait_s: float


Departure = Done | Failed | Yield | Back
