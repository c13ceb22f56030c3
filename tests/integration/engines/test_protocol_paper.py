"""The example in PROTOCOL.md is an engine."""

import re
import shutil

import pytest

from engines import program, protocol
from engines.program import load_program
from engines.protocol import Done, Failed
from noidle.jobs import Generate
from tests.contract.engine_driver import Driver

PAPER = (program.HERE / "PROTOCOL.md").read_text(encoding="utf-8")


@pytest.fixture
def reverse(tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    source = re.search(r"```js\n(.*?)```", PAPER, re.DOTALL)[1]
    (tmp_path / "reverse.js").write_text(source)
    declaration = tmp_path / "reverse.toml"
    declaration.write_text(f'name = "reverse"\ncommand = ["{node}", "{{here}}/reverse.js"]\n')
    with Driver(load_program(declaration), "cpu", {}) as engine:
        yield engine


def ask(prompt, **more):
    return Generate(**{"model": "reverse", "prompt": prompt, **more})


def test_the_example_runs_answers_resumes_and_refuses(reverse):
    seen = reverse.do(ask("one two three"))
    assert isinstance(seen.end, Done)
    assert seen.text == seen.end.result.text == "three two one "
    rest = reverse.do(ask("one two three"), text="three ", tokens=(0,))
    assert rest.text == "two one "
    assert isinstance(reverse.do(ask("x", model="other")).end, Failed)


def test_the_paper_names_every_message_and_field():
    messages = [*protocol.AnyOp.__args__, *protocol.AnyEvent.__args__, protocol.RunStep]
    for message in (*messages, protocol.RunResult):
        for name, field in message.model_fields.items():
            wanted = field.default if name in ("op", "event") else name
            assert f"`{wanted}`" in PAPER, f"{message.__name__}.{name}"


def test_the_paper_tells_the_limits_that_hold():
    assert f"at most {protocol.MAX_LINE_BYTES >> 20} MiB" in PAPER
    assert f"version {protocol.PROTOCOL_VERSION}" in PAPER
