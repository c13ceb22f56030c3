"""What a template of unknown origin may do, and what it may take."""

import re
import resource

import pytest

from noidle.errors import CheckpointError
from noidle.jobs import Message
from tensor_llm.chat import ChatTemplate
from tensor_llm.templates.budget import MAX_DEPTH
from tests.unit.tensor_llm.hostile_templates import BROKEN, HOSTILE

QUESTION = (Message(role="user", content="Which engine is idle?"),)


@pytest.mark.parametrize(("template", "line", "words"), BROKEN, ids=[one[0][:20] for one in BROKEN])
def test_a_template_that_cannot_be_compiled_is_refused_with_its_line(template, line, words):
    with pytest.raises(CheckpointError, match=re.escape(words)) as refused:
        ChatTemplate(template, path="model/chat.jinja")
    assert refused.value.path == "model/chat.jinja"
    assert line is None or refused.value.part == f"line {line}"
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(30)
def test_a_hostile_template_is_refused_in_bounded_time_and_memory(name):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError) as refused:
        ChatTemplate(HOSTILE[name], path="model/chat.jinja").render(QUESTION)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400_000
    assert refused.value.path == "model/chat.jinja"
    if HOSTILE[name].startswith("\n\n"):
        assert refused.value.part == "line 3"
    assert len(str(refused.value)) < 500


def test_macros_may_call_macros_but_not_without_end():
    def nested(depth: int) -> str:
        called = f"{{{{ f({depth}) }}}}"
        return "{% macro f(n) %}{% if n > 1 %}{{ f(n - 1) }}{% endif %}x{% endmacro %}" + called

    assert ChatTemplate(nested(MAX_DEPTH)).render(QUESTION) == "x" * MAX_DEPTH
    with pytest.raises(CheckpointError, match=f"more than {MAX_DEPTH} deep"):
        ChatTemplate(nested(MAX_DEPTH + 1)).render(QUESTION)
