"""What a pool must know of the models on its storage, without torch: the storage's identity and
which models lie there. The layout is tensor_llm's matter."""

from pathlib import Path

from noidle.snapshot import ModelInfo
from tensor_llm.store import ModelStore


def storage_id(data_dir: Path) -> str:
    """The identity of this storage, the same for every pool that mounts it; drawn once."""
    return ModelStore(data_dir).storage_id()


def stored_revisions(data_dir: Path) -> dict[str, str]:
    """The models that can be read here, each with its current revision."""
    return ModelStore(data_dir).in_use()


def stored_model(data_dir: Path, name: str) -> ModelInfo:
    """What the cluster should know of a model that lies here.

    Raises:
        CheckpointError: it is gone, or a file of it is malformed.
    """
    return ModelStore(data_dir).info(name)
