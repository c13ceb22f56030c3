"""Training texts by path, and never from outside their folder.

Owns the check of a job's path and the reading of files; knows nothing of what is learnt."""

from collections.abc import Iterator
from pathlib import Path

from noidle.errors import InvalidJob

MAX_BYTES = 256 << 20
"""All files of one job together."""
SUFFIXES = (".txt", ".md", ".rst", ".text")
_INSIDE = "a text file, or a folder of them, inside the cluster's text folder (NOIDLE_TEXT_DIR)"


def read_texts(path: str, text_dir: Path) -> list[str]:
    """The file at `path`, or the text files (.txt, .md, .rst, .text) in the folder at `path` and
    below in order of name; hidden ones are passed over. Links count as what they point to.

    Raises:
        InvalidJob: the path leads outside, to nothing, or to too much; or a file is no UTF-8.
    """
    root = text_dir.resolve()
    chosen = _resolved(path, root / path, root)
    if chosen.is_file():
        files = [chosen]
    else:
        files = [
            _resolved(f"{path} ({file.relative_to(chosen)})", file, root)
            for file in _text_files(chosen)
        ]
    if not files:
        raise InvalidJob.of("path", path, f"a folder that holds {', '.join(SUFFIXES)} files")
    total = sum(file.stat().st_size for file in files)
    if total > MAX_BYTES:
        raise InvalidJob.of("path", f"{path} ({total} bytes)", f"at most {MAX_BYTES} bytes of text")
    texts = [text for file in files if (text := _decoded(path, file, root)).strip()]
    if not texts:
        raise InvalidJob.of("path", path, "text that is not empty")
    return texts


def _resolved(shown: str, path: Path, root: Path) -> Path:
    try:
        found = path.resolve(strict=True)
    # a NUL character, a loop of links, a name too long
    except (OSError, ValueError, RuntimeError):
        raise InvalidJob.of("path", shown, _INSIDE) from None
    if not found.is_relative_to(root) or not (found.is_file() or found.is_dir()):
        raise InvalidJob.of("path", shown, _INSIDE)
    return found


def _text_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.suffix.lower() in SUFFIXES and not path.is_dir():
            yield path


def _decoded(shown: str, file: Path, root: Path) -> str:
    try:
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        where = f"{file.relative_to(root)}, byte {error.start}"
        raise InvalidJob.of("path", f"{shown} ({where})", "UTF-8 text") from None
    except OSError as error:
        raise InvalidJob.of("path", f"{shown} ({error.strerror})", _INSIDE) from None
