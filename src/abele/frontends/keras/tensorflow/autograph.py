"""Loops of functions under ``tf.function``, made loops of the device.

A statement ``for x in tf.range(100): body`` is rewritten in the function's syntax tree: its body becomes a function of
the names that it assigns and others read, and :func:`~.device_loops.for_each` calls it, as TensorFlow's AutoGraph does.
Statements with ``break``, ``continue`` or ``return`` stay as they are, and so does a function without source.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any

from .device_loops import for_each, value_of

_FOR, _VALUE, _ROW = "abele_for_each", "abele_value_of", "abele_row"
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Global, ast.Nonlocal)
_known: dict[Any, FunctionType] = {}


def with_device_loops(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its loops as calls of ``for_each``; itself where it has none, or no source."""
    if isinstance(function, MethodType):
        return MethodType(with_device_loops(function.__func__), function.__self__)
    if not isinstance(function, FunctionType):
        return function
    code = _known.get(function.__code__)
    if code is None:
        code = _known[function.__code__] = _rewritten(function)
    return code if code is function else _like(function, code)


def _rewritten(function: FunctionType) -> FunctionType:
    """The function itself, or one of the rewritten code, whose cells are not yet those of the user's function."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return function
    defined = tree.body[0]
    if len(tree.body) != 1 or not isinstance(defined, ast.FunctionDef) or defined.name != function.__name__:
        return function
    defined.decorator_list, defined.returns = [], None
    arguments = defined.args
    for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if each is not None:
            each.annotation = None
    rewriter = _Loops(defined)
    rewriter.visit(defined)
    if not rewriter.count:
        return function
    names = [*function.__code__.co_freevars, _FOR, _VALUE]
    outer = ast.parse(f"def abele_outer({', '.join(names)}):\n    return {defined.name}").body[0]
    assert isinstance(outer, ast.FunctionDef)
    arguments.defaults, arguments.kw_defaults = [], [None] * len(arguments.kwonlyargs)
    outer.body.insert(0, defined)
    module = ast.fix_missing_locations(ast.Module([outer], []))
    ast.increment_lineno(module, function.__code__.co_firstlineno - 1)
    space: dict[str, Any] = {}
    exec(compile(module, function.__code__.co_filename, "exec"), space)
    made: FunctionType = space["abele_outer"](*[None] * len(names))
    return made


def _like(function: FunctionType, rewritten: FunctionType) -> FunctionType:
    """A function of the rewritten code with the user's globals, cells and defaults."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {_FOR: CellType(for_each), _VALUE: CellType(value_of)}
    code = rewritten.__code__
    closure = tuple(cells[name] for name in code.co_freevars)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


class _Loops(ast.NodeTransformer):
    """Makes loops calls.

    Attributes:
        count: Loops that were rewritten.
    """

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function, self.count = function, 0

    def visit_For(self, loop: ast.For) -> Any:
        """The body as a function, its call, and what comes of it."""
        if loop.orelse or any(isinstance(node, _LEAVING) for part in loop.body for node in _inside(part)):
            return self.generic_visit(loop)
        names = sorted(_assigned(loop) & _named_outside(self.function, loop))
        self.generic_visit(loop)
        self.count += 1
        body = f"abele_body_{self.count}"
        listed = "".join(f"{name}, " for name in names)
        values = "".join(f"{_VALUE}(locals(), {name!r}), " for name in names)
        head = ast.parse(
            f"def {body}({', '.join([_ROW, *names])}):\n    return ({listed})\n"
            f"[{listed}] = {_FOR}(0, {body}, ({values}), {tuple(names)!r})"
        ).body
        made, call = head
        assert isinstance(made, ast.FunctionDef)
        assert isinstance(call, ast.Assign)
        assert isinstance(call.value, ast.Call)
        row = ast.Assign([loop.target], ast.Name(_ROW, ast.Load()))
        made.body[:0] = [row, *loop.body]
        call.value.args[0] = loop.iter
        for node in (made, call):
            for each in ast.walk(node):
                if not hasattr(each, "lineno") or each not in _kept(loop):
                    ast.copy_location(each, loop)
        return head

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """Functions inside of the function have their own loops, which stay."""
        return self.generic_visit(node) if node is self.function else node

    def generic_visit(self, node: ast.AST) -> Any:
        """The node, with its loops as calls; lambdas and classes stay."""
        return node if isinstance(node, ast.Lambda | ast.ClassDef) else super().generic_visit(node)


def _kept(loop: ast.For) -> set[ast.AST]:
    return {node for part in (*loop.body, loop.iter, loop.target) for node in ast.walk(part)}


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it that belong to the same function."""
    yield node
    if not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _inside(child)


def _assigned(loop: ast.For) -> set[str]:
    """Names that a loop assigns."""
    found = set()
    for part in (loop.target, *loop.body):
        for node in _inside(part):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
    return found


def _named_outside(function: ast.FunctionDef, loop: ast.For) -> set[str]:
    """Names of the function beside a loop: its arguments, and those that other statements read or assign."""
    within = {id(node) for part in (loop.target, *loop.body) for node in ast.walk(part)}
    arguments = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    return arguments | {node.id for node in ast.walk(function) if isinstance(node, ast.Name) and id(node) not in within}
