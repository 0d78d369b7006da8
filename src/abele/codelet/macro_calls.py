"""Reading calls of macros: their values, and the statements before them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from types import CodeType, FunctionType
from typing import Any

from abele.codelet.macros import is_macro
from abele.codelet.print_calls import Prints
from abele.codelet.problem import Origin
from abele.codelet.scope import NameScope, Self, VertexMethod, WholeField, Written
from abele.codelet.source import function_tree
from abele.codelet.tree import ConstExpr, Stmt, VertexExpr, own_expressions, walk


@dataclass
class MacroExpansion:
    """Statements and variable names of macros that are being read.

    Attributes:
        before: Statements that come before the one being read; None where nothing can.
        names: Names of variables by macro, what it was called with, and name in its source.
        targets: Variables that the call at hand is assigned to.
        open: Macros being read.
        reserved: Names of variables of the function that calls them.
        used: Keys of ``names`` that the statement being read has variables by.
    """

    before: list[Stmt] | None = None
    names: dict[Any, str] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    open: list[FunctionType] = field(default_factory=list)
    reserved: frozenset[str] = frozenset()
    used: set[Any] = field(default_factory=set)


class Macros(Prints):
    """Reads the expressions of one function, calls of macros included."""

    expansion: MacroExpansion

    def tail(self, nodes: list[ast.stmt]) -> tuple[list[Stmt], ast.expr | None]:
        """Statements up to a ``return``, and its value."""
        raise NotImplementedError

    def inside(self, origin: Origin, scope: NameScope) -> Macros:
        """A reader of a macro's code."""
        raise NotImplementedError

    @contextmanager
    def room(self, targets: tuple[str, ...] = ()) -> Iterator[list[Stmt]]:
        """Collect statements that come before the one read inside."""
        kept = self.expansion.before, self.expansion.targets
        found: list[Stmt] = []
        if not self.expansion.open:
            self.expansion.used.clear()
        self.expansion.before, self.expansion.targets = found, targets
        yield found
        self.expansion.before, self.expansion.targets = kept

    @contextmanager
    def no_room(self) -> Iterator[None]:
        """Read inside without room for statements: the code is read again, or perhaps not at all, at run time."""
        kept = self.expansion.before, self.expansion.targets
        self.expansion.before, self.expansion.targets = None, ()
        yield
        self.expansion.before, self.expansion.targets = kept

    def macro_called(self, node: ast.expr) -> tuple[FunctionType, list[Any]] | None:
        """Macro that ``node`` calls, and its values beside the arguments; None where it calls none."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
            return None
        called = self.resolve(node.func)
        first: list[Any] = []
        if isinstance(called, VertexMethod):
            called, first = called.function, [Self()]
        return (called, first) if isinstance(called, FunctionType) and is_macro(called) else None

    def expanded(self, node: ast.Call, function: FunctionType, first: list[Any]) -> Any:
        """Value of a call of a macro, after its statements."""
        values = self.macro_values(node, function, first)
        if isinstance(values, list):
            raise self.origin.problem(node, f"{function.__name__} returns {len(values)} values", "a, b = f(…)")
        if values is None:
            raise self.origin.problem(node, f"{function.__name__} returns nothing", "call it as a statement of its own")
        return values

    def macro_values(self, node: ast.Call, function: FunctionType, first: list[Any]) -> Any:
        """Values that a macro returns: a list where there are several, None where it returns nothing."""
        node = self.positional(node, function, len(first))
        code, expansion = function.__code__, self.expansion
        names = code.co_varnames[: code.co_argcount]
        if code.co_kwonlyargcount or code.co_flags & 0x0C or len(names) != len(first) + len(node.args):
            wants = ", ".join(names)
            raise self.origin.problem(node, f"{function.__name__} takes ({wants}), got {len(node.args)} arguments")
        if function in expansion.open:
            raise self.origin.problem(node, f"{function.__name__} calls itself", "a macro is put in place of its call")
        # Arguments are read where they are written, with no statements before them: those would be read again.
        with self.no_room():
            found = [*first, *map(self.resolve, node.args)]
        known = {
            n: Written(a, self.resolve) if isinstance(v, VertexExpr) else v
            for n, a, v in zip(names[len(first) :], node.args, found[len(first) :], strict=True)
        }
        renamed = self._renamed(function_tree(code), function, found, node)
        tree = _renamed_tree(code, tuple(renamed.items()))
        scope = NameScope(function, {}, {}, dict(zip(names, first, strict=False)) | known)
        for name in renamed.values():
            if name in self.scope.types:
                scope.types[name] = self.scope.types[name]
                scope.lines[name] = node.lineno
        reader = self.inside(Origin(self.origin.codelet, code.co_filename, function.__name__), scope)
        expansion.open.append(function)
        result = self._read_macro(node, reader, tree, set(renamed.values()))
        expansion.open.pop()
        self.scope.types |= scope.types
        self.scope.lines |= {n: node.lineno for n in scope.types if n not in self.scope.lines}
        self.scope.defined |= scope.defined
        return result

    def _read_macro(self, node: ast.Call, reader: Macros, tree: ast.FunctionDef, own: set[str]) -> Any:
        expansion = self.expansion
        before = expansion.before
        with self.room():
            statements, returned = reader.tail(tree.body)
        if statements and before is None:
            raise self.origin.problem(
                node,
                f"{tree.name}() has statements, which have no place here",
                "call it in a statement before this one",
            )
        with self.room() if before is not None else self.no_room() as late:
            result = self._returned(reader, returned, own)
        for statement in [*statements, *(late or [])]:
            _moved(statement, node.lineno)
        if before is not None:
            before += [*statements, *(late or [])]
        for value in result if isinstance(result, list) else [result]:
            if isinstance(value, VertexExpr):
                _moved(value, node.lineno)
        return result

    def _returned(self, reader: Macros, returned: ast.expr | None, own: set[str]) -> Any:
        if isinstance(returned, ast.Tuple):
            return [reader.value(e) for e in returned.elts]
        return None if returned is None else reader.resolve(returned)

    def _renamed(
        self, tree: ast.FunctionDef, function: FunctionType, found: list[Any], node: ast.Call
    ) -> dict[str, str]:
        """Names of a macro's variables here: those of the variables that they are returned to, or unused names."""
        mine = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        renamed = dict(zip(_ends(tree), self.expansion.targets, strict=False)) if self.expansion.targets else {}
        read = {n.id for a in node.args for n in ast.walk(a) if isinstance(n, ast.Name)}
        renamed = {n: t for n, t in renamed.items() if n in mine and t not in read}
        if len(set(renamed.values())) < len(renamed):
            renamed = {}
        kind = (function, tuple(_identity(f) for f in found))
        for name in sorted(mine - set(renamed)):
            # Statements share variables of the macros that they call; calls in one statement do not.
            key = next(k for k in ((*kind, name, n) for n in count()) if k not in self.expansion.used)
            self.expansion.used.add(key)
            if key not in self.expansion.names:
                self.expansion.names[key] = self._unused(name)
            renamed[name] = self.expansion.names[key]
        return renamed

    def _unused(self, name: str) -> str:
        taken = {*self.scope.types, *self.scope.known, *self.scope.function.__code__.co_varnames}
        taken |= {*self.expansion.reserved, *self.expansion.names.values()}
        number = 1
        while (found := name if number == 1 else f"{name}_{number}") in taken:
            number += 1
        return found


@lru_cache(maxsize=512)
def _renamed_tree(code: CodeType, renamed: tuple[tuple[str, str], ...]) -> ast.FunctionDef:
    """A macro with its variables renamed; reading it changes nothing in it."""
    tree = deepcopy(function_tree(code))
    _LocalNames(dict(renamed)).visit(tree)
    return tree


class _LocalNames(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node


def _ends(tree: ast.FunctionDef) -> list[str]:
    """Names that the last statement returns; an empty one for other expressions."""
    last = tree.body[-1]
    if not isinstance(last, ast.Return) or last.value is None:
        return []
    values = last.value.elts if isinstance(last.value, ast.Tuple) else [last.value]
    return [v.id if isinstance(v, ast.Name) else "" for v in values]


def _identity(found: Any) -> Any:
    """Key that tells two arguments apart, as far as the types of a macro's variables go."""
    if isinstance(found, ConstExpr):
        return (found.type, found.weak)
    if isinstance(found, VertexExpr):
        return found.type
    if isinstance(found, WholeField):
        return (found.field, found.row is None)
    return "self" if isinstance(found, Self) else (type(found), found)


def _moved(code: Stmt | VertexExpr, line: int) -> None:
    """Code of a macro belongs to the line that calls it."""
    if isinstance(code, VertexExpr):
        for part in code.walk():
            part.line = line
        return
    for statement in walk([code]):
        statement.line = line
        for expression in own_expressions(statement):
            for part in expression.walk():
                part.line = line
