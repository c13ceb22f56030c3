"""The outcome of one check. A wire model: `noidle doctor --json` prints a list of these."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Outcome(StrEnum):
    """How much a finding matters."""

    OK = "ok"  # nothing to do
    WARN = "warn"  # works, with a drawback
    FAIL = "fail"  # must be put right first


class Check(BaseModel):
    """One thing looked at. `remedy` says what to do, wherever the outcome is not ok."""

    model_config = ConfigDict(frozen=True)

    # what was looked at: redis, machine, engine or package, and which property of it
    area: str
    name: str
    outcome: Outcome
    found: str
    remedy: str | None = None


class Area:
    """Makes the checks of one area."""

    def __init__(self, name: str) -> None:
        self._name = name

    def ok(self, name: str, found: str) -> Check:
        return Check(area=self._name, name=name, outcome=Outcome.OK, found=found)

    def warn(self, name: str, found: str, remedy: str) -> Check:
        return Check(area=self._name, name=name, outcome=Outcome.WARN, found=found, remedy=remedy)

    def fail(self, name: str, found: str, remedy: str) -> Check:
        return Check(area=self._name, name=name, outcome=Outcome.FAIL, found=found, remedy=remedy)


def failures(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.outcome is Outcome.FAIL]
