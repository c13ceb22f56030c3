"""What a pool must know of the models on its storage, without torch: the storage's identity and
which models lie there. The layout is tensor_llm's matter."""

from pathlib import Path

from tensor_llm.store import ModelStore


def storage_id(data_dir: Path) -> str:
    """The identity of this storage, the same for every pool that mounts it; drawn once."""
    return ModelStore(data_dir).storage_id()


def stored_models(data_dir: Path) -> tuple[str, ...]:
    """Names of the models that can be read here."""
    return tuple(ModelStore(data_dir).names())
