"""A directory with a model of either layout, seen as this package sees models: its config, where
each tensor lies under our name for it, and the texts that go with it.

Knows nothing of torch; no weight is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tensor_llm.config import ModelConfig
from tensor_llm.tensor_file import StoredTensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a directory holds; every tensor has the shape the config asks for."""

    folder: Path
    config: ModelConfig
    # by our names; NAME.int8 or NAME.int4 with NAME.scale where a weight is packed
    tensors: Mapping[str, StoredTensor]
    tokenizer: Path
    # jinja2
    chat_template: str | None
    # texts of the tokens, for the template
    bos: str | None
    eos: str | None


def read_directory(folder: Path) -> Source:
    """
    Raises:
        CheckpointError: naming the file, and the tensor or field, that cannot be used.
    """
    raise NotImplementedError
