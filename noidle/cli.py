"""The `noidle` command. Owns which verb goes where: a producer's verbs are in this package, the
cluster's in `ops`, which only a checkout or an image holds."""

import difflib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from noidle.errors import ConfigError, NoidleError, printable

PRODUCER_VERBS = {
    "submit": "send a job (generate, chat, score, train) and wait for it",
    "status": "where a job stands: noidle status JOB",
    "explain": "why a job went where it went, or why it waits",
    "cancel": "end a held job at once, a running one at its next step",
}
MODEL_VERBS = {
    "model": "take in models as people have them, and list, show, remove, export",
    "run": "ask a model in this process: noidle run generate|chat|score",
}
CLUSTER_VERBS = {
    "up": "start a cluster on this host",
    "down": "stop it",
    "status": "pools, queues and jobs at a glance",
    "jobs": "the newest jobs",
    "logs": "what the processes wrote",
    "worker": "run a pool: noidle worker ENGINE",
    "router": "run a router",
    "flower": "run Flower",
    "doctor": "check Redis and this machine",
    "demo": "train a mini model and answer with it, start to end",
    "profile": "show or switch what goes first, answers or training",
    "weights": "show or set which share each label has of its class",
    "simulate": "replay a trace of requests on a described cluster, in virtual time",
}
_HOME = Path(__file__).resolve().parent.parent
_GET_CLUSTER = (
    "needs the cluster's part of noidle, which this installation does not hold: "
    "run `make install` in a checkout of noidle, or use its image"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(given)
    except NoidleError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # whoever read our output has gone; nothing may be flushed to it at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _dispatch(given: list[str]) -> int:
    match given:
        case [] | ["-h" | "--help" | "help", *_]:
            sys.stdout.write(_help())
            return 0
        case ["--version"]:
            sys.stdout.write(f"noidle {_version()}\n")
            return 0
        case ["status"] | ["status", "-h" | "--help", *_]:
            return _manage(given) if _has_cluster() else _produce(given)
        case ["status", first, *_] if first.startswith("-"):
            return _manage(given)
        case [verb, *_] if verb in PRODUCER_VERBS:
            return _produce(given)
        case [verb, *_] if verb in CLUSTER_VERBS or verb in MODEL_VERBS:
            return _manage(given)
    known = sorted({*PRODUCER_VERBS, *CLUSTER_VERBS, *MODEL_VERBS})
    close = difflib.get_close_matches(given[0], known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
    return _fail(f"{printable(given[0])} is no verb; {hint}")


def _produce(given: list[str]) -> int:
    from noidle.verbs import run

    return run(given, _local_url)


def _manage(given: list[str]) -> int:
    if not _has_cluster():
        return _fail(f"{given[0]} {_GET_CLUSTER}")
    try:
        from ops.cli import app
    except ModuleNotFoundError as error:
        raise _incomplete(error) from error
    # ends the process itself, with its own exit status
    app(args=given, prog_name="noidle")
    return 0


def _local_url(data: str | None) -> str | None:
    if not _has_cluster():
        return None
    try:
        from ops.cluster_file import local_url
    except ModuleNotFoundError as error:
        raise _incomplete(error) from error
    return local_url(Path(data) if data else None)


def _has_cluster() -> bool:
    """Whether `ops` is ours: other distributions have a package of that name too."""
    found = importlib.util.find_spec("ops")
    ours = found is not None and found.origin == str(_HOME / "ops" / "__init__.py")
    return ours and (_HOME / "routing" / "board.py").exists()


def _incomplete(error: ModuleNotFoundError) -> ConfigError:
    if error.name is None or error.name.partition(".")[0] in (
        "ops",
        "workers",
        "routing",
        "noidle",
    ):
        raise error
    return ConfigError(f"the package {error.name!r} is missing: run `make install` in {_HOME}")


def _fail(message: str) -> int:
    sys.stderr.write(f"noidle: {message}\n")
    return 2


def _version() -> str:
    try:
        return version("noidle")
    except PackageNotFoundError:
        return "from a checkout"


def _help() -> str:
    def table(verbs: dict[str, str]) -> str:
        return "".join(f"  {verb:<10}{words}\n" for verb, words in verbs.items())

    absent = "" if _has_cluster() else " (not in this installation)"
    return (
        "usage: noidle VERB …; noidle VERB --help tells more\n\n"
        f"Jobs:\n{table(PRODUCER_VERBS)}\n"
        f"Models{absent}:\n{table(MODEL_VERBS)}\n"
        f"The cluster{absent}:\n{table(CLUSTER_VERBS)}\n"
        "The cluster is named by --url or NOIDLE_URL, else it is the one that is up on this host.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
