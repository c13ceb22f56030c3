"""Engine programs by name: those that come with noidle, and declarations by path."""

from pathlib import Path

from engines.program import HERE, Program, load_program, shipped


def find_program(name: str) -> Program:
    """`echo`, `tensor`, or the path of a declaration.

    Raises:
        ConfigError: the file is missing or wrong.
    """
    return load_program(shipped(name) if name in shipped_names() else Path(name).expanduser())


def shipped_names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.toml"))
