"""Clusters as `noidle up` starts them, for as long as a part of the bench runs. Knows nothing of
what is measured on them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.cluster_file import ClusterFile
from ops.commands.down import end_cluster
from ops.data_dir import DataDir
from ops.detach import start_detached
from ops.plan import UpOptions
from workers.settings import load_settings

_END_S = 60.0


@contextmanager
def cluster(data: Path, options: UpOptions, say: Callable[[str], None]) -> Iterator[ClusterFile]:
    """Ready inside, gone afterwards."""
    settings = load_settings({}, data_dir=data, url=options.redis)
    try:
        yield start_detached(options, settings, say=lambda line: say(f"  {line}"))
    finally:
        end_cluster(DataDir(root=data), _END_S)
