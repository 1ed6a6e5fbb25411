# SPDX-License-Identifier: GPL-3.0-or-later
"""The mutants of a module: its source with one small change each.

Rules:

* The changes are mutmut's (operators, numbers, strings, arguments, assignments) and those below, which it lacks:
  conditions, operands, members of tuples, lists and dicts, statements, exceptions, slices, loops, results, patterns.
* Everything is changed, constants and tables of the module too; only annotations, type aliases, docstrings and imports
  are not: no decision reads them.
* A change that Python reads as the same program is no mutant, nor is one that is the same as another.
* A mutant is known by its module, its function, and the changed lines before and after: not by a number or a line, so
  that it keeps its name while the code around it changes.
"""

from __future__ import annotations

import ast
from typing import Any, Callable, Iterator, List, NamedTuple, Sequence, Tuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutants import equivalents, patterns
from mutmut.mutation.mutators import mutation_operators

MODULE_LEVEL = "<module>"
TYPES = frozenset(("Callable", "Dict", "List", "Mapping", "Optional", "Sequence", "Set", "Tuple", "Union"))
NOWHERE = (cst.Annotation, cst.Import, cst.ImportFrom, cst.AssignTarget)
YES, NO, NOTHING = cst.Name("True"), cst.Name("False"), cst.Name("None")


class Mutant(NamedTuple):
    """One changed module."""

    change: equivalents.Change
    line: int
    code: str


def mutants(module: str, source: str) -> List[Mutant]:
    """Every mutant of a module, in the order of its lines."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    tree = wrapper.module
    texts = [tree.code_for_node(statement) for statement in tree.body]
    start = source.index("".join(texts))
    starts = [start + sum(map(len, texts[:number])) for number in range(len(texts))]
    finder = _Finder(tree)
    wrapper.visit(finder)
    seen = {(number, _meaning(text)) for number, text in enumerate(texts)}
    found = []
    for function, line, number, node, new in finder.found:
        text = tree.code_for_node(tree.body[number].deep_replace(node, new))
        meaning = (number, _meaning(text))
        if meaning not in seen:
            seen.add(meaning)
            code = source[: starts[number]] + text + source[starts[number] + len(texts[number]) :]
            found.append(Mutant(equivalents.Change(function, *_difference(source, code)), line, code))
    return sorted(found, key=lambda one: one.line)


def _meaning(text: str) -> str:
    """What Python reads in a statement; text that is none cannot come from a change of ours."""
    try:
        return ast.dump(ast.parse(text))
    except SyntaxError as error:
        raise AssertionError("a change made no statement: line %s: %s" % (error.lineno, error.text)) from error


def _difference(source: str, code: str) -> Tuple[str, str]:
    """The changed lines before and after, without their indentation."""
    was, becomes = source.splitlines(), code.splitlines()
    while was and becomes and was[0] == becomes[0]:
        del was[0], becomes[0]
    while was and becomes and was[-1] == becomes[-1]:
        del was[-1], becomes[-1]
    return _one_line(was), _one_line(becomes)


def _one_line(lines: Sequence[str]) -> str:
    return " ".join(line.strip() for line in lines).strip()


class _Finder(cst.CSTVisitor):
    """Collects function, line, number of the module's statement, node, and what to put in its place."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, tree: cst.Module) -> None:
        super().__init__()
        self.found: List[Tuple[str, int, int, cst.CSTNode, cst.CSTNode]] = []
        self._names: List[str] = []
        self._line = 1
        self._statements = {id(statement): number for number, statement in enumerate(tree.body)}
        self._number = 0

    def on_visit(self, node: cst.CSTNode) -> bool:
        position = self.get_metadata(PositionProvider, node, None)
        self._line = position.start.line if position else self._line
        self._number = self._statements.get(id(node), self._number)
        if isinstance(node, (cst.ClassDef, cst.FunctionDef)):
            self._names.append(node.name.value)
        if _is_unread(node):
            return False
        for kind, change in (*mutation_operators, *OPERATORS):
            if isinstance(node, kind):
                for new in change(node):
                    function = ".".join(self._names) or MODULE_LEVEL
                    self.found.append((function, self._line, self._number, node, new))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, (cst.ClassDef, cst.FunctionDef)):
            self._names.pop()


def _is_unread(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Expr):
        return isinstance(node.value, (cst.SimpleString, cst.ConcatenatedString))
    if isinstance(node, cst.Assign) and isinstance(node.value, cst.Subscript):
        return isinstance(node.value.value, cst.Name) and node.value.value.value in TYPES
    if isinstance(node, cst.If) and isinstance(node.test, cst.Name):
        return node.test.value == "TYPE_CHECKING"
    return isinstance(node, NOWHERE)


def _condition(node: Any) -> Iterator[cst.CSTNode]:
    yield node.with_changes(test=YES)
    yield node.with_changes(test=NO)


def _operand(node: cst.BooleanOperation) -> Iterator[cst.CSTNode]:
    for one in (node.left, node.right):
        yield one.with_changes(lpar=[*node.lpar, *one.lpar], rpar=[*one.rpar, *node.rpar])


def _number(node: cst.Integer) -> Iterator[cst.CSTNode]:
    less = node.evaluated_value - 1
    yield cst.Integer(str(less)) if less >= 0 else cst.UnaryOperation(cst.Minus(), cst.Integer(str(-less)))


def _members(node: Any) -> Iterator[cst.CSTNode]:
    for at in range(len(node.elements)):
        rest = [*node.elements[:at], *node.elements[at + 1 :]]
        if isinstance(node, cst.Tuple) and len(rest) == 1:
            rest = [rest[0].with_changes(comma=cst.Comma())]
        if isinstance(node, cst.Set) and not rest:
            yield cst.Call(cst.Name("set"))
        elif rest or node.lpar or not isinstance(node, cst.Tuple):
            yield node.with_changes(elements=rest)


def _statement(node: cst.SimpleStatementLine) -> Iterator[cst.CSTNode]:
    only = node.body[0] if len(node.body) == 1 else None
    if isinstance(only, (cst.Raise, cst.AugAssign)) or (
        isinstance(only, cst.Expr) and isinstance(only.value, cst.Call)
    ):
        yield node.with_changes(body=[cst.Pass()])


def _result(node: cst.Return) -> Iterator[cst.CSTNode]:
    if isinstance(node.value, (cst.Comparison, cst.BooleanOperation)):
        yield node.with_changes(value=YES, whitespace_after_return=cst.SimpleWhitespace(" "))
        yield node.with_changes(value=NO, whitespace_after_return=cst.SimpleWhitespace(" "))
    elif node.value is not None:
        yield node.with_changes(value=NOTHING, whitespace_after_return=cst.SimpleWhitespace(" "))


def _handler(node: cst.ExceptHandler) -> Iterator[cst.CSTNode]:
    yield node.with_changes(type=cst.Tuple([]), whitespace_after_except=cst.SimpleWhitespace(" "))


def _slice(node: cst.Slice) -> Iterator[cst.CSTNode]:
    if node.lower:
        yield node.with_changes(lower=None)
    if node.upper:
        yield node.with_changes(upper=None)


def _loop(node: Any) -> Iterator[cst.CSTNode]:
    yield node.with_changes(iter=cst.Tuple([]))


def _pattern(node: cst.SimpleString) -> Iterator[cst.CSTNode]:
    if "r" in node.prefix.lower():
        quoted = node.value[len(node.prefix) :]
        for new in patterns.changed(node.raw_value):
            yield node.with_changes(value=node.prefix + quoted[0] + new + quoted[0])


OPERATORS: Sequence[Tuple[Any, Callable[[Any], Iterator[cst.CSTNode]]]] = (
    ((cst.If, cst.While, cst.CompIf), _condition),
    (cst.BooleanOperation, _operand),
    (cst.Integer, _number),
    ((cst.Tuple, cst.List, cst.Set, cst.Dict), _members),
    (cst.SimpleStatementLine, _statement),
    (cst.Return, _result),
    (cst.ExceptHandler, _handler),
    (cst.Slice, _slice),
    ((cst.For, cst.CompFor), _loop),
    (cst.SimpleString, _pattern),
)
