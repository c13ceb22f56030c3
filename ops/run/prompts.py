"""Texts and conversations as the tokens that a model reads."""

import time
from collections.abc import Sequence

from noidle.errors import InvalidJob
from noidle.jobs import Message
from ops.run.opening import Opened


def text_tokens(opened: Opened, text: str) -> tuple[list[int], float]:
    """Tokens, and the milliseconds it took. Special tokens are those that tokenizer.json itself
    adds; text is never read as one."""
    began_s = time.perf_counter()
    tokens = opened.model.tokenizer.encode(text)
    return tokens, 1000 * (time.perf_counter() - began_s)


def message_tokens(opened: Opened, messages: Sequence[Message]) -> tuple[list[int], float]:
    """The same through the model's own template.

    Raises:
        InvalidJob: it has none, or its template refuses the conversation.
    """
    began_s = time.perf_counter()
    template = opened.model.chat
    if template is None:
        raise InvalidJob(
            f"{opened.model.name} has no chat template: use `noidle run generate`, or put its "
            "chat_template.jinja beside it",
            field="messages",
        )
    tokens = template.encode(messages, opened.model.tokenizer)
    return tokens, 1000 * (time.perf_counter() - began_s)
