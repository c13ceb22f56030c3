"""noidle demo: the main job from an empty machine to a report, and nothing left behind."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from noidle.client import Client
from noidle.connection import connect
from noidle.errors import NoidleError
from ops.cluster_file import ClusterFile
from ops.commands import output
from ops.commands.down import end_cluster
from ops.data_dir import DataDir
from ops.demo.corpus import Corpus, named, papers
from ops.demo.report import Report, draw
from ops.demo.run import perform
from ops.demo.show import Show
from ops.detach import start_detached
from ops.plan import UpOptions
from routing.redis_board import RedisBoard
from workers.settings import load_settings


class DemoFailed(NoidleError):
    """A job failed, or the training taught nothing."""


def demo(
    text: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File or folder to train on; default noidle's papers."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report there too.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster up at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Train a mini model on real text while it answers 50 jobs, and say where the time went.

    Starts a cluster of its own, with stand-ins where there is no accelerator, and ends it.
    """
    show = Show(output.terminal())
    with _folder() as folder:
        corpus = named(text) if text else papers(folder)
        with _cluster(folder, corpus, show) as cluster:
            report = _perform(cluster, corpus, show)
            output.draw(draw(report))
            if json is not None:
                json.write_text(report.model_dump_json(indent=2))
            if keep:
                _wait(cluster, show)
    if report.faults:
        raise DemoFailed("the demo did not succeed: " + "; ".join(report.faults))


def _perform(cluster: ClusterFile, corpus: Corpus, show: Show) -> Report:
    with Client(cluster.url) as client, connect(cluster.url) as connection:
        report = perform(client, RedisBoard(connection), corpus, show)
    return report.model_copy(update={"flower": cluster.flower.url if cluster.flower else None})


@contextmanager
def _folder() -> Iterator[Path]:
    """The demo's own data directory, for its owner only."""
    folder = Path(tempfile.mkdtemp(prefix="noidle-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _cluster(folder: Path, corpus: Corpus, show: Show) -> Iterator[ClusterFile]:
    """Up inside, gone afterwards, whatever ends it."""
    settings = load_settings(data_dir=folder, text_dir=corpus.text_dir)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        yield start_detached(UpOptions(stand_in=True), settings, say=show.say)
    finally:
        # a second Ctrl-C must not leave processes behind
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_cluster(DataDir(root=folder))


def _end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001  a signal handler's form
    raise KeyboardInterrupt


def _wait(cluster: ClusterFile, show: Show) -> None:
    if cluster.flower is not None:
        who = f"user {cluster.flower.user}, password in {cluster.flower.password_file}"
        show.say(f"Flower: {cluster.flower.url} ({who})")
    show.say("the cluster stays up until Ctrl-C")
    try:
        signal.pause()
    except KeyboardInterrupt:
        show.say("ending")
