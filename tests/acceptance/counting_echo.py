"""The echo engine, which notes the most runs it ever had in one step in the file ECHO_COUNT."""

import os
from pathlib import Path
from typing import Any

from engines.echo.described import Described
from engines.echo.loop import Loop


class Counting(Loop):
    most = 0

    def _step(self, part_s: float) -> list[Any]:
        if len(self._runs) > self.most:
            self.most = len(self._runs)
            Path(os.environ["ECHO_COUNT"]).write_text(str(self.most))
        return super()._step(part_s)


if __name__ == "__main__":
    Counting(Described(os.environ)).run()
