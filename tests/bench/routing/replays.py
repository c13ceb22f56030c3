"""Replays in processes of their own. Owns what is played in each, and that the fault of one policy
leaves the others their figures; knows nothing of bars."""

import dataclasses
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from routing.simulation.metrics import Figures
from routing.simulation.schedulers import NOIDLE
from routing.simulation.study import Setting, play, prepare
from tests.bench.routing.grid import Place, question

BESIDE_TRAINING = f"{NOIDLE} beside training"


class Replayed(BaseModel):
    """One place of the grid under some policies."""

    model_config = ConfigDict(frozen=True)

    place: Place
    jobs: int
    # what was done to the trace
    fitting: tuple[str, ...]
    capacity_s: float
    lower_bound_s: float
    # by policy, and under BESIDE_TRAINING
    figures: dict[str, Figures]
    # by the same: what went wrong instead
    faults: dict[str, str]
    # CPU time of each
    cpu_s: dict[str, float]


def replay(
    place: Place, path: Path, rows: int | None, policies: Sequence[str], training: bool
) -> Replayed:
    """Prepares once for all policies."""
    asked = question(place, path, rows)
    setting = prepare(asked)
    figures: dict[str, Figures] = {}
    faults: dict[str, str] = {}
    cpu_s: dict[str, float] = {}
    wanted = [(policy, policy, setting) for policy in policies]
    if training:
        wanted.append((BESIDE_TRAINING, NOIDLE, _with_training(setting)))
    for name, policy, played in wanted:
        began_s = time.process_time()
        try:
            figures[name] = play(played, policy)
        except Exception:  # noqa: BLE001 - one rule that fails must not cost the others theirs
            faults[name] = traceback.format_exc()
        cpu_s[name] = time.process_time() - began_s
    return Replayed(
        place=place,
        jobs=len(setting.requests),
        fitting=tuple(setting.words),
        capacity_s=setting.capacity_s,
        lower_bound_s=setting.lower_bound_s,
        figures=figures,
        faults=faults,
        cpu_s=cpu_s,
    )


def _with_training(setting: Setting) -> Setting:
    """The very same arrivals."""
    asked = dataclasses.replace(setting.question, training=True)
    return dataclasses.replace(setting, question=asked)
