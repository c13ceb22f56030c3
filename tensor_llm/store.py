"""Where models lie: `DATA/models/NAME/REVISION/`, `DATA/models/NAME/current` naming the
revision to use, `DATA/storage-id` naming the storage.

Owns atomic writing, pruning and what can be known of a model without its weights. Knows nothing
of tensors; needs no torch.

Files of a revision: config.json, model.safetensors (or several with an index), tokenizer.json,
checkpoint.json (step, bytes a token), what else came with the model, such as its chat template,
and training.json with training.safetensors where training can go on. The first three are laid out
as this package does it, or as transformers does."""

import os
import re
import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noidle.errors import CheckpointError
from noidle.snapshot import ModelInfo
from tensor_llm.families.directory import read_config as read_config
from tensor_llm.families.files import weight_files
from tensor_llm.json_file import read_json as read_json

CHECKPOINT_FILE = "checkpoint.json"

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REVISION = re.compile(r"step-(\d+)-")


def revision_name(step: int, token8: str) -> str:
    """How a revision is called: by the steps its weights have seen and the lease it was made
    under, so that two attempts never write the same one."""
    return f"step-{step:06d}-{token8}"


@dataclass(slots=True)
class Draft:
    """A revision that is being written."""

    folder: Path
    revision: str = ""


class ModelStore:
    """The models of one data folder, which several processes may share."""

    def __init__(self, data_dir: Path) -> None:
        self._data = data_dir
        self._models = data_dir / "models"

    def storage_id(self) -> str:
        """The identity of this folder; drawn the first time."""
        path = self._data / "storage-id"
        if not path.exists():
            self._data.mkdir(parents=True, exist_ok=True)
            draft = self._data / f".storage-id-{uuid.uuid4().hex}"
            draft.write_text(uuid.uuid4().hex)
            try:
                # a link, not a rename: of two processes that draw at once, the first one counts
                os.link(draft, path)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        return path.read_text().strip()

    def names(self) -> list[str]:
        """Models that have a current revision."""
        return sorted(self.in_use())

    def in_use(self) -> dict[str, str]:
        """The current revision of each model."""
        if not self._models.is_dir():
            return {}
        found = (entry.name for entry in self._models.iterdir() if _SAFE.fullmatch(entry.name))
        read = ((name, self.current(name)) for name in found)
        return {name: revision for name, revision in read if revision is not None}

    def current(self, name: str) -> str | None:
        """The revision to use, or None where there is no such model."""
        try:
            revision = (self._folder(name) / "current").read_text().strip()
        except (OSError, UnicodeDecodeError):
            return None
        return revision if _SAFE.fullmatch(revision) else None

    def revisions(self, name: str) -> list[str]:
        """All complete revisions, oldest first."""
        folder = self._folder(name)
        if not folder.is_dir():
            return []
        found = [entry for entry in folder.iterdir() if _SAFE.fullmatch(entry.name)]
        return [entry.name for entry in sorted(found, key=_age) if entry.is_dir()]

    def directory(self, name: str, revision: str | None = None) -> Path:
        """The folder of a revision, by default the current one.

        Raises:
            CheckpointError: there is no such model or revision.
        """
        wanted = revision or self.current(name)
        if wanted is None:
            known = ", ".join(self.names()) or "none yet"
            raise CheckpointError.of(
                self._folder(name), f"no model of this name; there are: {known}"
            )
        path = self._folder(name) / _safe("revision", wanted)
        if not path.is_dir():
            known = ", ".join(self.revisions(name)) or "none"
            raise CheckpointError.of(path, f"no such revision; there are: {known}")
        return path

    def info(self, name: str, revision: str | None = None) -> ModelInfo:
        """What the cluster should know of a model, read from its small files.

        Raises:
            CheckpointError: there is no such model, or a file of it is malformed.
        """
        path = self.directory(name, revision)
        config = read_config(path)
        about = read_json(path / CHECKPOINT_FILE)
        weight_bytes = sum(map(_size, weight_files(path)))
        return ModelInfo(
            name=name,
            revision=path.name,
            storage=self.storage_id(),
            context=config.context,
            parameters=config.parameters,
            weight_bytes=weight_bytes,
            kv_bytes_per_token=config.kv_bytes_per_token(),
            bytes_per_token=_number(about, "bytes_per_token", path / CHECKPOINT_FILE),
        )

    @contextmanager
    def writing(self, name: str, revision: str) -> Iterator[Path]:
        """A folder to write a revision in; it appears under its name, whole and on disk, when
        the block ends without an error. An existing revision is left as it is."""
        with self.drafting(name) as draft:
            draft.revision = _safe("revision", revision)
            yield draft.folder

    @contextmanager
    def drafting(self, name: str) -> Iterator["Draft"]:
        """The same where the revision's name follows from what is written: the block sets it."""
        parent = self._folder(name)
        folder = parent / f".draft-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        draft = Draft(folder)
        try:
            yield draft
            target = parent / _safe("revision", draft.revision)
            for file in folder.iterdir():
                _sync(file)
            _sync(folder)
            if not target.exists():
                folder.rename(target)
            _sync(parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self, name: str) -> None:
        """Deletes a model with all its revisions; what has them mapped goes on.

        Raises:
            CheckpointError: there is no such model.
        """
        folder = self.directory(name).parent
        # first out of sight, at once; then file by file
        doomed = self._models / f".removed-{uuid.uuid4().hex}"
        folder.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def set_current(self, name: str, revision: str) -> None:
        """Makes a complete revision the one to use."""
        folder = self.directory(name, revision).parent
        draft = folder / f".current-{uuid.uuid4().hex}"
        draft.write_text(revision + "\n")
        _sync(draft)
        draft.replace(folder / "current")
        _sync(folder)

    def prune(self, name: str, *, keep: int = 3, in_use: Collection[str] = ()) -> list[str]:
        """Deletes all but the last `keep` revisions, the current one and those in use."""
        spared = {self.current(name), *in_use}
        doomed = [name_ for name_ in self.revisions(name)[:-keep] if name_ not in spared]
        for revision in doomed:
            shutil.rmtree(self._folder(name) / revision, ignore_errors=True)
        return doomed

    def _folder(self, name: str) -> Path:
        return self._models / _safe("model", name)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as error:
        raise CheckpointError.of(path, f"cannot be read: {error}") from None


def _number(data: dict[str, Any], field: str, path: Path) -> float:
    value = data.get(field)
    if type(value) not in (int, float) or not 0 < float(str(value)) < 1e6:
        raise CheckpointError.of(path, f"{str(value)[:80]}: allowed is a number above 0", field)
    return float(str(value))


def _safe(what: str, name: str) -> str:
    if not _SAFE.fullmatch(name):
        raise CheckpointError.of(what, f"{name[:80]!r} cannot name a folder: {_SAFE.pattern}")
    return name


def _age(path: Path) -> tuple[int, int, str]:
    """Steps first: two attempts may write out of order."""
    match = _REVISION.match(path.name)
    try:
        written = path.stat().st_mtime_ns
    except FileNotFoundError:
        written = 0
    return (int(match[1]) if match else 0, written, path.name)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
