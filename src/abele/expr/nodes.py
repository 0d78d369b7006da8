"""The nodes of the expression language: loads, constants, operations, conversions, indices and random bits.

Nodes are frozen and compare by structure. An operation is named by its entry of :data:`abele.expr.operation.TABLE`;
those that LLVM code is known for are *primitive*, the others *composite*: :func:`abele.expr.expand.expanded` replaces
them by what they are made of.

>>> print(load(0, "i") * 2.0 + apply("exp", load(1, "i")))
(%0[i] * 2.0) + exp(%1[i])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from abele.errors import TensorError
from abele.expr.affine import Affine, AffineLike, affine
from abele.expr.operation import TABLE, find_operation
from abele.numerics import ElementType, bool_, f32, i32
from abele.words import counted


class Expr:
    """Base of the expressions; Python's operators build :class:`Apply` nodes (``==`` stays structural: use ``eq``)."""

    __slots__ = ()

    def __add__(self, other: ExprLike) -> Apply:
        return apply("add", self, other)

    def __radd__(self, other: ExprLike) -> Apply:
        return apply("add", other, self)

    def __sub__(self, other: ExprLike) -> Apply:
        return apply("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Apply:
        return apply("sub", other, self)

    def __mul__(self, other: ExprLike) -> Apply:
        return apply("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Apply:
        return apply("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Apply:
        return apply("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Apply:
        return apply("div", other, self)

    def __neg__(self) -> Apply:
        return apply("neg", self)

    def __lt__(self, other: ExprLike) -> Apply:
        return apply("lt", self, other)

    def __le__(self, other: ExprLike) -> Apply:
        return apply("le", self, other)

    def __gt__(self, other: ExprLike) -> Apply:
        return apply("gt", self, other)

    def __ge__(self, other: ExprLike) -> Apply:
        return apply("ge", self, other)

    def eq(self, other: ExprLike) -> Apply:
        """True if both are equal."""
        return apply("eq", self, other)

    def ne(self, other: ExprLike) -> Apply:
        """True if both differ."""
        return apply("ne", self, other)

    @property
    def args(self) -> tuple[Expr, ...]:
        """Arguments of the expression."""
        return ()

    def walk(self) -> Iterator[Expr]:
        """Itself and everything below it, arguments first."""
        # In one list: nested generators would pass every part on through all that it is in.
        found: list[Expr] = []
        _collect(self, found)
        return iter(found)


def _collect(expression: Expr, found: list[Expr]) -> None:
    for arg in expression.args:
        _collect(arg, found)
    found.append(expression)


ExprLike = Expr | float | int | bool
"""Arguments that builders take for an expression: numbers become constants."""


@dataclass(frozen=True)
class Load(Expr):
    """An element of an operand; ``fill`` is its value outside the operand's bounds (None: never outside)."""

    operand: int
    index: tuple[Affine, ...]
    fill: float | None = None

    def __str__(self) -> str:
        fill = "" if self.fill is None else f" else {self.fill:g}"
        return f"%{self.operand}[{', '.join(map(str, self.index))}{fill}]"


@dataclass(frozen=True)
class RowLoad(Expr):
    """Element of an operand at a place along one dim that is a value, such as a loaded one.

    Attributes:
        operand: The operand.
        index: Its place along every dim; along ``dim`` it says nothing, and is 0.
        dim: The dim along which ``row`` is the place.
        row: An integer; where it is no place of the dim, the element is ``fill``.
        fill: Value of elements outside.
    """

    operand: int
    index: tuple[Affine, ...]
    dim: int
    row: Expr
    fill: float = 0.0

    @property
    def args(self) -> tuple[Expr, ...]:
        """The row."""
        return (self.row,)

    def at_row(self, row: Expr) -> RowLoad:
        """The same with another expression for the row."""
        return replace(self, row=row)

    def __str__(self) -> str:
        fill = f" else {self.fill:g}" if self.fill else ""
        return f"%{self.operand}[{row_index(self.index, self.dim, self.row)}{fill}]"


def row_index(index: tuple[Affine, ...], dim: int, row: Expr) -> str:
    """An index with ``row`` in its place ``dim``, as text."""
    return ", ".join(str(row) if n == dim else str(a) for n, a in enumerate(index))


@dataclass(frozen=True)
class Const(Expr):
    """A number; next to an argument of another type it takes that type if it can."""

    value: float | int | bool
    type: ElementType = f32

    def __str__(self) -> str:
        return f"{self.value!r}" if self.type in (f32, bool_) else f"{self.value!r}:{self.type}"


@dataclass(frozen=True, init=False)
class Apply(Expr):
    """An operation of :data:`abele.expr.operation.TABLE` on expressions of one type.

    Raises:
        InvalidOptionError: No such operation.
        TensorError: Wrong number of arguments.
    """

    op: str
    operands: tuple[Expr, ...]

    def __init__(self, op: str, args: Iterable[Expr]) -> None:
        args = tuple(args)
        arity = find_operation(op).arity
        if len(args) != arity:
            raise TensorError(f"operation {op!r} takes {counted(arity, 'argument')}, got {len(args)}")
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "operands", args)

    @property
    def args(self) -> tuple[Expr, ...]:
        """The arguments."""
        return self.operands

    def __str__(self) -> str:
        sign = TABLE[self.op].symbol
        if sign is None:
            return f"{self.op}({', '.join(map(str, self.args))})"
        return f" {sign} ".join(f"({a})" if _is_infix(a) else str(a) for a in self.args)


def _is_infix(expression: Expr) -> bool:
    return isinstance(expression, Apply) and TABLE[expression.op].symbol is not None


@dataclass(frozen=True)
class Cast(Expr):
    """``arg`` converted to ``type`` (floats to integers truncate); f16 and bf16 round and are widened back to f32."""

    type: ElementType
    arg: Expr

    @property
    def args(self) -> tuple[Expr, ...]:
        """The converted expression."""
        return (self.arg,)

    def __str__(self) -> str:
        return f"{self.type}({self.arg})"


@dataclass(frozen=True)
class Rounded(Expr):
    """An f32 value as a store into a narrow float leaves it, and a load widens it again.

    Attributes:
        type: The narrow float.
        arg: The value.
        word: A u32 to round at random by; None for nearest, ties to even.
        saturates: True if values too large become the largest number, rather than infinity.
    """

    type: ElementType
    arg: Expr
    word: Expr | None = None
    saturates: bool = False

    @property
    def args(self) -> tuple[Expr, ...]:
        """The value, and the random word if there is one."""
        return (self.arg,) if self.word is None else (self.arg, self.word)

    def of(self, args: tuple[Expr, ...]) -> Rounded:
        """The same of another value, and by another word where there is one."""
        return replace(self, arg=args[0], word=args[1] if len(args) > 1 else None)

    def __str__(self) -> str:
        by = "" if self.word is None else f" by {self.word}"
        return f"{self.type}({self.arg}{by}{', held' * self.saturates})"


@dataclass(frozen=True)
class Index(Expr):
    """A loop index as i32."""

    affine: Affine

    def __str__(self) -> str:
        return f"index({self.affine})"


@dataclass(frozen=True)
class Random(Expr):
    """A uniform u32 from the counter hash of (operand ``seed``, a u32[2]; ``modifier``; linear index)."""

    seed: int
    modifier: int
    index: Affine

    def __str__(self) -> str:
        return f"random(%{self.seed}, {self.modifier}, {self.index})"


def as_expr(value: ExprLike) -> Expr:
    """``value`` as an expression: a float becomes an f32 constant, an int an i32 one, a bool a bool one."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool):
        return Const(value, bool_)
    return Const(value, i32) if isinstance(value, int) else Const(float(value), f32)


def apply(op: str, *args: ExprLike) -> Apply:
    """``Apply(op, args)`` with numbers turned into constants."""
    return Apply(op, map(as_expr, args))


def select(condition: Expr, then: ExprLike, otherwise: ExprLike) -> Apply:
    """``then`` where ``condition`` holds, else ``otherwise``."""
    return apply("select", condition, then, otherwise)


def split_index(index: Iterable[AffineLike | Expr]) -> tuple[tuple[Affine, ...], int | None, Expr | None]:
    """Index with affine places, but for one that may be a value: with 0 there, its dim, and the value.

    Raises:
        TensorError: Several places are values.
    """
    places = list(index)
    rows = [(n, place) for n, place in enumerate(places) if isinstance(place, Expr)]
    if len(rows) > 1:
        raise TensorError(
            f"{counted(len(rows), 'place')} of an index are values",
            remedy="let one value count through these dims, of a view in which they are one",
        )
    found = tuple(affine(0) if isinstance(place, Expr) else affine(place) for place in places)
    return (found, *rows[0]) if rows else (found, None, None)


def load(operand: int, *index: AffineLike | Expr, fill: float | None = None) -> Load | RowLoad:
    """``Load`` with every index given as an Affine, a dim's name or a number; ``RowLoad`` where one is a value.

    >>> print(load(0, load(1, "i"), "j"))
    %0[%1[i], j]
    """
    places, dim, row = split_index(index)
    if dim is None or row is None:
        return Load(operand, places, fill)
    return RowLoad(operand, places, dim, row, fill or 0.0)
