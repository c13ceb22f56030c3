"""The part of the Redis board by which a router learns, and is told and tells what goes first. Owns
three small keys and the list of runs; knows nothing of what is learned."""

import json
from typing import cast

from noidle import keys
from noidle.connection import reachable
from noidle.profile import ProfileName
from noidle.snapshot import RouterDetail
from routing import wire
from routing.bounds import RUNS_KEPT, TOLD_MS, WEIGHTS_KEPT
from routing.ended import Run
from routing.redis_running import RedisRunning


class RedisLessons(RedisRunning):
    """A part of a Board."""

    def runs(self) -> list[Run]:
        with reachable(self._client):
            found = cast("list[str] | None", self._client.rpop(keys.RUNS, RUNS_KEPT))
        return [wire.to_run(json.loads(entry)) for entry in found or ()]

    def profile(self) -> ProfileName:
        with reachable(self._client):
            name = self._client.get(keys.PROFILE)
        # one that a newer version set is not known here
        return ProfileName(name) if name in list(ProfileName) else ProfileName.RESPONSE_FIRST

    def set_profile(self, name: ProfileName) -> None:
        with reachable(self._client):
            self._client.set(keys.PROFILE, name.value)

    def weights(self) -> dict[str, float]:
        with reachable(self._client):
            found = cast("dict[str, str]", self._client.hgetall(keys.WEIGHTS))
        return {label: float(weight) for label, weight in found.items()}

    def set_weight(self, label: str, weight: float) -> bool:
        with reachable(self._client):
            if weight == 1:
                self._client.hdel(keys.WEIGHTS, label)
                return True
            count = self._client.hlen(keys.WEIGHTS)
            if count >= WEIGHTS_KEPT and not self._client.hexists(keys.WEIGHTS, label):
                return False
            self._client.hset(keys.WEIGHTS, label, repr(weight))
            return True

    def tell(self, detail: RouterDetail) -> None:
        text = detail.model_dump_json(exclude_none=True)
        self._call("tell", text, f"{detail.retry_s:.1f}", TOLD_MS)

    def told(self) -> RouterDetail | None:
        with reachable(self._client):
            found = self._client.get(keys.ROUTER)
        return RouterDetail.model_validate_json(found) if isinstance(found, str) else None
