"""Starts the loop: `python -m engines.echo`."""

import os

from engines.echo.described import Described
from engines.echo.loop import Loop

if __name__ == "__main__":
    Loop(Described(os.environ)).run()
