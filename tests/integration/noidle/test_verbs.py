"""The producers' verbs as a shell sees them: output, errors, exit status."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from noidle import Client
from noidle.cli import main
from tests.integration.noidle.hand_pool import POOL, HandPool

GENERATE = ["submit", "generate", "Hello", "--model", "m"]


@pytest.fixture(autouse=True)
def _address(valkey_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOIDLE_URL", valkey_url)


@contextmanager
def running(pool: HandPool, run: Callable[[HandPool, str], None]) -> Iterator[Future[None]]:
    """Runs the next job that is held, beside the test."""

    def take() -> None:
        while not (held := list(pool.held())):
            pool.board.wait_for_work(1)
        pool.start(held[0])
        run(pool, held[0])

    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(take)
        yield future
        future.result()


def answer(pool: HandPool, job: str) -> None:
    pool.emit(job, "one ", [1])
    pool.emit(job, "two", [2])
    pool.finish(job, "one two", [1, 2])


def test_submit_prints_the_text_and_nothing_else(pool: HandPool, capsys):
    with running(pool, answer):
        assert main(GENERATE) == 0
    assert capsys.readouterr() == ("one two\n", "")


def test_submit_streams_on_demand(pool: HandPool, capsys):
    with running(pool, answer):
        assert main([*GENERATE, "--stream"]) == 0
    assert capsys.readouterr() == ("one two\n", "")


def test_submit_gives_the_result_as_json(pool: HandPool, capsys):
    with running(pool, answer):
        assert main([*GENERATE, "--json", "--max-tokens", "2", "--id", "mine"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["id"], result["text"], result["tokens"]) == ("mine", "one two", [1, 2])
    assert result["state"] == "done"


def test_submit_streams_json_one_object_a_line(pool: HandPool, capsys):
    with running(pool, answer):
        assert main([*GENERATE, "--json", "--stream"]) == 0
    *events, result = map(json.loads, capsys.readouterr().out.splitlines())
    assert [event["text"] for event in events] == ["one ", "two"]
    assert result["text"] == "one two"


def test_submit_reads_standard_input(pool: HandPool, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("こんにちは".encode())))
    assert main(["submit", "generate", "--model", "m", "--no-wait"]) == 0
    job = capsys.readouterr().out.strip()
    claim = pool.start(job)
    assert claim.job.model_dump()["prompt"] == "こんにちは"


def sent(pool: HandPool, capsys) -> dict:
    """The job of the command that printed its id."""
    return pool.start(capsys.readouterr().out.strip()).job.model_dump(mode="json")


CHAT = ["submit", "chat", "--model", "m", "--no-wait"]


def test_submit_sends_a_conversation_turn_by_turn(pool: HandPool, capsys):
    turns = [flag for turn in ("hi", "hello", "and now?") for flag in ("--message", turn)]
    more = ["--system", "be brief", "--max-tokens", "3", "--logprobs"]
    assert main([*CHAT, *turns, *more]) == 0
    job = sent(pool, capsys)
    assert [(one["role"], one["content"]) for one in job["messages"]] == [
        ("system", "be brief"),
        ("user", "hi"),
        ("assistant", "hello"),
        ("user", "and now?"),
    ]
    assert (job["prompt"], job["max_tokens"], job["logprobs"]) == (None, 3, True)


@pytest.mark.parametrize("flags", [[], ["--message", "-"], ["--file", "FILE"]])
def test_submit_reads_the_last_turn_from_where_it_is(
    pool: HandPool, capsys, monkeypatch, tmp_path, flags
):
    (tmp_path / "asked").write_text("こんにちは")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("こんにちは".encode())))
    given = [str(tmp_path / "asked") if one == "FILE" else one for one in flags]
    assert main([*CHAT, *given]) == 0
    assert sent(pool, capsys)["messages"] == [{"role": "user", "content": "こんにちは"}]


def test_submit_shows_the_answer_to_a_conversation(pool: HandPool, capsys):
    with running(pool, answer):
        assert main(["submit", "chat", "--model", "m", "--message", "hi"]) == 0
    assert capsys.readouterr() == ("one two\n", "")


def test_a_text_given_twice_is_refused(capsys, tmp_path):
    """The file was passed over in silence."""
    (tmp_path / "text").write_text("some text")
    assert main([*GENERATE, "--file", str(tmp_path / "text")]) == 2
    assert "prompt = 'Hello': allowed is one text" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["-1", "nan", "soon"])
def test_a_wrong_timeout_is_refused_before_anything_is_sent(seconds, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*GENERATE, "--timeout-s", seconds])
    assert f"{seconds!r}: allowed is a number from 0" in capsys.readouterr().err


def test_submit_reads_a_file_and_sets_every_kind_of_field(pool: HandPool, capsys, tmp_path):
    (tmp_path / "text").write_text("some text")
    flags = ["--file", str(tmp_path / "text"), "--steps", "3", "--layers", "2", "--no-tied-head"]
    more = ["--learning-rate", "1e-3", "--class", "batch"]
    assert main(["submit", "train", "--model", "m", "--no-wait", *flags, *more]) == 0
    job = pool.start(capsys.readouterr().out.strip()).job.model_dump()
    assert (job["text"], job["steps"], job["learning_rate"]) == ("some text", 3, 0.001)
    assert (job["shape"]["layers"], job["shape"]["tied_head"]) == (2, False)
    assert job["job_class"] == "batch"


def test_submit_shows_what_training_came_to(pool: HandPool, capsys):
    with running(pool, lambda pool, job: pool.finish_training(job)):
        assert main(["submit", "train", "--model", "m", "--path", "books"]) == 0
    assert capsys.readouterr().out == (
        "m step-000010-ab: 10 steps; held-out loss 5.500 before, 2.250 after\n"
    )


def test_submit_shows_a_score(pool: HandPool, capsys):
    with running(pool, lambda pool, job: pool.finish_score(job)):
        assert main(["submit", "score", "x", "--model", "m"]) == 0
    assert capsys.readouterr().out == "perplexity 2.500 over 2 tokens\n"


def test_submit_takes_json_of_one_job_or_many(pool: HandPool, capsys, tmp_path):
    one = {"kind": "generate", "model": "m", "prompt": "x", "id": "a"}
    for name, data in (("one", one), ("many", [one, {**one, "id": "b"}])):
        (tmp_path / name).write_text(json.dumps(data))
        assert main(["submit", "json", str(tmp_path / name), "--no-wait"]) == 0
    assert capsys.readouterr().out == "a\na\nb\n"
    assert sorted(pool.held()) == ["a", "b"]


def test_a_failed_job_is_one_line_on_standard_error_and_status_1(pool: HandPool, capsys):
    with running(pool, lambda pool, job: pool.fail(job)):
        assert main([*GENERATE, "--id", "mine"]) == 1
    assert capsys.readouterr() == ("", "noidle: job mine failed (engine): the engine fell\n")


def test_a_failed_job_is_json_for_programs(pool: HandPool, capsys):
    with running(pool, lambda pool, job: pool.fail(job)):
        assert main([*GENERATE, "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert result["error"] == {"code": "engine", "message": "the engine fell"}


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            ["submit", "generate", "", "--model", "m"],
            2,
            "prompt = '': allowed is text of at least 1 character",
        ),
        (
            [*GENERATE, "--max-tokens", "many"],
            2,
            "max_tokens = 'many': allowed is a whole number from 1 to 1000000",
        ),
        (
            [*GENERATE, "--engine", "tpu"],
            2,
            "engine = 'tpu': allowed is cpu or hybrid or cuda or gpu",
        ),
        (
            ["submit", "generate", "a\udcff", "--model", "m"],
            2,
            "prompt = 'a\\udcff': allowed is text that can be written as UTF-8, without half of a"
            " surrogate pair",
        ),
        (
            ["submit", "train", "--model", "m"],
            2,
            "text is missing: allowed is exactly one of text and path",
        ),
        (
            [*CHAT, "--message", "a", "--message", "b"],
            2,
            "message = '2 turns': allowed is an odd number: user and model take turns",
        ),
        ([*CHAT, "--message", ""], 2, "messages.0.content = '': allowed is text of at least 1"),
        (["status", "nobody"], 3, "no job nobody is known"),
        (["explain", "nobody"], 3, "no job nobody is known"),
        (["cancel", "nobody"], 3, "no job nobody is known"),
        ([*GENERATE, "--timeout-s", "0"], 5, "is held and goes on"),
        (
            [*GENERATE, "--url", "http://host"],
            2,
            "url = 'http://host': allowed is redis://[:password@]host[:port][/database]",
        ),
        # nobody listens there
        ([*GENERATE, "--url", "redis://127.0.0.1:1/0"], 4, "does not answer"),
        (["submit", "json", "/no/such/file"], 2, "job: cannot read '/no/such/file'"),
        (["sbmit"], 2, "sbmit is no verb; did you mean 'submit'?"),
    ],
    ids=lambda part: " ".join(part)[:60] if isinstance(part, list) else None,
)
def test_an_error_is_one_line_with_its_own_exit_status(arguments, status, message, capsys):
    assert main(arguments) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("noidle: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


def test_a_wrong_flag_is_one_line_too(capsys):
    with pytest.raises(SystemExit) as caught:
        main([*GENERATE, "--max-token", "3"])
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("noidle: unrecognized arguments: --max-token 3")
    assert error.count("\n") == 1


def test_a_file_that_is_no_utf_8_is_refused_with_the_place(capsys, tmp_path):
    (tmp_path / "text").write_bytes(b"ab\xff")
    path = str(tmp_path / "text")
    assert main(["submit", "score", "--model", "m", "--file", path]) == 2
    assert capsys.readouterr().err == (
        f"noidle: text = b'\\xff': allowed is text in UTF-8; byte 2 of {path!r} is none\n"
    )


def test_status_explain_and_cancel_in_words(client: Client, pool: HandPool, capsys):
    job = client.generate("x", model="m", max_tokens=8).id
    assert main(["status", job]) == 0
    assert capsys.readouterr().out == f"job {job} (generate, m) is held\n"
    pool.start(job)
    pool.emit(job, "a", [1])
    assert main(["status", job]) == 0
    assert f"is running on {POOL}, 1 of 8 tokens\n" in capsys.readouterr().out
    assert main(["explain", job]) == 0
    assert "the only pool" in capsys.readouterr().out
    assert main(["cancel", job]) == 0
    assert "is cancelled and stops" in capsys.readouterr().out
    pool.stop(job)
    assert main(["cancel", job]) == 1
    assert capsys.readouterr().err == f"noidle: job {job} had ended already\n"


def test_status_explain_and_cancel_as_json(client: Client, pool: HandPool, capsys):
    job = client.generate("x", model="m").id
    pool.start(job)
    for verb in ("status", "cancel"):
        assert main([verb, job, "--json"]) == 0
    running, cancelled = map(json.loads, capsys.readouterr().out.splitlines())
    assert (running["state"], cancelled["state"]) == ("running", "cancelling")
    assert main(["explain", job, "--json"]) == 0
    explanation = json.loads(capsys.readouterr().out)
    assert explanation["decisions"][0]["verdicts"][0]["outcome"] == "chosen"


def test_a_reader_that_leaves_ends_the_command_quietly(pool: HandPool, client: Client):
    """`noidle submit … | head -1` prints no traceback."""
    job = client.generate("x", model="m", id="long")
    pool.start(job.id)
    # more than a pipe holds, in many pieces
    piece = "line\n" * 100
    for _ in range(500):
        pool.emit(job.id, piece)
    pool.finish(job.id, 500 * piece)
    command = [sys.executable, "-m", "noidle.cli", "submit", "generate", "x", "--model", "m"]
    with subprocess.Popen(
        [*command, "--id", "long", "--stream"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1
