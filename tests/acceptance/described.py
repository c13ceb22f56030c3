"""Echo engines at rates that a test describes."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def program(folder: Path, name: str, *, module: str = "engines.echo", **rates: float | str) -> Path:
    """Writes the declaration of an engine program; `rates` are its ECHO_… variables."""
    variables = [f'ECHO_{rate.upper()} = "{value}"' for rate, value in rates.items()]
    path = folder / f"{name}.toml"
    lines = [
        f'name = "{name}"',
        f'command = ["{{python}}", "-m", "{module}"]',
        f'folder = "{ROOT}"',
        "[env]",
        *variables,
    ]
    path.write_text("\n".join(lines))
    return path
