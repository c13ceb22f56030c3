"""The filters that a template may use: bounded, and keeping whose text is whose.

Each takes the budget before what it filters. Filters that could write at any width, at random or
through patterns are not among them."""

import json
from collections.abc import Callable, Iterable
from typing import Any

from jinja2 import filters as jinja
from jinja2.environment import Environment

from tensor_llm.templates import methods
from tensor_llm.templates import text as texts
from tensor_llm.templates.budget import Budget, OverBudget

WIDEST = 64
"""Spaces that one level of indentation may have."""
LONGEST_NUMBER = 1000


def trim(budget: Budget, value: object, chars: str | None = None) -> str:
    return methods.strip(budget, methods.written(value), chars)


def replace(budget: Budget, value: object, old: str, new: str, count: int | None = None) -> str:
    return methods.replace(budget, methods.written(value), old, methods.written(new), count)


def tojson(
    budget: Budget,
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers offers it, which writes characters as they are."""
    budget.weigh(value)
    width = indent if isinstance(indent, int) else len(indent or "")
    if width > WIDEST or sum(map(len, separators or ())) > WIDEST:
        raise OverBudget(f"indents JSON by more than {WIDEST} characters")
    found = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    budget.text(len(found))
    return (
        found if value is None or type(value) in (str, int, float, bool) else texts.Foreign(found)
    )


def string(budget: Budget, value: object) -> str:
    budget.weigh(value)
    found = methods.written(value)
    budget.text(len(found))
    return found


def join(
    budget: Budget,
    environment: Environment,
    value: Iterable[object],
    d: str = "",
    attribute: str | int | None = None,
) -> str:
    if attribute is not None:
        value = map(jinja.make_attrgetter(environment, attribute), value)
    return methods.join(budget, methods.written(d), value)


def indent(
    budget: Budget, value: object, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    space = " " * min(width, WIDEST + 1) if isinstance(width, int) else width
    if len(space) > WIDEST:
        raise OverBudget(f"indents by more than {WIDEST} characters")
    # Jinja's own quirk: a last empty line counts
    lines = methods.splitlines(budget, texts.join([methods.written(value), "\n"]))
    rest = [methods.join(budget, "", (space, one)) if one or blank else one for one in lines[1:]]
    return methods.join(budget, "\n", [texts.join([space, lines[0]]) if first else lines[0], *rest])


def items(budget: Budget, value: Iterable[object]) -> list[object]:
    """`list`"""
    return budget.taken(value)


def reverse(budget: Budget, value: Any) -> Any:
    if isinstance(value, str):
        budget.text(len(value))
        return value[::-1]
    return budget.taken(value)[::-1]


def total(budget: Budget, value: Iterable[Any], start: float = 0) -> float:
    """`sum`, of numbers alone."""
    for one in budget.taken(value):
        if not isinstance(one, int | float):
            raise TypeError("sum takes numbers")
        budget.number(start)
        start = start + one
    return start


def whole(_budget: Budget, value: object, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > LONGEST_NUMBER:
        raise OverBudget(f"reads a number of more than {LONGEST_NUMBER} digits")
    return jinja.do_int(value, default, base)


def rounded(_budget: Budget, value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > WIDEST:
        raise OverBudget(f"rounds to more than {WIDEST} digits")
    return jinja.do_round(value, precision, method)  # type: ignore[arg-type]  # checked there


def same(_budget: Budget, value: object) -> object:
    """`safe`: nothing is escaped here."""
    return value


def _method(name: str) -> Callable[..., str]:
    method = methods.METHODS[name]
    return lambda budget, value: method(budget, methods.written(value))


def title(budget: Budget, value: object) -> str:
    """As Jinja has it, which differs from Python's."""
    text = methods.written(value)
    budget.text(len(text))
    return texts.like(jinja.do_title(str.__str__(text)), text)


def _whole_list(filtered: Callable[..., Any]) -> Callable[..., Any]:
    """Of a filter that compares the entries of a list."""

    def call(
        budget: Budget, environment: Environment, value: Any, *given: Any, **named: Any
    ) -> Any:
        if not isinstance(value, dict):
            value = budget.taken(value)
        budget.weigh(value)
        return filtered(environment, value, *given, **named)

    return call


def _of_value(filtered: Callable[..., Any]) -> Callable[..., Any]:
    """Of a filter that hands on what it was given, and compares nothing."""
    return lambda _budget, *given, **named: filtered(*given, **named)


# those that Jinja passes the environment or the context
WITH_ENVIRONMENT: dict[str, Callable[..., Any]] = {
    "dictsort": _whole_list(lambda _environment, value, *a, **n: jinja.do_dictsort(value, *a, **n)),
    "first": _of_value(jinja.do_first),
    "groupby": _whole_list(jinja.sync_do_groupby),
    "join": join,
    "last": _of_value(jinja.do_last),
    "max": _whole_list(jinja.do_max),
    "min": _whole_list(jinja.do_min),
    "sort": _whole_list(jinja.do_sort),
    "unique": _whole_list(lambda *a, **n: iter(list(jinja.do_unique(*a, **n)))),
}
WITH_CONTEXT: dict[str, Callable[..., Any]] = {
    "map": _of_value(jinja.sync_do_map),
    "reject": _of_value(jinja.sync_do_reject),
    "rejectattr": _of_value(jinja.sync_do_rejectattr),
    "select": _of_value(jinja.sync_do_select),
    "selectattr": _of_value(jinja.sync_do_selectattr),
}
PLAIN: dict[str, Callable[..., Any]] = {
    "abs": _of_value(abs),
    "capitalize": _method("capitalize"),
    "count": _of_value(len),
    "d": _of_value(jinja.do_default),
    "default": _of_value(jinja.do_default),
    "float": _of_value(jinja.do_float),
    "indent": indent,
    "int": whole,
    "items": _of_value(jinja.do_items),
    "length": _of_value(len),
    "list": items,
    "lower": _method("lower"),
    "replace": replace,
    "reverse": reverse,
    "round": rounded,
    "safe": same,
    "string": string,
    "sum": total,
    "title": title,
    "tojson": tojson,
    "trim": trim,
    "upper": _method("upper"),
}
