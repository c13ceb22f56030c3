"""One pool as a process: `told_pool.py ENGINE INDEX`. Its memory pressure is what the file
TOLD_PRESSURE says, its engine program the declaration TOLD_PROGRAM."""

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path

from engines.program import load_program
from noidle.jobs import EngineName
from noidle.snapshot import Pressure
from workers.pool import run_pool
from workers.reporter import PlainSampler, Sample
from workers.settings import load_settings


class ToldSampler(PlainSampler):
    def sample(self, engine_pid: int | None) -> Sample:
        told = Path(os.environ["TOLD_PRESSURE"]).read_text()
        return replace(super().sample(engine_pid), pressure=Pressure(told))


def main() -> int:
    settings = load_settings()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    return run_pool(
        settings,
        EngineName(sys.argv[1]),
        int(sys.argv[2]),
        program=load_program(Path(os.environ["TOLD_PROGRAM"])),
        sampler=ToldSampler(settings.host),
    )


if __name__ == "__main__":
    sys.exit(main())
