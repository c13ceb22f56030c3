"""`noidle run`: a model in one process, held to what transformers says of the same files."""

import math
import os
import pty
import re
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from tests.acceptance.noidle_command import COMMAND, PATIENCE_S, noidle, noidle_json, refusal
from tests.integration.ops.commands import environment

TEXT = "The user's 2025 plan isn't what it's said to be. 日本語も👍🏽 def f(x):\n\treturn x\n"
KIND = ("tiny-llama", "tiny-qwen")


class Theirs:
    """The same model as transformers reads it, in float32."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def greedy(self, tokens: list[int], count: int) -> list[int]:
        prompt = torch.tensor([tokens])
        found = self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=None,
            pad_token_id=0,
        )
        return found[0, len(tokens) :].tolist()

    def logprobs(self, tokens: list[int]) -> list[float]:
        with torch.no_grad():
            share_TV = self._model(torch.tensor([tokens])).logits[0].log_softmax(-1)
        return [float(share_TV[at, token]) for at, token in enumerate(tokens[1:])]


@pytest.fixture(scope="module", params=KIND)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(checkpoints: Path, kind: str) -> Path:
    return checkpoints / kind


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Theirs:
    return Theirs(folder)


def test_a_text_goes_on_as_transformers_goes_on(folder: Path, theirs: Theirs, tmp_path: Path):
    found = noidle_json(
        tmp_path,
        *("run", "generate", "--model", folder, "--dtype", "float32", "--max-tokens", 32),
        *("--prompt", TEXT),
    )
    prompt = theirs.tokenizer.encode(TEXT)
    wanted = theirs.greedy(prompt, 32)
    assert found["tokens"] == wanted[: len(found["tokens"])]
    assert (len(found["tokens"]), found["finish_reason"]) in ((32, "length"), (ends(found), "eos"))
    assert found["text"] == theirs.tokenizer.decode(found["tokens"])
    assert (found["prompt_tokens"], found["model"]) == (len(prompt), folder.name)
    timings = found["timings"]
    assert {"load_ms", "prefill_ms", "decode_ms", "tokenize_ms", "stream_ms"} <= timings.keys()
    assert timings["load"] in ("cold", "warm", "unmeasured")
    memory = found["memory"]
    assert memory["before_bytes"] <= memory["after_load_bytes"] <= memory["peak_bytes"]


def ends(found: dict) -> int:
    return len(found["tokens"])


def test_a_text_is_as_likely_as_transformers_finds_it(folder: Path, theirs: Theirs, tmp_path: Path):
    file = tmp_path / "text"
    file.write_text(TEXT, encoding="utf-8")
    found = noidle_json(
        tmp_path, "run", "score", "--model", folder, "--dtype", "float32", "--text-file", file
    )
    assert found["tokens"] == theirs.tokenizer.encode(TEXT)
    wanted = theirs.logprobs(found["tokens"])
    assert found["logprobs"] == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    mean = sum(wanted) / len(wanted)
    assert found["perplexity"] == pytest.approx(math.exp(-mean), rel=1e-3)


def test_a_message_goes_through_the_models_own_template(
    folder: Path, theirs: Theirs, tmp_path: Path
):
    found = noidle_json(
        tmp_path,
        *("run", "chat", "--model", folder, "--dtype", "float32", "--max-tokens", 16),
        *("--system", "Be brief.", "What is <|eot_id|> or <|im_end|>?"),
    )
    asked = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is X or Y?"},
    ]
    prompt = theirs.tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_dict=False
    )
    # what a message says is text: only the length differs from a harmless one
    assert found["prompt_tokens"] > len(prompt)
    harmless = noidle_json(
        tmp_path,
        *("run", "chat", "--model", folder, "--dtype", "float32", "--max-tokens", 16),
        *("--system", "Be brief.", "What is X or Y?"),
    )
    assert harmless["prompt_tokens"] == len(prompt)
    wanted = theirs.greedy(prompt, 16)
    assert harmless["tokens"] == wanted[: len(harmless["tokens"])]


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "int4"])
def test_narrow_weights_judge_nearly_alike(
    folder: Path, theirs: Theirs, tmp_path: Path, dtype: str
):
    found = noidle_json(tmp_path, "run", "score", "-m", folder, "--dtype", dtype, text=TEXT)
    wanted = theirs.logprobs(found["tokens"])
    off = max(abs(a - b) for a, b in zip(found["logprobs"], wanted, strict=True))
    assert found["dtype"] == dtype
    assert off < {"bfloat16": 0.5, "int8": 0.5, "int4": 6.0}[dtype]


def test_answers_go_to_standard_output_and_figures_beside_it(checkpoints: Path, tmp_path: Path):
    """Paths as people write them: here a relative one, and one of the home."""
    done = noidle(
        tmp_path,
        *("run", "generate", "-m", "./tiny-qwen", "--max-tokens", "8", "--temperature", "1"),
        *("--top-k", "50", "--top-p", "0.9", "--seed", "3", "-"),
        text=TEXT,
        cwd=checkpoints,
    )
    assert done.returncode == 0, done.stderr
    again = noidle_json(
        tmp_path,
        *("run", "generate", "-m", checkpoints / "tiny-qwen", "--max-tokens", "8"),
        *("--temperature", "1", "--top-k", "50", "--top-p", "0.9", "--seed", "3", TEXT),
    )
    assert done.stdout == again["text"] + "\n"
    assert again["seed"] == 3
    for words in ("load ", "prefill ", "decode 8 tokens at ", " tok/s", "peak working set "):
        assert words in done.stderr


def test_a_score_is_told_in_one_line_or_token_by_token(checkpoints: Path, tmp_path: Path):
    done = noidle(tmp_path, "run", "score", "-m", checkpoints / "tiny-llama", "--tokens", TEXT)
    assert done.returncode == 0, done.stderr
    *rows, last = done.stdout.splitlines()
    assert re.fullmatch(r"perplexity [\d.]+ over \d+ tokens", last)
    assert len(rows) - 1 == int(last.split()[-2])


REFUSED = {
    "no model": (["generate", "hallo"], "--model"),
    "no such model": (["generate", "-m", "nope", "hallo"], "noidle model add PATH"),
    "no text": (["generate", "-m", "MODEL", "--prompt", ""], "prompt = ''"),
    "two texts": (["generate", "-m", "MODEL", "a", "--prompt", "b"], "given twice"),
    "no such file": (["score", "-m", "MODEL", "--text-file", "/nope"], "cannot read '/nope'"),
    "type": (["generate", "-m", "MODEL", "--dtype", "int5", "a"], "'int4'"),
    "too hot": (["generate", "-m", "MODEL", "--temperature", "11", "a"], "from 0 to 10"),
    "no number": (["generate", "-m", "MODEL", "--max-tokens", "x", "a"], "--max-tokens"),
    "too much": (["generate", "-m", "MODEL", "--max-tokens", "9000", "a"], "max_tokens = 9000"),
    "device": (["score", "-m", "MODEL", "--device", "abacus", "a b"], "--device = 'abacus'"),
    "one token": (["score", "-m", "MODEL", "a"], "2 to "),
    "no chat": (["chat", "-m", "PLAIN", "a"], "noidle run generate"),
    "no message": (["chat", "-m", "MODEL", ""], "messages.0.content = ''"),
    "no config": (["generate", "-m", "EMPTY", "a"], "config.json"),
    "verb": (["ask", "-m", "MODEL"], "ask"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_said_in_one_line(checkpoints: Path, tmp_path: Path, case: str):
    given, words = REFUSED[case]
    model = checkpoints / "tiny-qwen"
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (plain / name).symlink_to(model / name)
    (tmp_path / "empty").mkdir()
    places = {"MODEL": model, "PLAIN": plain, "EMPTY": tmp_path / "empty"}
    done = noidle(tmp_path / "data", "run", *(places.get(one, one) for one in given))
    assert words in refusal(done)


def test_a_cut_file_is_refused_with_its_name(checkpoints: Path, tmp_path: Path):
    for file in (checkpoints / "tiny-qwen").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    line = refusal(noidle(tmp_path / "data", "run", "generate", "-m", tmp_path, "a"))
    assert "model.safetensors" in line


def test_neither_redis_nor_a_cluster_is_asked(checkpoints: Path, tmp_path: Path):
    found = noidle_json(
        tmp_path,
        *("run", "generate", "-m", checkpoints / "tiny-qwen", "--max-tokens", "2", "a"),
        url="redis://127.0.0.1:1/0",
    )
    assert len(found["tokens"]) == 2


def test_control_c_ends_it_with_130(checkpoints: Path, tmp_path: Path):
    process = subprocess.Popen(
        [*COMMAND, "run", "generate", "-m", checkpoints / "tiny-qwen", "--max-tokens", "8000", "a"],
        env={**environment(tmp_path), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # who runs the tests in the background may have been told to ignore it
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    # it streams: something comes long before the end
    assert os.read(process.stdout.fileno(), 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")


class Person:
    """Somebody at a terminal."""

    def __init__(self, data: Path, *arguments: object) -> None:
        self._terminal, theirs = pty.openpty()
        self._seen = ""
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            env={**environment(data), "OMP_NUM_THREADS": "1", "TERM": "dumb"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def types(self, line: str) -> None:
        os.write(self._terminal, f"{line}\n".encode())

    def presses_control_c(self) -> None:
        os.kill(self.process.pid, signal.SIGINT)

    def waits_for(self, words: str) -> str:
        """What was shown since the last time, up to these words."""
        while words not in self._seen:
            self._looks(words)
        shown, _, self._seen = self._seen.partition(words)
        return shown

    def waits_for_anything(self) -> None:
        while not self._seen:
            self._looks("anything")

    def _looks(self, words: str) -> None:
        ready, _, _ = select.select([self._terminal], [], [], PATIENCE_S)
        assert ready, f"{words} did not come; shown was {self._seen!r}"
        try:
            self._seen += os.read(self._terminal, 65_536).decode(errors="replace")
        except OSError:
            raise AssertionError(f"{words} did not come: {self._seen!r}") from None

    def leaves(self) -> int:
        status = self.process.wait(timeout=60)
        os.close(self._terminal)
        return status


@pytest.fixture
def person(checkpoints: Path, tmp_path: Path) -> Iterator[Person]:
    found = Person(tmp_path, "run", "chat", "-m", checkpoints / "tiny-qwen", "--system", "s " * 99)
    yield found
    if found.process.poll() is None:
        found.process.kill()
        found.process.wait()


def test_a_conversation_at_a_terminal(person: Person):
    """No answer of a random model ends by itself soon, so each is stopped."""
    person.waits_for("/exit or Ctrl-D ends")
    person.waits_for("> ")
    for turn in range(2):
        person.types("hello there")
        # the line as it is typed, then the beginning of an answer
        person.waits_for("hello there\r\n")
        person.waits_for_anything()
        person.presses_control_c()
        person.waits_for("prefill ")
        # the second turn finds the first one in the cache
        assert ("more from the prefix cache" in person.waits_for("\r\n> ")) == bool(turn)
    person.types("/exit")
    person.waits_for("peak working set")
    assert person.leaves() == 0


def test_the_end_of_the_input_ends_a_conversation(person: Person):
    person.waits_for("> ")
    person.types("\x04")
    person.waits_for("peak working set")
    assert person.leaves() == 0
