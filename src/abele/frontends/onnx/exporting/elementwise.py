"""Maps, casts and non-linearities: an expression becomes a node per operation, each part once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from abele.expr import NONLINEARITIES, Apply, Cast, Const, Expr, Load, apply, derivative
from abele.expr.operation import TABLE
from abele.expr.types import Typing
from abele.frontends.onnx.exporting.graph import GraphWriter, Written, writer
from abele.network.ir import NetworkOp, Shape, Value
from abele.network.ops.draw import standard_normal, unit
from abele.numerics import ElementType, bool_, f32, i64, u32

Operation = Callable[[GraphWriter, ElementType, Sequence[str]], str]
"""Writes one operation on operands of a type."""

_FLOATS: dict[str, str] = {
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "inv": "Reciprocal",
    "tanh": "Tanh",
    "nl_tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "nl_sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "tan": "Tan",
    "asin": "Asin",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
    "is_nan": "IsNaN",
    "is_inf": "IsInf",
}
"""Functions of one float that ONNX has as well."""

_ANY: dict[str, str] = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "pow": "Pow",
    "max": "Max",
    "min": "Min",
    "abs": "Abs",
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
    "select": "Where",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_not": "Not",
}
"""Operations that ONNX has for numbers of any type."""


def _operator(name: str) -> Operation:
    return lambda to, dtype, args: to.node(name, *args)


def _bits(logical: str, bitwise: str) -> Operation:
    def write(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
        if dtype == bool_:
            return to.node(logical, *args)
        to.require_opset(18, "operations on bits")
        return to.node(bitwise, *args)

    return write


def _extremum(number: str, of_bools: str) -> Operation:
    return lambda to, dtype, args: to.node(of_bools if dtype == bool_ else number, *args)


def _compared(name: str) -> Operation:
    """A comparison; of bools as numbers."""

    def write(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
        given = [to.cast(a, dtype, u32) for a in args] if dtype == bool_ else args
        return to.node(name, *given)

    return write


def _not_equal(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Not", to.node("Equal", *args))


def _negative(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Sub", to.number(0, dtype), args[0]) if dtype.kind == "uint" else to.node("Neg", *args)


def _whole(to: GraphWriter, dtype: ElementType, x: str, y: str, *, fmod: int) -> str:
    """The quotient of whole numbers, 0 where ``y`` is: what is divided is a multiple of ``y``, so that none rounds."""
    zero = to.node("Equal", y, to.number(0, dtype))
    safe = to.node("Where", zero, to.number(1, dtype), y)
    multiple = to.node("Sub", x, to.node("Mod", x, safe, fmod=fmod))
    return to.node("Where", zero, to.number(0, dtype), to.node("Div", multiple, safe))


def _divided(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Div", *args) if dtype.is_float else _whole(to, dtype, *args, fmod=1)


def _divided_down(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return _whole(to, dtype, *args, fmod=0)


def _remainder(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    if dtype.is_float:
        return to.node("Mod", *args, fmod=1)
    zero = to.node("Equal", args[1], to.number(0, dtype))
    safe = to.node("Where", zero, to.number(1, dtype), args[1])
    return to.node("Where", zero, to.number(0, dtype), to.node("Mod", args[0], safe, fmod=1))


def _square(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Mul", args[0], args[0])


def _relu(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Relu", *args) if dtype.is_float else to.node("Max", args[0], to.number(0, dtype))


def _fma(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Add", to.node("Mul", *args[:2]), args[2])


def _rsqrt(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Reciprocal", to.node("Sqrt", *args))


def _copysign(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    """By 1 / y, whose sign tells −0 from 0."""
    size, zero = to.node("Abs", args[0]), to.number(0, dtype)
    below = to.node("Or", to.node("Less", args[1], zero), to.node("Less", to.node("Reciprocal", args[1]), zero))
    return to.node("Where", below, to.node("Neg", size), size)


def _expm1(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    """tanh(x / 2) · (exp(x) + 1), which loses nothing near zero; infinity by itself, where the product is 1 · ∞."""
    half = to.node("Tanh", to.node("Mul", args[0], to.number(0.5, dtype)))
    return to.node("Mul", half, to.node("Add", to.node("Exp", args[0]), to.number(1, dtype)))


def _is_finite(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Not", to.node("Or", to.node("IsNaN", *args), to.node("IsInf", *args)))


def _shifted(direction: str) -> Operation:
    """A shift of the bits of words of 32; ONNX has it for numbers without a sign."""

    def write(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
        x, count = args[0], to.node("Mod", to.cast(args[1], dtype, u32), to.number(32, u32))

        def shifted(name: str) -> str:
            return to.cast(to.node("BitShift", to.cast(name, dtype, u32), count, direction=direction), u32, dtype)

        if direction == "LEFT" or dtype.kind == "uint":
            return shifted(x)
        # The sign stays: bits of a negative number are shifted turned round.
        least = to.number(-1, dtype)
        turned = to.node("Sub", least, shifted(to.node("Sub", least, x)))
        return to.node("Where", to.node("Less", x, to.number(0, dtype)), turned, shifted(x))

    return write


def _erfc(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    """1 − erf(x): to the rounding of 1, where the machine has the digits of the tail as well."""
    return to.node("Sub", to.number(1, dtype), to.node("Erf", *args))


def _swish(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
    return to.node("Mul", args[0], to.node("Sigmoid", *args))


def _gelu(approximate: str) -> Operation:
    def write(to: GraphWriter, dtype: ElementType, args: Sequence[str]) -> str:
        (x,) = args
        if to.opset >= 20:
            return to.node("Gelu", x, approximate=approximate)
        if approximate == "none":
            inner = to.node("Erf", to.node("Mul", x, to.number(0.5**0.5, dtype)))
        else:
            cube = to.node("Mul", to.node("Mul", x, x), x)
            sum_ = to.node("Add", x, to.node("Mul", cube, to.number(0.044715, dtype)))
            inner = to.node("Tanh", to.node("Mul", sum_, to.number((2 / np.pi) ** 0.5, dtype)))
        half = to.node("Mul", x, to.number(0.5, dtype))
        return to.node("Mul", half, to.node("Add", inner, to.number(1, dtype)))

    return write


OPERATIONS: dict[str, Operation] = {
    **{name: _operator(operator) for name, operator in (_FLOATS | _ANY).items()},
    "max": _extremum("Max", "Or"),
    "min": _extremum("Min", "And"),
    "and": _bits("And", "BitwiseAnd"),
    "or": _bits("Or", "BitwiseOr"),
    "xor": _bits("Xor", "BitwiseXor"),
    "not": _bits("Not", "BitwiseNot"),
    "ne": _not_equal,
    **{name: _compared(_ANY[name]) for name in ("lt", "le", "gt", "ge")},
    "neg": _negative,
    "div": _divided,
    "floordiv": _divided_down,
    "rem": _remainder,
    "square": _square,
    "relu": _relu,
    "nl_relu": _relu,
    "fma": _fma,
    "rsqrt": _rsqrt,
    "copysign": _copysign,
    "expm1": _expm1,
    "erfc": _erfc,
    "is_finite": _is_finite,
    "shl": _shifted("LEFT"),
    "shr": _shifted("RIGHT"),
    "swish": _swish,
    "gelu": _gelu("tanh"),
    "gelu_erf": _gelu("none"),
    "nl_gelu_erf": _gelu("none"),
}
"""Writers of operations by name; others are written by their expansions."""


class ExpressionWriter:
    """Expressions over the same operands being written, each part once.

    Args:
        to: The graph.
        names: Name of each operand.
        types: Type of each.
    """

    def __init__(self, to: GraphWriter, names: Sequence[str], types: Sequence[ElementType]) -> None:
        self.to, self.names, self.types = to, names, tuple(types)
        self.typing = Typing(self.types)
        # By identity, which costs nothing; each node is kept alive, so that no other takes its place in memory.
        self._known: dict[int, tuple[Expr, str]] = {}

    def of(self, expression: Expr, dtype: ElementType) -> str:
        """An expression as elements of a type."""
        if isinstance(expression, Const):
            return self.to.number(expression.value, dtype)
        return self.to.cast(self._part(expression), self.typing.of(expression), dtype)

    def _part(self, expression: Expr) -> str:
        """An expression in the type that it is computed in."""
        found = self._known.get(id(expression))
        if found is None:
            found = self._known[id(expression)] = expression, self._written(expression)
        return found[1]

    def _written(self, expression: Expr) -> str:
        match expression:
            case Load(operand=number):
                return self.to.cast(self.names[number], self.types[number], self.typing.of(expression))
            case Const():
                return self.to.number(expression.value, self.typing.of(expression))
            case Cast(type=dtype, arg=arg):
                return self.to.cast(self._cast(arg, dtype), dtype, self.typing.of(expression))
            case Apply():
                return self._operation(expression)
        raise self.to.unsupported(f"operator for the expression {expression}")

    def _cast(self, arg: Expr, dtype: ElementType) -> str:
        if isinstance(arg, Const):
            return self.to.number(arg.value, dtype)
        return self.to.cast(self._part(arg), self.typing.of(arg), dtype)

    def _operation(self, expression: Apply) -> str:
        write, operation = OPERATIONS.get(expression.op), TABLE[expression.op]
        if write is None:
            if operation.expansion is None:
                raise self.to.unsupported(f"operator for {expression.op!r}")
            return self._part(operation.expansion(self.types, *expression.args))
        numbers = expression.args[1:] if expression.op == "select" else expression.args
        common = self.typing.common(numbers, at=expression)
        args = [self.of(a, common) for a in numbers]
        if expression.op == "select":
            args = [self.of(expression.args[0], bool_), *args]
        return write(self.to, common, args)


def mapped(to: GraphWriter, expression: Expr, operands: Sequence[Value], names: Sequence[str], out: Value) -> str:
    """An expression at every element of a result."""
    made = ExpressionWriter(to, names, [v.dtype for v in operands]).of(expression, out.dtype)
    read = [operands[n].shape for n in derivative.operands(expression)]
    return made if np.broadcast_shapes(*read) == out.shape else to.expand(made, out.shape)


@writer("map")
def _map(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    return mapped(to, op.attrs["expr"], op.inputs, names, op.output)


@writer("element_update")
def _element_update(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    exprs = zip(op.attrs["exprs"], op.outputs, strict=True)
    return tuple(mapped(to, expression, op.inputs, names, out) for expression, out in exprs)


@writer("cast")
def _cast(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    return to.cast(name, op.inputs[0].dtype, op.output.dtype)


@writer("nonlinearity")
def _nonlinearity(to: GraphWriter, op: NetworkOp, name: str) -> Written:
    function = apply(NONLINEARITIES[op.attrs["function"]].op, derivative.arg(0))
    return mapped(to, function, op.inputs, (name,), op.output)


@writer("nonlinearity_grad")
def _nonlinearity_grad(to: GraphWriter, op: NetworkOp, *names: str) -> Written:
    gradient = apply(NONLINEARITIES[op.attrs["function"]].gradient, derivative.arg(0), derivative.arg(1))
    return mapped(to, gradient, op.inputs, names, op.output)


# --- random numbers ---------------------------------------------------------------------------------------------------


@writer("draw")
def _draw(to: GraphWriter, op: NetworkOp, seed: str) -> Written:
    """Numbers of the same distribution, which a run of ONNX draws by itself: no two runs have the same ones."""
    expression, shape, dtype = op.attrs["expr"], op.output.shape, op.output.dtype
    if expression == unit(derivative.arg(0)):
        made = to.node("RandomUniform", fresh=True, shape=list(shape), dtype=1)
        return to.cast(made, f32, dtype)
    if expression == standard_normal(derivative.arg(0), derivative.arg(1)):
        made = to.node("RandomNormal", fresh=True, shape=list(shape), dtype=1)
        return to.cast(made, f32, dtype)
    draws = op.attrs["draws"]
    words = [_word(to, shape) for _ in range(draws)]
    return ExpressionWriter(to, words, [u32] * draws).of(expression, dtype)


def _word(to: GraphWriter, shape: Shape) -> str:
    """Random words of 32 bits, of two numbers of 16 bits each: a float has 24."""
    halves = [
        to.cast(to.node("RandomUniform", fresh=True, shape=list(shape), dtype=1, low=0.0, high=65536.0), f32, i64)
        for _ in range(2)
    ]
    high = to.node("Mul", halves[1], to.number(65536, i64))
    return to.cast(to.node("Add", halves[0], high), i64, u32)


@writer("dropout")
def _dropout(to: GraphWriter, op: NetworkOp, name: str, seed: str) -> Written:
    """The operand: ONNX models are written for inference."""
    return name


@writer("dropout_mask")
def _dropout_mask(to: GraphWriter, op: NetworkOp, seed: str) -> Written:
    return to.constant(np.broadcast_to(np.ones((), op.output.dtype.np), op.output.shape))
