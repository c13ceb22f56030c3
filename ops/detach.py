"""Starts the supervisor in the background and waits until it says that everything is up, or
that it failed. Owns that hand-over only."""

import os
import subprocess
from collections.abc import Callable

from noidle.errors import NoidleError
from ops import cluster_file
from ops.cluster_file import ClusterFile
from ops.data_dir import DataDir
from ops.lock import DataLock
from ops.logfile import LogFile
from ops.plan import UpOptions, command, environment
from workers.settings import Settings

_END_S = 60.0


class NotUp(NoidleError):
    """The supervisor in the background ended; its log, shown before, says why."""


def start_detached(
    options: UpOptions, settings: Settings, say: Callable[[str], None]
) -> ClusterFile:
    """Returns once everything is up; `say` gets what the supervisor writes till then.

    Raises:
        AlreadyUp: a cluster is up on this data directory.
        NotUp: the start failed.
    """
    data = DataDir(root=settings.data_dir)
    data.create()
    _refuse_second(data)
    log = LogFile(data.log("supervisor"))
    log.cut()
    follower = log.follow()
    next(follower)
    process = _spawn(options, settings, data, log)
    try:
        for lines in follower:
            for line in lines:
                say(line)
            cluster = cluster_file.running(data)
            if cluster is not None and cluster.ready and not lines:
                return cluster
            if process.poll() is not None and not lines:
                break
    except KeyboardInterrupt:
        process.terminate()
        process.wait(_END_S)
        raise
    raise NotUp(f"the cluster did not come up (exit status {process.returncode})")


def _refuse_second(data: DataDir) -> None:
    """Early and on this terminal; the supervisor takes the lock for itself."""
    lock = DataLock(data.lock)
    lock.take()
    lock.release()


def _spawn(
    options: UpOptions, settings: Settings, data: DataDir, log: LogFile
) -> subprocess.Popen[bytes]:
    with log.open() as output:
        process = subprocess.Popen(
            command("supervise"),
            cwd=data.root,
            env=environment(settings, dict(os.environ)),
            # an address with a password must not stand in the list of processes
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(options.model_dump_json().encode())
    process.stdin.close()
    return process
