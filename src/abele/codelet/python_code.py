"""A codelet as Python again, with every type and rounding spelled out: the code that debug mode runs.

It keeps the names and the line numbers of the source, so that print, pdb and tracebacks show what the user wrote.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from abele.codelet.functions import VertexFunction
from abele.codelet.printing import say
from abele.codelet.reductions import IDENTITY, LANES
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
from abele.llvm.random import hash_u32
from abele.numerics import ElementType, as_element_type, bool_, f32, i64, to_device, to_host

# Values of debug mode: NumPy scalars that behave, bit for bit, as compiled code does.

Number = Any


def index_range(start: Number, stop: Number, step: int) -> Iterator[Number]:
    """The values of a loop variable."""
    return map(np.int64, range(int(start), int(stop), step))


def floor_divide(x: Number, y: Number) -> Number:
    """``x // y`` of integers; 0 where y is 0."""
    return x // y if y else type(x)(0)


def modulo(x: Number, y: Number) -> Number:
    """``x % y`` of integers; 0 where y is 0."""
    return x % y if y else type(x)(0)


def shift_left(x: Number, y: Number) -> Number:
    """``x << y``, the count modulo the width."""
    return x << (y & type(y)(x.itemsize * 8 - 1))


def shift_right(x: Number, y: Number) -> Number:
    """``x >> y``, the count modulo the width."""
    return x >> (y & type(y)(x.itemsize * 8 - 1))


def smaller(x: Number, y: Number) -> Number:
    """``min(x, y)``: x, unless y is less, or not a number."""
    return y if y < x or y != y else x


def larger(x: Number, y: Number) -> Number:
    """``max(x, y)``: x, unless y is greater, or not a number."""
    return y if y > x or y != y else x


def absolute(x: Number) -> Number:
    """The absolute value."""
    return abs(x)


def random_word(seed0: Number, seed1: Number, modifier: Number, index: Number) -> Number:
    """The random word of an element."""
    return np.uint32(hash_u32(seed0, seed1, modifier, index))


def constant(value: float | int | bool, type_: ElementType) -> Number:
    """A number as a scalar of ``type_``."""
    return to_device([value], type_)[0] if type_.is_quarter else type_.np.type(value)


def conversion(have: ElementType, wanted: ElementType, rounding: PlainRounding) -> Callable[[Number], Number]:
    """The function that converts scalars of ``have`` to ``wanted``; ``rounding`` says how to narrow floats."""
    target = wanted.np.type
    if have.is_quarter:
        return _after(lambda x: to_host(np.atleast_1d(x), have)[0], conversion(f32, wanted, rounding))
    if wanted.is_narrow and (wanted.is_quarter or not rounding.is_plain):
        return _after(np.float32, rounding.to(wanted))
    if wanted == bool_:
        return lambda x: np.bool_(x != 0)
    if have.is_float and not wanted.is_float:
        return lambda x: target(_saturated(float(x), wanted))
    if wanted.is_float and wanted != f32 and not have.is_float:
        return lambda x: target(np.float32(x))
    if wanted.is_float:
        return lambda x: target(x)
    return lambda x: x.astype(wanted.np)


def _after(first: Callable[[Number], Number], then: Callable[[Number], Number]) -> Callable[[Number], Number]:
    return lambda x: then(first(x))


def _saturated(x: float, wanted: ElementType) -> int:
    """``x`` towards zero, limited to the range of ``wanted``; 0 for NaN."""
    limits = np.iinfo(wanted.np)
    if not limits.min <= x <= limits.max:
        return 0 if x != x else int(limits.min if x < 0 else limits.max)
    return min(int(x), int(limits.max))


def math_function(name: str, type_: ElementType, rounding: PlainRounding) -> Callable[..., Number]:
    """Function ``name`` of the language on scalars of ``type_``: computed in f32, rounded once."""
    if name == "random_u32":
        return random_word
    function, target = VertexFunction(name), type_.np.type
    if type_.is_narrow and not rounding.is_plain:
        narrow = rounding.to(type_)
        return lambda *args: narrow(function(*args))
    return lambda *args: target(function(*args))


BINARY: dict[str, Callable[[Number, Number], Number]] = {
    "floordiv": floor_divide,
    "mod": modulo,
    "shl": shift_left,
    "shr": shift_right,
    "min": smaller,
    "max": larger,
}
"""Operations that are more than an operator of NumPy scalars."""

_FLOAT: dict[str, Callable[[Number, Number], Number]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
}


def rounded_operation(op: str, type_: ElementType, rounding: PlainRounding) -> Callable[[Number, Number], Number]:
    """An operation on scalars of a narrow float: computed in f32, rounded once."""
    operation, narrow = _FLOAT[op], rounding.to(type_)
    return lambda x, y: narrow(operation(np.float32(x), np.float32(y)))


_COMBINE: dict[str, Callable[[Number, Number], Number]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "min": smaller,
    "max": larger,
}


class Lanes:
    """Accumulators of one loop, in the order that :mod:`abele.codelet.reductions` defines.

    Args:
        ops: Operation of each accumulator.
        values: Their values before the loop.
        start: Start of the loop.
        stop: Stop of the loop.
        step: Step of the loop.
        rounding: Rounding of results to narrow floats.
    """

    def __init__(
        self,
        ops: tuple[str, ...],
        values: tuple[Number, ...],
        start: Number,
        stop: Number,
        step: int,
        rounding: PlainRounding,
    ) -> None:
        self._combine = [_combination(op, v, rounding) for op, v in zip(ops, values, strict=True)]
        self._whole = len(range(int(start), int(stop), step)) // LANES * LANES
        self._values = values
        self._lanes = [tuple(type(v)(IDENTITY[op]) for v, op in zip(values, ops, strict=True))] * LANES
        self._k = 0

    def load(self) -> tuple[Number, ...]:
        """The accumulators as the next iteration finds them."""
        if self._k < self._whole:
            return self._lanes[self._k % LANES]
        if self._k == self._whole and self._whole:
            self._fold()
        return self._values

    def store(self, values: tuple[Number, ...]) -> None:
        """The accumulators as the iteration leaves them."""
        if self._k < self._whole:
            self._lanes[self._k % LANES] = values
        else:
            self._values = values
        self._k += 1

    def result(self) -> tuple[Number, ...]:
        """The accumulators after the loop."""
        if self._k == self._whole and self._whole:
            self._fold()
        return self._values

    def _fold(self) -> None:
        columns = zip(*self._lanes, strict=True)
        parts = zip(self._combine, self._values, columns, strict=True)
        self._values = tuple(_folded(combine, value, lanes) for combine, value, lanes in parts)
        self._whole = 0


def _combination(op: str, value: Number, rounding: PlainRounding) -> Callable[[Number, Number], Number]:
    type_ = as_element_type(value.dtype)
    plain = rounding.is_plain or not type_.is_narrow or op not in _FLOAT
    return _COMBINE[op] if plain else rounded_operation(op, type_, rounding)


def _folded(combine: Callable[[Number, Number], Number], value: Number, lanes: Sequence[Number]) -> Number:
    """An accumulator with its lanes: halved until one is left, which joins it."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [combine(a, b) for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return combine(value, lanes[0])


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
        self.names |= {f"{_PREFIX}debug": True, f"{_PREFIX}range": index_range, f"{_PREFIX}Lanes": Lanes}
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
                return self.shared((e.type, repr(e.value)), constant(e.value, e.type))
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
                function = self.shared(("cast", e.arg.type, e.type), conversion(e.arg.type, e.type, self._rounding))
                return self._call(function, self.value(e.arg))
            case Math():
                function = self.shared(("math", e.function, e.type), math_function(e.function, e.type, self._rounding))
                return self._call(function, *map(self.value, e.args))
            case HelperCall():
                name = self._name(self.function(e.helper), ast.Load())
                return self._call(name, self._name("self", ast.Load()), *map(self.value, e.args))
        raise TypeError(f"{e!r} has no Python form")

    def _binary(self, e: BinaryExpr) -> ast.expr:
        left, right = self.value(e.left), self.value(e.right)
        if e.type.is_narrow and not self._rounding.is_plain and e.op not in BINARY:
            function = rounded_operation(e.op, e.type, self._rounding)
            return self._call(self.shared(("rounded", e.op, e.type), function), left, right)
        if e.op in BINARY:
            return self._call(self.shared(("binary", e.op), BINARY[e.op]), left, right)
        return self._at(ast.BinOp(left, _OPERATORS[e.op], right))

    def _unary(self, e: UnaryExpr) -> ast.expr:
        arg = self.value(e.arg)
        if e.op == "abs":
            return self._call(self.shared("abs", absolute), arg)
        operators = {"neg": ast.USub(), "invert": ast.Invert(), "not": ast.Not()}
        return self._at(ast.UnaryOp(operators[e.op], arg))
