"""The environment that a template runs in: Jinja's own sandbox, with every operation counted.

Jinja keeps templates from Python's insides, but not from endless loops or from texts of a
terabyte, and a thread cannot be stopped from outside. So each run has a budget, everything that
takes a step or makes a text asks it first, and what could take long in one piece is bounded by the
size of what it is given."""

import functools
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinMethodType
from typing import Any

from jinja2 import Template
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Cycler, Joiner, Namespace, pass_context, pass_environment

from tensor_llm.templates import filters, methods, syntax
from tensor_llm.templates import text as texts
from tensor_llm.templates.budget import Budget

# what these offer can neither grow nor take long
_OPEN = (Namespace, LoopContext, Cycler, Joiner, Macro, Undefined)
_DICT = frozenset({"get", "items", "keys", "values"})


class Names(Namespace):
    """A namespace whose names no template can mistake for Python's."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise SecurityError(f"the name {name[:40]!r} is not allowed in a namespace")
        super().__setitem__(name, value)


class Loop:
    """What a `for` goes through, each time around counted."""

    def __init__(self, budget: Budget, inner: Any, weight: int) -> None:
        self._budget, self._inner, self._weight = budget, inner, weight

    def __iter__(self) -> Iterator[Any]:
        for one in self._inner:
            self._budget.step(self._weight)
            yield one

    def __len__(self) -> int:
        return len(self._inner)


class Sandbox(ImmutableSandboxedEnvironment):
    """For one run of one template, or for compiling it."""

    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self, budget: Budget) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=self._shown,
            extensions=[loopcontrols, syntax.Generation],
        )
        self.budget = budget
        self.concat = self._concat  # type: ignore[method-assign]  # read from instances
        self.globals: dict[str, Any] = {
            "cycler": Cycler,
            "dict": self._dict,
            "joiner": Joiner,
            "namespace": Names,
            "range": safe_range,
        }
        self.filters: dict[str, Callable[..., Any]] = {
            **{name: self._plain(one) for name, one in filters.PLAIN.items()},
            **{
                name: self._passing(one, pass_environment)
                for name, one in filters.WITH_ENVIRONMENT.items()
            },
            **{
                name: self._passing(one, pass_context) for name, one in filters.WITH_CONTEXT.items()
            },
            "format": lambda form, *given, **named: self._percent(form, given or named),
            syntax.CONCAT: lambda parts: methods.join(budget, "", parts),
            syntax.ENTER: lambda _, weight: budget.step(weight),
            syntax.LOOP: lambda inner, weight: Loop(budget, inner, weight),
            syntax.OPERAND: self._operand,
            syntax.SLICE: self._slice,
        }
        tests: Mapping[str, Any] = self.tests
        self.tests = {name: self._test(test) for name, test in tests.items()}

    def code(self, source: str, name: str) -> Any:
        """
        Raises:
            TemplateSyntaxError, NotAllowed: the template can never run.
        """
        tree = syntax.counted(self.parse(source, name, name), self)
        return self.compile(tree, name, name)

    def call(self, context: Context, called: Any, /, *given: Any, **named: Any) -> Any:
        self.budget.step()
        for one in (*given, *named.values()):
            if isinstance(one, list | tuple | dict):
                self.budget.weigh(one)
        if isinstance(called, BuiltinMethodType) and isinstance(called.__self__, str):
            # what Jinja adds for functions that read the template's variables
            for name in ("_loop_vars", "_block_vars"):
                named.pop(name, None)
            return methods.METHODS[called.__name__](self.budget, called.__self__, *given, **named)
        if isinstance(called, LoopContext):
            # deeper into a recursive loop
            given = tuple(Loop(self.budget, one, 1) for one in given)
        self.budget.enter()
        try:
            found = super().call(context, called, *given, **named)
        finally:
            self.budget.leave()
        # nothing makes new text here but macros, whose text is known
        return (
            texts.like(found, *given, *named.values())
            if type(found) is str and not isinstance(called, Macro)
            else found
        )

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        self.budget.step()
        match operator, left, right:
            case "+", str(), str():
                self.budget.text(len(left) + len(right))
                return texts.join((left, right))
            case "%", str(), _:
                return self._percent(left, right)
            case "+", list() | tuple(), list() | tuple():
                self.budget.items(len(left) + len(right))
            case "*", str() | list() | tuple(), int():
                return self._times(left, right)
            case "*", int(), str() | list() | tuple():
                return self._times(right, left)
            case "**", int(), int():
                # two to the power of the limit is one too many
                self.budget.number(1 << min(abs(left).bit_length() * abs(right), 1 << 16))
            case _:
                self.budget.number(left)
                self.budget.number(right)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, str):
            return attr in methods.METHODS
        if isinstance(obj, Mapping):
            return attr in _DICT
        return isinstance(obj, _OPEN) and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        """An escape that is tried is told of at once."""
        raise SecurityError(f"{attribute[:40]!r} of {type(obj).__name__!r} is not allowed")

    def wrap_str_format(self, value: Any) -> None:
        """`call` takes care of it."""

    def _times(self, one: Any, times: int) -> Any:
        size = len(one) * max(0, times)
        if not isinstance(one, str):
            self.budget.items(size)
            return one * times
        self.budget.text(size)
        return texts.join([one] * times) if isinstance(one, texts.Foreign) else one * times

    def _percent(self, form: str, values: Any) -> str:
        self.budget.weigh((form, values))
        methods.check_widths(form)
        found = texts.percent(form, values)
        self.budget.text(len(found))
        return found

    def _concat(self, parts: Any) -> str:
        found = []
        for part in parts:
            self.budget.step()
            found.append(part)
        self.budget.text(sum(map(len, found)))
        return texts.join(found)

    def _shown(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        self.budget.weigh(value)
        shown = methods.written(value)
        self.budget.text(len(shown))
        return shown

    def _operand(self, value: Any) -> Any:
        if not isinstance(value, str):
            self.budget.weigh(value)
        return value

    def _slice(self, value: Any, start: Any, stop: Any, step: Any) -> Any:
        if isinstance(value, str):
            self.budget.text(len(value))
        elif isinstance(value, list | tuple):
            self.budget.items(len(value))
        return value[start:stop:step]

    def _dict(self, *given: Any, **named: Any) -> dict[Any, Any]:
        found = dict(*given, **named)
        self.budget.items(len(found))
        return found

    def _plain(self, called: Callable[..., Any]) -> Callable[..., Any]:
        def filtered(*given: Any, **named: Any) -> Any:
            self.budget.step()
            return called(self.budget, *given, **named)

        return filtered

    def _passing(self, called: Callable[..., Any], mark: Callable[..., Any]) -> Callable[..., Any]:
        marked: Callable[..., Any] = mark(self._plain(called))
        return marked

    def _test(self, test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def tested(*given: Any, **named: Any) -> Any:
            self.budget.step()
            self.budget.weigh([one for one in given if isinstance(one, list | tuple | dict)])
            return test(*given, **named)

        return tested


def line_of(error: BaseException, template: Template) -> int | None:
    """The line of the template that was running when the error came."""
    line: int | None = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__jinja_template__") is template:
            line = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return line
