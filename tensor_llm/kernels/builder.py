"""The shared library of the C++ kernels: built once a machine, by torch's extension builder,
and kept in the user's cache folder.

Owns where it lies and when it must be built anew. Knows nothing of what is in it.

It holds every instruction set level and picks one at run time; so only the sources, torch, the
processor's architecture and the platform decide whether a built one still fits."""

import hashlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "native"
# a flag that the compiler lacks must not cost the kernels, so none beyond what every one has
_FLAGS = ["-O2", "-std=c++17", "-fopenmp", "-fno-math-errno", "-w"]


class BuildFault(Exception):
    """There is no library and none can be built; the message says why and what to do."""


def library_path(cache: Path | None = None) -> Path:
    """The library, built first if need be: once, however many processes ask at the same time.

    Raises:
        BuildFault: it cannot be built.
    """
    path = _path(cache)
    if not path.exists():
        with _own_tools():
            _build(path)
    return path


def must_build(cache: Path | None = None) -> bool:
    """Whether whoever asks for the library now waits for a compiler."""
    try:
        with _own_tools():
            _check_tools()
    except BuildFault:
        return False
    return not _path(cache).exists()


def default_cache() -> Path:
    """`~/.cache/noidle`, or below XDG_CACHE_HOME."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "noidle"


def _path(cache: Path | None) -> Path:
    return (cache or default_cache()) / f"kernels-{_fingerprint()}.so"


@contextmanager
def _own_tools() -> Iterator[None]:
    """Puts ninja on the path, which lies beside the interpreter where no environment is active."""
    before = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{before}{os.pathsep}{Path(sys.executable).parent}"
    try:
        yield
    finally:
        os.environ["PATH"] = before


def _fingerprint() -> str:
    """What the library depends on, as a name."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.suffix in (".h", ".cpp"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    facts = (torch.__version__, platform.machine(), sys.platform, platform.libc_ver(), *_FLAGS)
    digest.update(repr(facts).encode())
    return digest.hexdigest()[:16]


def _build(path: Path) -> None:
    """Builds in a folder of this process's own and renames the result: whoever is last replaces
    a library by an equal one."""
    _check_tools()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=path.parent) as folder:
            _compile(Path(folder)).replace(path)
    except OSError as error:
        raise BuildFault(f"{path.parent}: cannot be written: {error}") from None


def _check_tools() -> None:
    compiler = os.environ.get("CXX", "c++")
    for tool, remedy in ((compiler, "install g++ or clang++"), ("ninja", "install ninja")):
        if shutil.which(tool) is None:
            raise BuildFault(f"there is no {tool} on the path: {remedy}")


def _compile(folder: Path) -> Path:
    # slow to import, and needed only the first time
    from torch.utils import cpp_extension

    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    try:
        cpp_extension.load(
            name="noidle_kernels",
            sources=sources,
            extra_cflags=_FLAGS,
            extra_ldflags=["-fopenmp"],
            build_directory=str(folder),
            is_python_module=False,
        )
    except (RuntimeError, OSError) as error:
        raise BuildFault(f"the compiler refused: {str(error)[-2000:]}") from None
    built = next(folder.glob("*.so"), None)
    if built is None:
        raise BuildFault("the compiler left no library")
    return built
