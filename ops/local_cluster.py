"""Everything of a cluster on one host, from its first process to its last: what `noidle up`
runs. Owns the order of start and end; keeping processes alive is the supervisor's."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from engines.machine import inspect_machine
from engines.placement import Placement, find_engines
from noidle.errors import ClusterUnavailable
from ops import cluster_file, leftovers, plan
from ops.cluster_file import ClusterFile, FlowerAddress
from ops.data_dir import DataDir
from ops.doctor.redis_server import require_redis
from ops.flower_app.address import FLOWER_USER, choose_flower_port
from ops.local_redis import LocalRedis, find_redis, impatient_client, start_redis
from ops.lock import DataLock
from ops.members import Members
from ops.metrics import cgroup
from ops.metrics.device import device_bytes
from ops.plan import UpOptions
from ops.startup import Interrupted, wait_until
from ops.supervisor import Supervisor
from ops.valkey import LOOPBACK
from ops.view import View
from ops.wakeup import Wakeup
from routing.redis_board import RedisBoard
from workers.settings import Settings

_READY_S = 60.0
_LOOK_EVERY_S = 2.0


def run_cluster(options: UpOptions, settings: Settings, view: View) -> None:
    """Returns after everything has ended, at SIGINT, SIGTERM or SIGHUP.

    Raises:
        AlreadyUp: a cluster is up on this data directory.
        ConfigError: something asked for cannot be.
        StartFailed: a process does not come up.
    """
    data = DataDir(root=settings.data_dir)
    data.create()
    lock = DataLock(data.lock)
    lock.take()
    try:
        with Wakeup() as wakeup:
            supervisor = Supervisor(folder=data.root, logs=data.logs, wakeup=wakeup, say=view.say)
            LocalCluster(options, settings, data, supervisor, wakeup, view).run()
    finally:
        lock.release()


class LocalCluster:
    """One run of `noidle up`, under the data directory's lock."""

    def __init__(
        self,
        options: UpOptions,
        settings: Settings,
        data: DataDir,
        supervisor: Supervisor,
        wakeup: Wakeup,
        view: View,
    ) -> None:
        self._options = options
        self._settings = settings
        self._data = data
        self._supervisor = supervisor
        self._wakeup = wakeup
        self._view = view
        self._file: ClusterFile | None = None
        self._redis_away = False

    def run(self) -> None:
        try:
            with suppress(Interrupted):
                self._run()
        finally:
            self._end()

    def _run(self) -> None:
        # 1. what a killed supervisor left
        for leftover in leftovers.clear(self._data.root):
            self._view.say(f"ended {leftover}, left behind by a supervisor that was killed")
        # 2. what this host can run
        placements = self._placements()
        # 3. Redis
        source = find_redis(self._options, self._data)
        start_redis(source, self._supervisor, self._wakeup, self._view.say)
        require_redis(source.url)
        # 4. everything else at once
        settings = self._settings.model_copy(update={"url": source.url})
        names = self._start_processes(settings, source, placements)
        # 5. until it works
        with impatient_client(source.url) as client:
            members = Members(RedisBoard(client), client, settings.host, names)
            self._wait_ready(members)
            # 6. until somebody ends it
            self._keep(members)

    def _placements(self) -> list[Placement]:
        machine = inspect_machine()
        found = find_engines(machine, cores=cgroup.cores(), stand_in=self._options.stand_in)
        wanted = self._options.engines
        for each in found:
            if wanted is not None and each.engine not in wanted:
                continue
            if not each.can_run:
                self._view.say(f"no {each.engine} engine: {each.why}")
            elif each.stand_in:
                self._view.say(f"{each.engine}: {each.why}")
        return plan.choose_placements(found, self._options.engines)

    def _start_processes(
        self, settings: Settings, source: LocalRedis, placements: list[Placement]
    ) -> list[str]:
        """Returns the pools' process names."""
        base = dict(os.environ)
        shares = plan.memory_shares(placements, device_bytes(base.get("CUDA_VISIBLE_DEVICES")))
        pools = [
            spec
            for placement in placements
            for spec in plan.pool_specs(
                placement, self._options, settings, base, source.orphan, shares
            )
        ]
        specs = [plan.router_spec(settings, base, source.orphan), *pools]
        flower = None
        if self._options.flower:
            port = choose_flower_port(self._options.flower_port)
            flower = FlowerAddress(
                url=f"http://{LOOPBACK}:{port}",
                user=FLOWER_USER,
                password=self._data.secret("flower"),
                password_file=str(self._data.secrets / "flower"),
            )
            specs.append(plan.flower_spec(settings, base, port, source.orphan))
        for spec in specs:
            self._supervisor.start(spec)
        self._file = ClusterFile(
            url=source.url,
            url_file=str(self._data.url_file),
            embedded=source.embedded,
            pid=os.getpid(),
            flower=flower,
        )
        self._write_file()
        return [spec.name for spec in pools]

    def _wait_ready(self, members: Members) -> None:
        assert self._file is not None
        flower = self._file.flower
        ready = wait_until(
            lambda: not members.missing(flower), self._supervisor, self._wakeup, limit_s=_READY_S
        )
        if not ready:
            waiting = ", ".join(members.missing(flower))
            self._view.say(f"still not ready after {_READY_S:.0f} s: {waiting}; going on")
        self._write_file(ready=True)
        self._view.ready(members.overview(), self._file)

    def _keep(self, members: Members) -> None:
        while not self._wakeup.ending:
            if self._supervisor.tick(_LOOK_EVERY_S):
                self._write_file()
            with self._redis_may_be_away():
                now_s = time.monotonic()
                for name, fault in members.stuck(self._supervisor, now_s).items():
                    self._supervisor.restart(name, fault)
                if self._view.live:
                    self._view.show(members.overview(), self._supervisor)

    @contextmanager
    def _redis_may_be_away(self) -> Iterator[None]:
        """Says so once an outage."""
        try:
            yield
        except ClusterUnavailable as error:
            if not self._redis_away:
                self._view.say(str(error))
            self._redis_away = True
        else:
            if self._redis_away:
                self._view.say("Redis answers again")
            self._redis_away = False

    def _end(self) -> None:
        self._view.close()
        names = list(self._supervisor.children)
        if names:
            self._view.say("ending: pools finish or hand back what they run")
        pools = [name for name in names if name not in ("valkey", "router", "flower")]
        for group in (pools, ["router", "flower"], ["valkey"]):
            self._supervisor.end(group)
        # the last net: nothing of ours lives after this
        self._supervisor.kill_all()
        leftovers.clear(self._data.root)
        cluster_file.remove(self._data)
        if names:
            self._view.say("everything has ended")

    def _write_file(self, *, ready: bool | None = None) -> None:
        assert self._file is not None
        changes: dict[str, object] = {"pids": self._supervisor.pids}
        if ready is not None:
            changes["ready"] = ready
        self._file = self._file.model_copy(update=changes)
        cluster_file.write(self._data, self._file)
