"""Expressions over placeholders, which ``map`` evaluates for every element.

>>> from abele.numerics import f32
>>> print((_1 * 2.0 + exp(_2)).lower((f32, f32)))
(%0[] * 2.0) + exp(%1[])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import abele.expr as language
from abele.errors import InvalidOptionError, TensorError
from abele.expr import Types
from abele.numerics import ElementType, as_element_type, f16, u32
from abele.words import counted

Number = float | int | bool


class Expr:
    """An expression as popops writes it: Python's operators build larger ones, and ``==`` and ``!=`` compare elements.

    Attributes:
        node: The same in the language that all rooms share, over loads ``%i[]``, one for placeholder i + 1. Every
            ``Op`` has a node of its own, whose identity tells whether a result is used twice or computed twice.
    """

    __slots__ = ("node",)

    def __init__(self, node: language.Expr) -> None:
        self.node = node

    def lower(self, types: Types) -> language.Expr:
        """The expression over primitive operations.

        Args:
            types: Element type of each operand.
        """
        check_placeholders(self.node, types)
        return language.expanded(self.node, types)

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

    # An element-wise comparison, as of NumPy arrays, where the base class promises a bool.
    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return Op("eq", self, other)

    # As __eq__: element by element.
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
"""Arguments that builders take for an expression: numbers become constants."""


class PlaceHolder(Expr):
    """The element of operand ``number``, counted from 1."""

    __slots__ = ()

    def __init__(self, number: int) -> None:
        super().__init__(language.Load(number - 1, ()))

    @property
    def number(self) -> int:
        """Number of the operand, counted from 1."""
        assert isinstance(self.node, language.Load)
        return self.node.operand + 1


class Const(Expr):
    """A number; it takes the type of the operand beside it unless ``type`` is given."""

    __slots__ = ("value",)

    def __init__(self, value: Number, type: ElementType | None = None) -> None:
        self.value = value
        constant = language.as_expr(value)
        super().__init__(constant if type is None else language.Cast(type, constant))


def ConstHalf(value: float) -> Const:
    """A constant rounded to f16."""
    return Const(value, f16)


class Cast(Expr):
    """An expression converted to another element type; floats to integers truncate."""

    __slots__ = ()

    def __init__(self, arg: object, type: ElementType | str) -> None:
        super().__init__(language.Cast(as_element_type(type), as_expr(arg).node))


def converted(expression: Expr, before: ElementType, after: ElementType) -> Expr:
    """An expression of one element type as another: itself where they are the same."""
    return expression if before == after else Cast(expression, after)


class Raw(Expr):
    """Expression of the common language for values without an operator: element indices and random bits."""

    __slots__ = ()


class Op(Expr):
    """The operation that popops calls ``name`` on expressions, or numbers.

    Raises:
        InvalidOptionError: No such operation.
        TensorError: Wrong number of arguments.
    """

    __slots__ = ()

    def __init__(self, name: str, *args: object) -> None:
        operation = language.find_popops(name)
        if len(args) != operation.arity:
            raise TensorError(f"{name} takes {counted(operation.arity, 'argument')}, got {len(args)}")
        nodes = tuple(as_expr(a).node for a in args)
        assert operation.spelling is not None
        super().__init__(language.Apply(operation.name, operation.spelling.reordered(nodes)))


def written_out(node: language.Expr) -> Expr:
    """Expression of the common language with every use of an operation written out: none is shared."""
    return Expr(_written_out(node))


def _written_out(node: language.Expr) -> language.Expr:
    match node:
        case language.Const():
            # Of constants alone the first has the type, and words above 2³¹ are no i32.
            return language.Const(node.value, u32) if node.type.kind == "uint" else language.as_expr(node.value)
        case language.Cast():
            return language.Cast(node.type, _written_out(node.arg))
        case language.Apply():
            return language.Apply(node.op, map(_written_out, node.args))
    return node


def check_placeholders(node: language.Expr, types: Types) -> None:
    """Refuse an expression with operands that are not there.

    Raises:
        TensorError: It does.
    """
    for part in parts(node):
        if isinstance(part, language.Load) and not 0 <= part.operand < len(types):
            raise TensorError(f"the expression uses _{part.operand + 1}, and was given {counted(len(types), 'tensor')}")


def parts(*nodes: language.Expr) -> list[language.Expr]:
    """Nodes of expressions, each once; arguments, in popops' order, before their users."""
    seen: dict[int, language.Expr] = {}

    def visit(node: language.Expr) -> None:
        if id(node) not in seen:
            spelling = language.TABLE[node.op].spelling if isinstance(node, language.Apply) else None
            for argument in node.args if spelling is None else spelling.in_order_of_popops(node.args):
                visit(argument)
            seen[id(node)] = node

    for node in nodes:
        visit(node)
    return list(seen.values())


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
"""Name of the kernel dim for the row-major index of an element in the mapped shape."""


def element_index() -> Raw:
    """The row-major index of the element in the mapped shape, as i32."""
    return Raw(language.Index(language.affine(ELEMENT)))


def random_bits(seed: int, modifier: int, draw: int = 0, draws: int = 1) -> Raw:
    """32 uniform random bits for each element.

    Args:
        seed: Number of the operand, from 1, that is the u32[2] seed.
        modifier: Chooses among independent streams of one seed.
        draw: Number of the draw among those of the element.
        draws: Numbers that each element takes.
    """
    return Raw(language.Random(seed - 1, modifier, language.affine((ELEMENT, draws), const=draw)))


def from_callable(function: ExprLike | Callable[..., ExprLike], arity: int) -> Expr:
    """``function`` itself if it is an expression, or its result for ``arity`` placeholders.

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
