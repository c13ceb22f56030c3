"""Which folder a person means by PATH_OR_NAME.

Owns the rule between names and paths. A path is the person's own: it may lead anywhere. Needs no
torch."""

from dataclasses import dataclass
from pathlib import Path

from noidle.errors import CheckpointError, ConfigError
from tensor_llm.store import ModelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """A folder with a model."""

    folder: Path
    name: str
    # absent: a folder outside the store has none
    revision: str | None = None

    def weight_files(self) -> list[Path]:
        return sorted(self.folder.glob("*.safetensors"))


def find_model(given: str, data_dir: Path, *, option: str = "--model") -> Whereabouts:
    """A stored model of that name, else a folder; `./NAME` is a folder in any case.

    Args:
        option: what a refusal calls `given`.

    Raises:
        ConfigError: it is neither.
    """
    store = ModelStore(data_dir)
    stored = _stored(store, given)
    if stored is not None:
        return stored
    try:
        path = Path(given).expanduser()
        if path.is_dir():
            return Whereabouts(folder=path, name=path.resolve().name)
        if path.exists():
            allowed = "the folder that holds config.json, *.safetensors and tokenizer.json"
            raise ConfigError.of(option, given, allowed)
    # a home that nobody has, a name that no system takes, a folder that is closed
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError.of(option, given, f"a folder that can be read: {error}") from None
    known = ", ".join(store.names()) or "none yet; `noidle model add PATH` adds one"
    raise ConfigError.of(option, given, f"a folder, or a model of {data_dir}: {known}")


def _stored(store: ModelStore, given: str) -> Whereabouts | None:
    try:
        folder = store.directory(given)
    except CheckpointError:
        # no such model, or a text that cannot name one
        return None
    return Whereabouts(folder=folder, name=given, revision=folder.name)
