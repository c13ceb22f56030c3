"""The texts that go with a model: its chat template, and how the tokens that begin and end a
text are written. Knows nothing of rendering."""

from dataclasses import dataclass
from pathlib import Path

from noidle.errors import CheckpointError
from tensor_llm.families.fields import Fields
from tensor_llm.families.files import (
    CHAT_TEMPLATE_FILE,
    LARGEST_SIDE_BYTES,
    SPECIAL_TOKENS_FILE,
    TOKENIZER_CONFIG_FILE,
)
from tensor_llm.json_file import read_bytes, read_json

LARGEST_TEMPLATE_BYTES = 1 << 20
_USUAL = "default"
# what templates call the tokens
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    # jinja2
    chat_template: str | None
    # how tokens are written, by what templates call them
    tokens: dict[str, str]


def read_texts(folder: Path) -> Texts:
    """From those files that there are.

    Raises:
        CheckpointError: naming the file and field that cannot be used.
    """
    fields = _optional(folder / TOKENIZER_CONFIG_FILE)
    others = _optional(folder / SPECIAL_TOKENS_FILE)
    return Texts(
        chat_template=_template_file(folder / CHAT_TEMPLATE_FILE) or _template(fields),
        tokens=_tokens(others) | _tokens(fields),
    )


def _optional(path: Path) -> Fields:
    return Fields(read_json(path, LARGEST_SIDE_BYTES) if path.exists() else {}, path)


def _template_file(path: Path) -> str | None:
    if not path.exists():
        return None
    try:
        return read_bytes(path, LARGEST_TEMPLATE_BYTES).decode()
    except UnicodeDecodeError as error:
        raise CheckpointError.of(path, f"cannot be read: {error}") from None


def _template(fields: Fields) -> str | None:
    """A text, or a list of named ones of which the one called "default" counts."""
    found = fields.get("chat_template")
    if isinstance(found, list):
        named = [one for one in found if isinstance(one, dict) and one.get("name") == _USUAL]
        found = named[0].get("template") if named else None
    if found is None:
        return None
    if not isinstance(found, str) or len(found) > LARGEST_TEMPLATE_BYTES:
        raise fields.wrong("chat_template", "a text, or a list of named ones")
    return found


def _tokens(fields: Fields) -> dict[str, str]:
    found = {name: _token(fields, name) for name in _TOKENS}
    return {name: text for name, text in found.items() if text is not None}


def _token(fields: Fields, name: str) -> str | None:
    """Written as a text, or as an object whose `content` is the text."""
    value = fields.get(name)
    if isinstance(value, dict):
        value = value.get("content")
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > 1024:
        raise fields.wrong(name, "a text")
    return value
