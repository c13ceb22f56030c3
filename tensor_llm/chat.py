"""Conversations as a model reads them: its own chat template, which is a Jinja program that came
with its weights, run within bounds.

Owns the template of one model and what goes into it. Knows nothing of weights or of jobs' other
fields. Special tokens come from the template alone: whatever a message says is text."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template
from jinja2.exceptions import TemplateSyntaxError

from noidle.errors import CheckpointError, InvalidJob, printable
from noidle.jobs import Message
from tensor_llm.templates.budget import Budget
from tensor_llm.templates.sandbox import Sandbox, line_of
from tensor_llm.templates.syntax import NotAllowed
from tensor_llm.templates.text import Foreign, spans_of
from tensor_llm.tokenizer import Tokenizer

LONGEST_TEMPLATE = 64 << 10
"""Characters. The longest that are in use have about 20,000."""


class ChatTemplate:
    """Compiled once; safe between threads, as each rendering has a sandbox of its own."""

    def __init__(
        self,
        template: str,
        *,
        bos: str = "",
        eos: str = "",
        tokens: Mapping[str, str] | None = None,
        path: object = "the chat template",
        clock: Callable[[], datetime] = datetime.now,
    ) -> None:
        """
        Args:
            bos, eos, tokens: what the template may write by the names bos_token, eos_token and
                those given.
            path: the file it came from, for errors.
            clock: what templates that tell the date ask.

        Raises:
            CheckpointError: the template cannot be compiled.
        """
        self.template = template
        self._path = path
        self._clock = clock
        self._tokens = {"bos_token": bos, "eos_token": eos, **(tokens or {})}
        self._code = self._compile()

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True) -> str:
        """The conversation as text, as transformers' `apply_chat_template` writes it, up to where
        the answer begins.

        Raises:
            InvalidJob: the template refuses these messages, in its own words.
            CheckpointError: it fails, or takes more than it may.
        """
        return str.__str__(self._written(messages, add_generation_prompt))

    def encode(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        *,
        add_generation_prompt: bool = True,
    ) -> list[int]:
        """The conversation as tokens; else like `render`."""
        text = self._written(messages, add_generation_prompt)
        return tokenizer.encode_around(text, spans_of(text))

    def _compile(self) -> Any:
        if len(self.template) > LONGEST_TEMPLATE:
            raise self._fault(f"has more than {LONGEST_TEMPLATE} characters")
        try:
            return Sandbox(Budget()).code(self.template, "template")
        except NotAllowed as error:
            raise self._fault(str(error), error.line) from None
        except TemplateSyntaxError as error:
            raise self._fault(error.message or "is no Jinja template", error.lineno) from None
        except (RecursionError, MemoryError, SyntaxError):
            raise self._fault("is nested too deep") from None
        except Exception as error:  # noqa: BLE001 -- a program of unknown origin ends here
            raise self._fault(_words(error)) from None

    def _written(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        sandbox = Sandbox(Budget())
        sandbox.globals |= {"raise_exception": _refuse, "strftime_now": self._strftime}
        template = Template.from_code(sandbox, self._code, sandbox.globals)
        context = template.new_context(
            {
                **self._tokens,
                "messages": [_message(one) for one in messages],
                "tools": None,
                "documents": None,
                "add_generation_prompt": add_generation_prompt,
            }
        )
        try:
            return sandbox.concat(template.root_render_func(context))
        except _Refused as refusal:
            raise _invalid(messages, str(refusal)) from None
        except Exception as error:  # noqa: BLE001 -- a program of unknown origin ends here
            raise self._fault(_words(error), line_of(error, template)) from None

    def _strftime(self, form: str) -> str:
        return self._clock().strftime(form[:200])

    def _fault(self, words: str, line: int | None = None) -> CheckpointError:
        part = f"line {line}" if line is not None else ""
        return CheckpointError.of(self._path, words, part)


class _Refused(Exception):
    """The template says that it cannot write these messages."""


def _refuse(words: object = "") -> NoReturn:
    raise _Refused(str(words)[:300])


def _message(message: Message) -> dict[str, str]:
    return {"role": message.role.value, "content": Foreign(message.content)}


def _invalid(messages: Sequence[Message], words: str) -> InvalidJob:
    value = f"{len(messages)} messages"
    allowed = f"what the model's chat template takes; it says: {printable(words, 200)}"
    return InvalidJob.of("messages", value, allowed)


def _words(error: Exception) -> str:
    said = "calls itself too deep" if isinstance(error, RecursionError) else str(error)
    return f"fails: {printable(said, 200) or type(error).__name__}"
