"""Reading calls: casts, functions of the language, and plain Python helpers."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any

from abele.codelet import construct
from abele.codelet.expressions import Expressions
from abele.codelet.functions import VertexFunction
from abele.codelet.macros import is_macro
from abele.codelet.rules import cast, is_weak
from abele.codelet.scope import Self, VertexMethod, WholeField
from abele.codelet.tree import Helper, HelperCall, VertexExpr
from abele.numerics import ElementType, bool_, f32, i64

ReadHelper = Callable[[FunctionType, list[Any], ast.Call], Helper]


class Calls(Expressions):
    """Reads the expressions of one function, calls included.

    Attributes:
        read_helper: Reads a helper function for given arguments: values, fields or ``self``.
    """

    read_helper: ReadHelper

    def call(self, node: ast.Call) -> Any:
        """Value or object that a call denotes."""
        called = self.resolve(node.func)
        if node.keywords and not isinstance(called, VertexMethod | FunctionType):
            raise self.origin.problem(node, "keyword arguments", "give all arguments by position")
        if any(isinstance(a, ast.Starred) for a in node.args):
            raise self.origin.problem(node, "starred arguments", "give each argument by itself")
        if isinstance(called, ElementType):
            return self._cast(node, called)
        if isinstance(called, VertexFunction):
            return self._function(node, called)
        if isinstance(called, VertexMethod | FunctionType):
            function, first = (called, []) if isinstance(called, FunctionType) else (called.function, [Self()])
            return self.expanded(node, function, first) if is_macro(function) else self._helper(node, function, first)
        raise self.origin.problem(
            node, "this cannot be called", "call types, functions of the language or plain functions"
        )

    def positional(self, node: ast.Call, function: FunctionType, given: int) -> ast.Call:
        """The call with all arguments by position; ``given`` parameters of the function come before those written."""
        if not node.keywords:
            return node
        code = function.__code__
        names = code.co_varnames[given + len(node.args) : code.co_argcount]
        written = {k.arg: k.value for k in node.keywords}
        if set(written) != set(names):
            wants, got = ", ".join(names), ", ".join(k or "**" for k in written)
            problem = f"{function.__name__} takes ({wants}) beside what is given by position, got ({got})"
            raise self.origin.problem(node, problem, "name each parameter that is left")
        call = ast.Call(node.func, [*node.args, *(written[n] for n in names)], [])
        return ast.copy_location(call, node)

    def expanded(self, node: ast.Call, function: FunctionType, first: list[Any]) -> Any:
        """Value or object that a call of a macro denotes."""
        raise NotImplementedError

    def _cast(self, node: ast.Call, wanted: ElementType) -> VertexExpr:
        (arg,) = self._values(node, 1, str(wanted))
        return construct.converted(arg, wanted, node.lineno)

    def _values(self, node: ast.Call, count: int, name: str) -> list[VertexExpr]:
        if len(node.args) != count:
            raise self.origin.problem(node, f"{name} takes {count} arguments, got {len(node.args)}")
        return [self.value(a) for a in node.args]

    def _function(self, node: ast.Call, function: VertexFunction) -> VertexExpr:
        match function.name:
            case "len":
                return self._len(node)
            case "min" | "max" as name:
                return self._extreme(node, name)
            case "abs":
                return self._abs(node)
            case "float" | "int" | "bool" as name:
                return self._cast(node, {"float": f32, "int": i64, "bool": bool_}[name])
            case "random_u32":
                return self._random(node)
            case "range":
                raise self.origin.problem(node, "range outside a for loop", "for i in range(…):")
        return self._math(node, function)

    def _math(self, node: ast.Call, function: VertexFunction) -> VertexExpr:
        return construct.call(function, self._values(node, function.arity, function.name), node.lineno)

    def _len(self, node: ast.Call) -> VertexExpr:
        owner = self.resolve(node.args[0]) if len(node.args) == 1 else None
        if not isinstance(owner, WholeField):
            raise self.origin.problem(
                node, "len of something that is no vector field", "len(self.x), len(self.rows[i])"
            )
        return self.length(owner, node)

    def _extreme(self, node: ast.Call, name: str) -> VertexExpr:
        if len(node.args) < 2:
            raise self.origin.problem(node, f"{name} of fewer than two values", f"{name}(a, b)")
        return construct.extreme(name, [self.value(a) for a in node.args], node.lineno)

    def _abs(self, node: ast.Call) -> VertexExpr:
        (arg,) = self._values(node, 1, "abs")
        return construct.absolute(arg, node.lineno)

    def _random(self, node: ast.Call) -> VertexExpr:
        args = self._values(node, 4, "random_u32")
        for arg, source in zip(args, node.args, strict=True):
            if arg.type.is_float:
                raise self.origin.problem(source, f"random_u32 of a {arg.type}", "it takes integers")
        return construct.random_word(args, node.lineno)

    def _helper(self, node: ast.Call, function: FunctionType, first: list[Any]) -> VertexExpr:
        node = self.positional(node, function, len(first))
        arguments = first + [self._argument(a) for a in node.args]
        count = function.__code__.co_argcount
        if len(arguments) != count:
            wants = ", ".join(function.__code__.co_varnames[:count])
            raise self.origin.problem(node, f"{function.__name__} takes ({wants}), got {len(node.args)} arguments")
        helper = self.read_helper(function, arguments, node)
        values = tuple(_strong(a) for a in arguments if isinstance(a, VertexExpr))
        rows = tuple(a.row for a in arguments if isinstance(a, WholeField) and a.row is not None)
        if rows:
            raise self.origin.problem(
                node,
                "a row is passed to a function",
                f"pass the vector of rows and the row number, {function.__name__}(rows, i)",
            )
        return HelperCall(type=helper.result or i64, helper=helper, args=values, line=node.lineno)

    def _argument(self, node: ast.expr) -> Any:
        found = self.resolve(node)
        return found if isinstance(found, WholeField | Self) else self.value(node)


def _strong(value: VertexExpr) -> VertexExpr:
    """A number without a type of its own gets the default one."""
    return cast(value, value.type) if is_weak(value) else value
