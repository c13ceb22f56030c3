"""From the source of a template to code that counts what it does.

What Jinja compiles to plain Python, where nothing could look on (loops, `~`, slices, comparisons),
is rewritten to filters of names that no template can write. Owns that, and which statements a chat
template may hold."""
# ruff: noqa: N802 -- Jinja finds its visitors by these names

from collections.abc import Iterator
from typing import Any

from jinja2 import Environment, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

LOOP, CONCAT, SLICE, OPERAND, ENTER = "a loop", "a concat", "a slice", "an operand", "an entry"
_NOT_ALLOWED = {
    nodes.Block: "block",
    nodes.Extends: "extends",
    nodes.FromImport: "import",
    nodes.Import: "import",
    nodes.Include: "include",
    nodes.ScopedEvalContextModifier: "autoescape",
}


class NotAllowed(Exception):
    """A statement that belongs to web pages."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Generation(Extension):
    """`{% generation %}`, which marks what a model is trained on, and means nothing here."""

    tags = {"generation"}  # noqa: RUF012 -- as Jinja declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def counted(tree: nodes.Template, environment: Environment) -> nodes.Template:
    """The same template, each part of which is counted.

    Raises:
        NotAllowed: it holds a statement that a chat template has no use for.
    """
    for node in _all(tree):
        for kind, name in _NOT_ALLOWED.items():
            if isinstance(node, kind):
                raise NotAllowed(f"{{% {name} %}} is not allowed here", node.lineno)
    rewritten: nodes.Template = _Counting().visit(tree)
    rewritten.set_environment(environment)
    return rewritten


class _Counting(NodeTransformer):
    """Innermost first, so that what is added is not counted again."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        weight = _weight(node)
        self.generic_visit(node)
        node.iter = _filter(LOOP, node.iter, nodes.Const(weight))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._enter(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._enter(node)

    def _enter(self, node: nodes.Macro | nodes.CallBlock) -> nodes.Node:
        weight = _weight(node)
        self.generic_visit(node)
        first = _filter(ENTER, nodes.Const(None, lineno=node.lineno), nodes.Const(weight))
        node.body.insert(0, nodes.ExprStmt(first, lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(CONCAT, nodes.List(node.nodes, lineno=node.lineno))

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        for operand in node.ops:
            operand.expr = _filter(OPERAND, operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        cut = node.arg
        if not isinstance(cut, nodes.Slice):
            return node
        bounds = (cut.start, cut.stop, cut.step)
        return _filter(SLICE, node.node, *(one or nodes.Const(None) for one in bounds))


def _filter(name: str, node: nodes.Node, *arguments: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(arguments), [], None, None, lineno=node.lineno)


def _weight(node: nodes.Node) -> int:
    return sum(1 for _ in _all(node))


def _all(node: nodes.Node) -> Iterator[nodes.Node]:
    waiting: list[Any] = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += one.iter_child_nodes()
