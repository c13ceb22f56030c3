"""The verbs of a producer: submit, status, explain, cancel. Owns their arguments and the exit
status; knows nothing of the cluster's own verbs."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from noidle.client import Client, url_from_environment
from noidle.errors import (
    ClusterUnavailable,
    ConfigError,
    InvalidJob,
    JobFailed,
    NoidleError,
    Overloaded,
    ResultTimeout,
    UnknownJob,
)
from noidle.explanation import state_in_words
from noidle.flags import (
    add_chat_flags,
    add_job_flags,
    chat_from_flags,
    job_from_flags,
    read_text,
)
from noidle.handle import Job
from noidle.jobs import KINDS
from noidle.patience import Patience
from noidle.results import JobResult
from noidle.terminal import Progress, complain, note, show_result, write, write_json

EXIT_STATUS = """exit status: 0 done, 1 the job ended without a result, 2 a wrong job or argument,
3 no such job, 4 the cluster cannot be reached or takes no more, 5 no news for --timeout-s"""
_STATUS: dict[type[NoidleError], int] = {
    JobFailed: 1,
    InvalidJob: 2,
    ConfigError: 2,
    UnknownJob: 3,
    ClusterUnavailable: 4,
    Overloaded: 4,
    ResultTimeout: 5,
}
_INTERRUPTED = 130
# a person waits at the terminal, so not as long as a program would
_PATIENCE_S = 10.0


LocalUrl = Callable[[str | None], str | None]
"""Finds the cluster that is up on this host, by its data directory or the usual one."""


def run(arguments: Sequence[str], local_url: LocalUrl) -> int:
    """Does one verb and returns the exit status."""
    flags = _parser().parse_args(arguments)
    try:
        url = flags.url or _known_url(flags.data, local_url)
        with Client(url, patience_s=_PATIENCE_S) as client:
            return int(flags.verb(client, flags))
    except NoidleError as error:
        complain(str(error))
        return exit_status(error)


def exit_status(error: NoidleError) -> int:
    return next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 1)


def _known_url(data: str | None, local_url: LocalUrl) -> str:
    """NOIDLE_URL, else the cluster of this host."""
    try:
        return url_from_environment()
    except ConfigError:
        found = local_url(data)
        if found is None:
            raise
        return found


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="noidle", add_help=False, allow_abbrev=False)
    verbs = parser.add_subparsers(parser_class=_Parser, required=True, metavar="VERB")
    shared = _Parser(add_help=False)
    shared.add_argument("--url", help="the cluster's Redis; else NOIDLE_URL, else this host's")
    shared.add_argument("--data", metavar="DIR", help="data directory of this host's cluster")
    shared.add_argument("--json", action="store_true", help="print JSON, one object a line")
    options: dict[str, Any] = {
        "parents": [shared],
        "epilog": EXIT_STATUS,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }
    submit = verbs.add_parser("submit", help="send a job and wait for it", allow_abbrev=False)
    kinds = submit.add_subparsers(parser_class=_Parser, required=True, metavar="KIND")
    for kind, model in KINDS.items():
        one = kinds.add_parser(kind, description=model.__doc__, **options)
        add_job_flags(one, kind)
        _add_waiting(one)
        one.set_defaults(verb=_submit, jobs=lambda flags, kind=kind: [job_from_flags(flags, kind)])
    chat = kinds.add_parser("chat", description="Answer a conversation.", **options)
    add_chat_flags(chat)
    _add_waiting(chat)
    chat.set_defaults(verb=_submit, jobs=lambda flags: [chat_from_flags(flags)])
    many = kinds.add_parser("json", description="Send one job, or a list of them.", **options)
    many.add_argument("file", help="JSON as noidle.route takes it; - reads standard input")
    _add_waiting(many)
    many.set_defaults(verb=_submit, jobs=lambda flags: _jobs_from_json(flags.file))
    for name, verb, words in [
        ("status", _status, "where a job stands"),
        ("explain", _explain, "why a job went where it went, or why it waits"),
        ("cancel", _cancel, "end a held job at once, a running one at its next step"),
    ]:
        one = verbs.add_parser(name, help=words, description=words, **options)
        one.add_argument("job", help="the job's id")
        one.set_defaults(verb=verb)
    return parser


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="wait for the result; else print the id (default: wait)",
    )
    parser.add_argument(
        "--stream",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="print text as it is made (default: at a terminal)",
    )
    parser.add_argument(
        "--timeout-s", type=_seconds, metavar="S", help="stop waiting after so long without news"
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a number from 0")
    return value


def _submit(client: Client, flags: argparse.Namespace) -> int:
    jobs = client.submit_many(flags.jobs(flags))
    if not flags.wait:
        for job in jobs:
            write_json(job.status()) if flags.json else write(job.id)
        return 0
    try:
        return max((_follow(job, flags) for job in jobs), default=0)
    except KeyboardInterrupt:
        ids = " ".join(job.id for job in jobs[:3])
        complain(f"stopped waiting; the jobs go on: noidle cancel ID ends one (… {ids})")
        return _INTERRUPTED


def _follow(job: Job, flags: argparse.Namespace) -> int:
    stream = sys.stdout.isatty() and not flags.json if flags.stream is None else flags.stream
    progress = Progress(stream=stream and not flags.json)
    note(f"job {job.id}")
    try:
        with Patience(job) as patience:
            for event in job.events(flags.timeout_s):
                patience.heard()
                progress.show(event)
                if stream and flags.json:
                    write_json(event)
    except JobFailed as failure:
        progress.close()
        complain(str(failure))
    progress.close()
    result = job.outcome(flags.timeout_s)
    return _show(result, flags, text_is_out=progress.wrote_text)


def _show(result: JobResult, flags: argparse.Namespace, *, text_is_out: bool) -> int:
    if flags.json:
        write_json(result)
    elif result.state == "done":
        show_result(result, text_is_out=text_is_out)
    return 0 if result.state == "done" else 1


def _jobs_from_json(file: str) -> list[Any]:
    text = read_text(file, "job")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InvalidJob(f"job: {file!r} is no JSON: {error}", field="job") from None
    return data if isinstance(data, list) else [data]


def _status(client: Client, flags: argparse.Namespace) -> int:
    status = client.job(flags.job).status()
    if flags.json:
        write_json(status)
    else:
        write(f"job {status.id} ({status.kind}, {status.model}) {state_in_words(status)}")
    return 0


def _explain(client: Client, flags: argparse.Namespace) -> int:
    explanation = client.job(flags.job).explain()
    if not flags.json:
        write(str(explanation))
        return 0
    write(json.dumps(explanation.as_json()))
    return 0


def _cancel(client: Client, flags: argparse.Namespace) -> int:
    job = client.job(flags.job)
    in_time = job.cancel()
    if flags.json:
        write_json(job.status())
    elif in_time:
        write(f"job {job.id} {state_in_words(job.status())}")
    else:
        complain(f"job {job.id} had ended already")
    return 0 if in_time else 1
