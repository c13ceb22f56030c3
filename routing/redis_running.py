"""The part of the Redis board that looks into pools and takes leases back. Owns the calls of the
scripts running and preempt; knows nothing of who is taken back for whom."""

import json
from pathlib import Path
from typing import Any

import redis

from noidle.connection import reachable
from noidle.script import Argument, Script
from routing import wire
from routing.board import PumpRole
from routing.bounds import PREEMPTIONS_IN_A_ROW
from routing.running import Preemption, RunningJob

SCRIPTS = Path(__file__).parent / "scripts"


class RedisRunning:
    """Holds the connection and all scripts for the rest of the board, too."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._scripts = {path.stem: Script(path.stem, SCRIPTS) for path in SCRIPTS.glob("*.lua")}

    def _call(self, script: str, *arguments: Argument) -> Any:
        with reachable(self._client):
            return self._scripts[script](self._client, *arguments)

    def running(self, pools: list[str]) -> list[RunningJob]:
        return [wire.to_running(entry) for entry in json.loads(self._call("running", *pools))]

    def preempt(self, role: PumpRole, wishes: list[Preemption]) -> list[bool]:
        if not wishes:
            return []
        arguments = [one for wish in wishes for one in wire.preemption_arguments(wish)]
        answer = self._call("preempt", wire.role_text(role), PREEMPTIONS_IN_A_ROW, *arguments)
        return [letter == "1" for letter in answer]
