"""Reads the kernel's text files. Owns the parsing; a file that is not there, not readable or
not in the expected form yields None, so that callers report absent instead of zero."""

from pathlib import Path


def read(path: Path) -> str | None:
    """The file's text, or None where this kernel, container or user cannot read it."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None


def number(path: Path) -> int | None:
    """The one number a file holds; None also for "max", the kernel's word for no limit."""
    text = read(path)
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def fields(path: Path, *only: str) -> dict[str, int]:
    """Lines such as `MemAvailable: 123 kB` or `pgmajfault 7`, in the file's own units.

    Args:
        only: names to look for, where the file has hundreds; absent, all.
    """
    found: dict[str, int] = {}
    for line in (read(path) or "").splitlines():
        if only and not line.startswith(only):
            continue
        name, _, rest = line.replace(":", " ", 1).partition(" ")
        value = rest.split()[:1]
        if value and value[0].isdigit():
            found[name] = int(value[0])
    return found


def stall_percent(path: Path, kind: str = "some") -> float | None:
    """Pressure stall of the last 10 s: `some` task waited, or all of them (`full`)."""
    for line in (read(path) or "").splitlines():
        name, *pairs = line.split()
        if name == kind:
            values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
            return float(values["avg10"]) if "avg10" in values else None
    return None
