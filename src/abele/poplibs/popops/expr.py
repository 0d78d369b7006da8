"""Expressions over placeholders: what ``map`` computes for every element.

>>> from abele.numerics import f32
>>> print((_1 * 2.0 + exp(_2)).lower((f32, f32)))
(%0[] * 2.0) + exp(%1[])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from abele.errors import InvalidOptionError, TensorError
from abele.kernels.nest import ir
from abele.numerics import ElementType, as_element_type, f16
from abele.words import counted

Number = float | int | bool
Types = tuple[ElementType, ...]


class Expr:
    """Base of the expressions. Python's operators build them; ``==`` and ``!=`` compare elements."""

    __hash__ = None  # type: ignore[assignment]

    def lower(self, types: Types) -> ir.Expr:
        """The expression over kernel loads ``%i[]``, one for placeholder i + 1.

        Args:
            types: Element type of each operand.
        """
        raise NotImplementedError

    def __add__(self, other: ExprLike) -> Expr:
        return Op("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return Op("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return Op("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return Op("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return Op("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return Op("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return Op("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return Op("div", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return Op("rem", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return Op("rem", other, self)

    def __pow__(self, other: ExprLike) -> Expr:
        return Op("pow", self, other)

    def __rpow__(self, other: ExprLike) -> Expr:
        return Op("pow", other, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return Op("eq", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return Op("neq", self, other)

    def __lt__(self, other: ExprLike) -> Expr:
        return Op("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return Op("lteq", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return Op("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return Op("gteq", self, other)

    def __and__(self, other: ExprLike) -> Expr:
        return Op("bitwise_and", self, other)

    def __rand__(self, other: ExprLike) -> Expr:
        return Op("bitwise_and", other, self)

    def __or__(self, other: ExprLike) -> Expr:
        return Op("bitwise_or", self, other)

    def __ror__(self, other: ExprLike) -> Expr:
        return Op("bitwise_or", other, self)

    def __xor__(self, other: ExprLike) -> Expr:
        return Op("bitwise_xor", self, other)

    def __rxor__(self, other: ExprLike) -> Expr:
        return Op("bitwise_xor", other, self)

    def __lshift__(self, other: ExprLike) -> Expr:
        return Op("shift_left", self, other)

    def __rshift__(self, other: ExprLike) -> Expr:
        return Op("shift_right_sign_extend", self, other)

    def __neg__(self) -> Expr:
        return Op("neg", self)

    def __abs__(self) -> Expr:
        return Op("abs", self)

    def __invert__(self) -> Expr:
        return Op("bitwise_not", self)

    def __bool__(self) -> bool:
        raise InvalidOptionError(
            "an expression over placeholders has no truth value",
            because="it stands for one value per element, known only when the program runs",
            remedy="use select(then, otherwise, condition) and the operators & | ~",
        )


ExprLike = Expr | Number
"""What builders take for an expression: numbers become constants."""


@dataclass(frozen=True, eq=False)
class PlaceHolder(Expr):
    """The element of operand ``number``, counted from 1."""

    number: int

    def lower(self, types: Types) -> ir.Expr:
        """The load of the operand."""
        if not 1 <= self.number <= len(types):
            raise TensorError(f"the expression uses _{self.number}, and was given {counted(len(types), 'tensor')}")
        return ir.Load(self.number - 1, ())


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A number; it takes the type of the operand beside it unless ``type`` is given."""

    value: Number
    type: ElementType | None = None

    def lower(self, types: Types) -> ir.Expr:
        """The kernel constant."""
        constant = ir.as_expr(self.value)
        return constant if self.type is None else ir.Cast(self.type, constant)


def ConstHalf(value: float) -> Const:
    """A constant rounded to f16."""
    return Const(value, f16)


class Cast(Expr):
    """An expression converted to another element type; floats to integers truncate."""

    __slots__ = ("arg", "type")

    def __init__(self, arg: object, type: ElementType | str) -> None:
        self.arg = as_expr(arg)
        self.type = as_element_type(type)

    def lower(self, types: Types) -> ir.Expr:
        """The kernel cast."""
        return ir.Cast(self.type, self.arg.lower(types))


@dataclass(frozen=True, eq=False)
class Raw(Expr):
    """A kernel expression as it stands, for what has no operator: element indices and random bits."""

    expression: ir.Expr

    def lower(self, types: Types) -> ir.Expr:
        """The expression."""
        return self.expression


class Op(Expr):
    """An operation of :data:`abele.poplibs.popops.expressions.ops.OPS` on expressions."""

    __slots__ = ("args", "name")

    def __init__(self, name: str, *args: object) -> None:
        self.name = name
        self.args = tuple(map(as_expr, args))

    def lower(self, types: Types) -> ir.Expr:
        """The kernel expression of the operation."""
        from abele.poplibs.popops.expressions.ops import lower_op

        return lower_op(self.name, [a.lower(types) for a in self.args], types)


def as_expr(value: object) -> Expr:
    """``value`` as an expression; numbers become constants.

    Raises:
        InvalidOptionError: It is neither.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float)):
        return Const(value)
    raise InvalidOptionError(
        f"{value!r} is no expression", remedy="use placeholders _1, _2, … for tensors, and Python numbers"
    )


_1, _2, _3, _4, _5, _6, _7, _8, _9 = (PlaceHolder(i) for i in range(1, 10))

ELEMENT = "element"
"""Name of the kernel dim that stands for the row-major index of an element in the mapped shape."""


def element_index() -> Raw:
    """The row-major index of the element in the mapped shape, as i32."""
    return Raw(ir.Index(ir.affine(ELEMENT)))


def random_bits(seed: int, modifier: int, draw: int = 0, draws: int = 1) -> Raw:
    """32 uniform random bits for each element.

    Args:
        seed: Number of the operand, from 1, that is the u32[2] seed.
        modifier: Chooses among independent streams of one seed.
        draw: Which of the element's numbers.
        draws: Numbers that each element takes.
    """
    return Raw(ir.Random(seed - 1, modifier, ir.affine((ELEMENT, draws), const=draw)))


def from_callable(function: ExprLike | Callable[..., ExprLike], arity: int) -> Expr:
    """``function`` itself if it is an expression, or what it returns for ``arity`` placeholders.

    Raises:
        TensorError: It does not take so many arguments.
    """
    if callable(function) and not isinstance(function, Expr):
        placeholders = [PlaceHolder(i + 1) for i in range(arity)]
        try:
            inspect.signature(function).bind(*placeholders)
        except ValueError:
            pass  # Functions written in C do not all say what they take.
        except TypeError as error:
            raise TensorError(
                f"the function of a map does not take {counted(arity, 'argument')}, one for each tensor",
                because=str(error),
            ) from None
        return as_expr(function(*placeholders))
    return as_expr(function)


def select(then: ExprLike, otherwise: ExprLike, condition: ExprLike) -> Expr:
    """``then`` where ``condition`` holds, else ``otherwise``: Poplar's order of arguments."""
    return Op("select", then, otherwise, condition)


def clamp(x: ExprLike, low: ExprLike, high: ExprLike) -> Expr:
    """``x`` limited to [low, high]."""
    return Op("clamp", x, low, high)


def exp(x: ExprLike) -> Expr:
    """e to the power of ``x``."""
    return Op("exp", x)


def __getattr__(name: str) -> object:
    """PopLibs' names of the operations, as in ``expr.Add(expr._1, expr.Const(2))``: they are built on the operations,
    which are built on this module."""
    from abele.poplibs.popops.expressions import names as expr_names

    if name in expr_names.__all__:
        return getattr(expr_names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
