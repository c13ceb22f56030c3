"""Starts the engine: `python -m engines.tensor`.

Reads the environment, the only place that does, before torch is imported: its thread pools
take their sizes then."""

import os
import sys
import traceback

from engines.environment import EngineEnvironment
from engines.tensor.channel import Channel
from noidle.errors import ConfigError
from tensor_llm.openmp import spin_shortly


def main() -> None:
    channel = Channel()
    environment = EngineEnvironment.read(os.environ)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[variable] = str(environment.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    spin_shortly(os.environ)
    from engines.tensor.loop import Loop

    channel.listen()
    Loop(environment, channel).run()


if __name__ == "__main__":
    status = 0
    try:
        main()
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        status = 78
    except BaseException:  # noqa: BLE001
        # the end of the process: its pool reads the last line of this
        traceback.print_exc()
        status = 70
    sys.stderr.flush()
    # a thread in the middle of a load must not keep the process alive
    os._exit(status)
