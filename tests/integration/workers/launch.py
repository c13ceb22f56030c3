"""Starts one worker process for the tests: `launch.py pool ENGINE [INDEX]` or `launch.py router
NAME`. Settings come from the environment, as for any worker."""

import logging
import signal
import sys

from engines.program import load_program, shipped
from noidle.jobs import EngineName
from workers.pool import run_pool
from workers.reporter import PlainSampler
from workers.settings import load_settings


def main() -> int:
    # tests that run in the background may have been told to ignore them
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    settings = load_settings()
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(message)s")
    role, name, *rest = sys.argv[1:]
    if role == "router":
        from workers.router import run_router

        return run_router(settings, name)
    return run_pool(
        settings,
        EngineName(name),
        int(rest[0]) if rest else 0,
        program=load_program(shipped("echo")),
        sampler=PlainSampler(settings.host),
        threads=1,
    )


if __name__ == "__main__":
    sys.exit(main())
