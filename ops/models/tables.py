"""Models in tables and words, for a terminal."""

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from ops.models.card import Card, FullCard

_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_COUNTS = ((10**9, "B"), (10**6, "M"), (10**3, "k"))


def card_table(cards: Iterable[Card]) -> Table:
    table = _table("name", "family", "parameters", "on disk", "format", "context", "revision")
    for card in cards:
        older = len(card.revisions) - 1
        revision = f"{card.revision}{f' (and {older} older)' if older > 0 else ''}"
        table.add_row(
            card.name,
            card.family or "–",
            count(card.parameters),
            size(card.disk_bytes),
            card.format or "–",
            "–" if card.context is None else f"{card.context:,}",
            Text(f"cannot be used: {card.fault}", style="red") if card.fault else revision,
        )
    return table


def full_card_table(card: FullCard) -> Table:
    rows = {
        "name": card.name,
        "folder": card.folder,
        "revision": card.revision or "–",
        "kept": ", ".join(card.revisions) or "–",
        "family": card.family or "–",
        "parameters": f"{card.parameters:,}" if card.parameters else "–",
        "weights": ", ".join(f"{size(of)} {name}" for name, of in card.types.items()),
        "format": card.format or "–",
        "files": f"{card.weight_files} of weights, {size(card.disk_bytes)} in all",
        "context": f"{card.context:,} tokens" if card.context else "–",
        "chat template": "yes" if card.chat_template else "none",
        **{name.replace("_", " "): _plain(value) for name, value in _rest(card).items()},
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def size(of: int) -> str:
    unit, name = next(((unit, name) for unit, name in _UNITS if of >= unit), (1, "B"))
    return f"{of / unit:.1f} {name}" if unit > 1 else f"{of} B"


def count(of: int | None) -> str:
    if of is None:
        return "–"
    unit, name = next(((unit, name) for unit, name in _COUNTS if of >= unit), (1, ""))
    return f"{of / unit:.3g} {name}".strip()


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    numbers = ("parameters", "on disk", "context")
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return table


def _rest(card: FullCard) -> Mapping[str, object]:
    """Sizes, and what sets this model apart from others."""
    shown = ("architecture", "family", "context")
    return {name: value for name, value in card.config.items() if name not in shown and value}


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "yes" if value is True else str(value)
