"""A codelet as Python again, with every type and rounding spelled out: the code that debug mode runs.

It keeps the names and the line numbers of the source, so that print, pdb and tracebacks show what the user wrote.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from abele.codelet import debug_values as values
from abele.codelet.printing import say
from abele.codelet.rounding import PlainRounding
from abele.codelet.scope import MISSING, outer_name
from abele.codelet.tree import (
    Assign,
    BinaryExpr,
    CastExpr,
    Choice,
    Compare,
    ConstExpr,
    DebugOnly,
    Element,
    Evaluate,
    For,
    Helper,
    HelperCall,
    IfStmt,
    Leave,
    Length,
    Local,
    Logic,
    Math,
    Print,
    Return,
    Scalar,
    Stmt,
    StoreStmt,
    UnaryExpr,
    VertexExpr,
    WhileStmt,
)
from abele.numerics import i64

Node = TypeVar("Node", bound="ast.expr | ast.stmt")

_OPERATORS: dict[str, ast.operator] = {
    "add": ast.Add(),
    "sub": ast.Sub(),
    "mul": ast.Mult(),
    "div": ast.Div(),
    "and": ast.BitAnd(),
    "or": ast.BitOr(),
    "xor": ast.BitXor(),
}
_COMPARE: dict[str, ast.cmpop] = {
    "==": ast.Eq(),
    "!=": ast.NotEq(),
    "<": ast.Lt(),
    "<=": ast.LtE(),
    ">": ast.Gt(),
    ">=": ast.GtE(),
}
_PREFIX = "_abele_"


def python_function(tree: Helper, compute: FunctionType | None, rounding: PlainRounding) -> Callable[..., None]:
    """``compute`` as a function of a vertex view (and of a worker id) that debug mode runs."""
    code = PythonCode(compute, rounding)
    name = code.function(tree)
    function: Callable[..., None] = code.names[name]
    return function


def _outer_names(compute: FunctionType) -> dict[str, Any]:
    """Meanings of names in the function that are not its own: globals, and names of enclosing functions."""
    free = {n: outer_name(compute, n) for n in compute.__code__.co_freevars}
    return compute.__globals__ | {n: v for n, v in free.items() if v is not MISSING}


class PythonCode:
    """Turns read functions into Python functions.

    Args:
        compute: The function that was read; None where there is none, only its tree.
        rounding: Rounding of results to narrow floats.

    Attributes:
        names: Globals of the functions made: those of the source, and what generated code calls.
    """

    def __init__(self, compute: FunctionType | None, rounding: PlainRounding) -> None:
        self._rounding = rounding
        self.names: dict[str, Any] = {} if compute is None else _outer_names(compute)
        self.names |= {f"{_PREFIX}debug": True, f"{_PREFIX}range": values.index_range, f"{_PREFIX}Lanes": values.Lanes}
        self._functions: dict[Helper, str] = {}
        self._shared: dict[Any, str] = {}
        self._line = 0

    def function(self, tree: Helper) -> str:
        """Define the function of ``tree``; its name among :attr:`names`."""
        if tree in self._functions:
            return self._functions[tree]
        name = f"{tree.name}{_PREFIX}{len(self._functions)}"
        self._functions[tree] = name
        parameters = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(n) for n in ("self", *tree.parameters)],
            vararg=None,
            kwonlyargs=[],
            kw_defaults=[],
            kwarg=None,
            defaults=[],
        )
        body = self.block(tree.body) or [ast.Pass()]
        definition = ast.FunctionDef(name, parameters, body, [], None)
        module = ast.fix_missing_locations(ast.Module([definition], []))
        exec(compile(module, tree.file, "exec", dont_inherit=True), self.names)
        return name

    def shared(self, key: Any, value: Any) -> ast.expr:
        """A global that holds ``value``, one for equal keys."""
        if key not in self._shared:
            self._shared[key] = f"{_PREFIX}{len(self._shared)}"
            self.names[self._shared[key]] = value
        return self._name(self._shared[key], ast.Load())

    def _at(self, node: Node) -> Node:
        node.lineno = node.end_lineno = self._line
        node.col_offset = node.end_col_offset = 0
        return node

    def _call(self, function: ast.expr, *args: ast.expr) -> ast.expr:
        call: ast.expr = self._at(ast.Call(function, list(args), []))
        return call

    def block(self, body: list[Stmt]) -> list[ast.stmt]:
        """Python of statements."""
        return [node for statement in body for node in self.statement(statement)]

    def statement(self, statement: Stmt) -> list[ast.stmt]:
        """Python of one statement, on its own line."""
        self._line = statement.line or self._line
        made = self._statement(statement)
        return [ast.fix_missing_locations(node) for node in made]

    def _statement(self, s: Stmt) -> list[ast.stmt]:
        line = self._line
        match s:
            case Assign():
                return [self._at(ast.Assign([self._name(s.name, ast.Store())], self.value(s.value)))]
            case StoreStmt():
                return [self._at(ast.Assign([self._place(s.field.name, s.index, ast.Store())], self.value(s.value)))]
            case Evaluate():
                return [self._at(ast.Expr(self.value(s.value)))]
            case IfStmt():
                test = self.value(s.condition)
                then, otherwise = self.block(s.then), self.block(s.otherwise)
                self._line = line
                return [self._at(ast.If(test, then or [self._at(ast.Pass())], otherwise))]
            case WhileStmt():
                test, body = self.value(s.condition), self.block(s.body)
                self._line = line
                return [self._at(ast.While(test, body or [self._at(ast.Pass())], []))]
            case For():
                return self._for(s)
            case Leave():
                return [self._at(ast.Break() if s.how == "break" else ast.Continue())]
            case Return():
                return [self._at(ast.Return(None if s.value is None else self.value(s.value)))]
            case Print():
                said = self.shared(("print", s), s)
                return [self._at(ast.Expr(self._call(self.shared("say", say), said, *map(self.value, s.values))))]
            case DebugOnly():
                (node,) = ast.parse(s.source).body
                return [ast.increment_lineno(node, line - 1)]
        raise TypeError(f"{s!r} has no Python form")

    def _for(self, s: For) -> list[ast.stmt]:
        line = self._line
        start, stop = self.value(s.start), self.value(s.stop)
        step = self._at(ast.Constant(s.step))
        loop_range = self._call(self._at(ast.Name(f"{_PREFIX}range", ast.Load())), start, stop, step)
        body = self.block(s.body)
        self._line = line
        if not s.lanes:
            return [self._at(ast.For(self._name(s.name, ast.Store()), loop_range, body or [self._at(ast.Pass())], []))]
        lanes = f"{_PREFIX}lanes{line}"
        ops = self.shared(("ops", *s.lanes.values()), tuple(s.lanes.values()))
        kind = self._at(ast.Name(f"{_PREFIX}Lanes", ast.Load()))
        rounding = self.shared("rounding", self._rounding)
        made = self._call(kind, ops, self._several(s, ast.Load()), start, stop, step, rounding)
        before = self._at(ast.Assign([self._name(lanes, ast.Store())], made))
        load = self._at(ast.Assign([self._several(s, ast.Store())], self._method(lanes, "load")))
        store = self._at(ast.Expr(self._method(lanes, "store", self._several(s, ast.Load()))))
        loop = self._at(ast.For(self._name(s.name, ast.Store()), loop_range, [load, *body, store], []))
        after = self._at(ast.Assign([self._several(s, ast.Store())], self._method(lanes, "result")))
        return [before, loop, after]

    def _several(self, s: For, context: ast.expr_context) -> ast.expr:
        return self._at(ast.Tuple([self._name(n, context) for n in s.lanes], context))

    def _method(self, owner: str, name: str, *args: ast.expr) -> ast.expr:
        return self._call(self._at(ast.Attribute(self._name(owner, ast.Load()), name, ast.Load())), *args)

    def _name(self, name: str, context: ast.expr_context) -> ast.expr:
        return self._at(ast.Name(name, context))

    def _place(self, field: str, index: tuple[VertexExpr, ...], context: ast.expr_context) -> ast.expr:
        """``self.field[…]``, read or written."""
        node: ast.expr = self._name("self", ast.Load())
        node = self._at(ast.Attribute(node, field, ast.Load() if index else context))
        for number, one in enumerate(index):
            last = number == len(index) - 1
            node = self._at(ast.Subscript(node, self.value(one), context if last else ast.Load()))
        return node

    def value(self, e: VertexExpr) -> ast.expr:
        """Python of an expression."""
        match e:
            case ConstExpr():
                return self.shared((e.type, repr(e.value)), values.constant(e.value, e.type))
            case Local():
                return self._name(e.name, ast.Load())
            case Scalar():
                return self._place(e.field.name, (), ast.Load())
            case Element():
                return self._place(e.field.name, e.index, ast.Load())
            case Length():
                index = () if e.row is None else (e.row,)
                length = self._call(self._name("len", ast.Load()), self._place(e.field.name, index, ast.Load()))
                return self._call(self.shared("i64", i64.np.type), length)
            case BinaryExpr():
                return self._binary(e)
            case Compare():
                left, right = self.value(e.left), self.value(e.right)
                return self._at(ast.Compare(left, [_COMPARE[e.op]], [right]))
            case Logic():
                op = ast.And() if e.op == "and" else ast.Or()
                return self._at(ast.BoolOp(op, [self.value(e.left), self.value(e.right)]))
            case UnaryExpr():
                return self._unary(e)
            case Choice():
                parts = self.value(e.condition), self.value(e.then), self.value(e.otherwise)
                return self._at(ast.IfExp(*parts))
            case CastExpr():
                function = self.shared(
                    ("cast", e.arg.type, e.type), values.conversion(e.arg.type, e.type, self._rounding)
                )
                return self._call(function, self.value(e.arg))
            case Math():
                function = self.shared(
                    ("math", e.function, e.type), values.math_function(e.function, e.type, self._rounding)
                )
                return self._call(function, *map(self.value, e.args))
            case HelperCall():
                name = self._name(self.function(e.helper), ast.Load())
                return self._call(name, self._name("self", ast.Load()), *map(self.value, e.args))
        raise TypeError(f"{e!r} has no Python form")

    def _binary(self, e: BinaryExpr) -> ast.expr:
        left, right = self.value(e.left), self.value(e.right)
        if e.type.is_narrow and not self._rounding.is_plain and e.op not in values.BINARY:
            function = values.rounded_operation(e.op, e.type, self._rounding)
            return self._call(self.shared(("rounded", e.op, e.type), function), left, right)
        if e.op in values.BINARY:
            return self._call(self.shared(("binary", e.op), values.BINARY[e.op]), left, right)
        return self._at(ast.BinOp(left, _OPERATORS[e.op], right))

    def _unary(self, e: UnaryExpr) -> ast.expr:
        arg = self.value(e.arg)
        if e.op == "abs":
            return self._call(self.shared("abs", values.absolute), arg)
        operators = {"neg": ast.USub(), "invert": ast.Invert(), "not": ast.Not()}
        return self._at(ast.UnaryOp(operators[e.op], arg))
