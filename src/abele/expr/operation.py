"""Element-wise operations: one record each, read by every room.

``TABLE`` has each operation once. NumPy's evaluation takes its meaning, differentiation its derivative, host kernels
the LLVM code, the vertex language the form that it has there with its issue slots, popops its cost in library vertices
and PopLibs' names for it. Adding an operation is one call of :func:`define`.

An operation is *primitive* where LLVM code is given for it, *composite* where it is made of others by its expansion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError, nearest
from abele.numerics import ElementType

if TYPE_CHECKING:
    from abele.expr.nodes import Expr

T = TypeVar("T")
Types = tuple[ElementType, ...]
CostClass = Literal["f32", "f16", "int"]

FLOAT = frozenset({"float"})
WHOLE = frozenset({"int", "uint"})
NUMBER = frozenset({"float", "int", "uint"})
BITS = frozenset({"int", "uint", "bool"})
ANY = frozenset({"float", "int", "uint", "bool"})

Meaning: TypeAlias = Callable[..., Array]
Expansion: TypeAlias = "Callable[..., Expr]"
Slope: TypeAlias = "Callable[..., Expr]"
Emit: TypeAlias = Callable[..., Any]


@dataclass(frozen=True)
class Slots:
    """Instructions of an operation on a worker, in issue slots.

    Attributes:
        main: Slots on the main pipe.
        aux: Slots on the auxiliary pipe.
        source: Source of the numbers.
        first: The pipe that comes first where both are used.
    """

    main: int = 0
    aux: int = 0
    source: str = ""
    first: str = "main"


@dataclass(frozen=True)
class Code:
    """LLVM code of a primitive operation, for scalars and vectors of lanes.

    Attributes:
        f32: Emits it for f32 from a builder and the arguments; None where it takes no floats.
        integer: Emits it for integers and bools, with ``signed=`` at the end; None where it takes none.
        branches: True if that for f32 branches, so that a loop of it becomes vectors as calls only.
    """

    f32: Emit | None = None
    integer: Emit | None = None
    branches: bool = False


VertexKind = Literal["operator", "sign", "comparison", "choice", "extreme", "function"]


@dataclass(frozen=True)
class InVertex:
    """Form of a primitive operation in the vertex language.

    Attributes:
        kind: The construct: an infix operator, a sign before its argument, a comparison, ``a if c else b``, ``min``
            and ``max``, or a function of the language.
        name: Name of the node in ``codelet.tree``, or of the function.
    """

    kind: VertexKind
    name: str


VertexForm: TypeAlias = "InVertex | Callable[..., Expr]"
"""Form of an operation in vertices: a construct of their language, or an expression of those."""

UNARY_START = (9 + 11, 17)
"""Supervisor cycles and worker slots before the loop of UnaryOp1D. Source: machine reference §4.8."""


@dataclass(frozen=True)
class LoopCost:
    """Cycles of a worker's inner loop for some elements, loads and stores included."""

    cycles: float
    elements: int


@dataclass(frozen=True)
class LibraryCost:
    """Cost of an operation in the libraries' own vertices.

    Attributes:
        f32: On f32 elements.
        f16: On f16 and bf16 elements.
        integer: On integers and bools.
        in_place: On f32 and f16 in the in-place form, where it differs.
        start: Supervisor cycles and worker slots before the loop of the operation's own one-operand codelet.
    """

    f32: LoopCost
    f16: LoopCost
    integer: LoopCost
    in_place: tuple[LoopCost, LoopCost] | None = None
    start: tuple[int, int] = UNARY_START

    def of(self, kind: CostClass, in_place: bool = False) -> LoopCost:
        """The cost on elements of ``kind``."""
        if in_place and self.in_place is not None and kind != "int":
            return self.in_place[kind == "f16"]
        return {"f32": self.f32, "f16": self.f16, "int": self.integer}[kind]


@dataclass(frozen=True)
class Spelling:
    """PopLibs' names of an operation.

    Attributes:
        function: Of the function in popops, in snake_case.
        enumerator: Of the enumerator in ``popops::expr::UnaryOpType`` and its kin; empty where there is none.
        builder: Of the class in ``popops::expr``; empty where there is none.
        order: Number of popops' argument for each argument here, where the orders differ.
    """

    function: str
    enumerator: str = ""
    builder: str = ""
    order: tuple[int, ...] = ()

    def reordered(self, args: tuple[T, ...]) -> tuple[T, ...]:
        """Arguments in popops' order as arguments in ours."""
        return tuple(args[i] for i in self.order) if self.order else args

    def in_order_of_popops(self, args: tuple[T, ...]) -> tuple[T, ...]:
        """Arguments in our order as arguments in popops'."""
        return tuple(args[self.order.index(i)] for i in range(len(args))) if self.order else args


@dataclass(frozen=True, eq=False)
class Operation:
    """One element-wise operation.

    Attributes:
        name: Name in expressions.
        arity: Number of arguments.
        kinds: Element kinds that its arguments may have; all have one type (of ``select`` the last two). None for
            composites that take whatever they are made of takes.
        meaning: Computation on NumPy arrays.
        gives_bool: True where the result is a bool whatever the arguments are.
        expansion: Expression of a composite, from the operands' types and the arguments; of a primitive the same with
            arguments of the types that it takes.
        slopes: The derivative by each argument, from the arguments; None where it has none, or that of its expansion.
        code: LLVM code of a primitive.
        in_vertex: Form in vertices, and their form for integers where that differs.
        in_integer_vertex: As above.
        slots: Issue slots of one f32 element in scalar code, where no construct of the language has them.
        cost: Cost in library vertices; None where no library has it.
        spelling: PopLibs' names.
        symbol: Infix sign of listings, or None for call form.
    """

    name: str
    arity: int
    kinds: frozenset[str] | None
    meaning: Meaning
    gives_bool: bool = False
    expansion: Expansion | None = None
    slopes: tuple[Slope, ...] | None = None
    code: Code | None = None
    in_vertex: VertexForm | None = None
    in_integer_vertex: VertexForm | None = None
    slots: Slots | None = None
    cost: LibraryCost | None = None
    spelling: Spelling | None = None
    symbol: str | None = None

    @property
    def is_primitive(self) -> bool:
        """True if there is code of its own for it."""
        return self.code is not None

    @property
    def popops_name(self) -> str:
        """Name in popops; its own name where popops does not have it."""
        return self.name if self.spelling is None else self.spelling.function

    @property
    def function(self) -> str | None:
        """The function of the vertex language that it is, if it is one."""
        form = self.in_vertex
        return form.name if isinstance(form, InVertex) and form.kind == "function" else None


TABLE: dict[str, Operation] = {}
"""Every element-wise operation by name; filled by :mod:`abele.expr.operations`."""

POPOPS: dict[str, Operation] = {}
"""Those that popops has, by its names."""

FUNCTIONS: dict[str, Operation] = {}
"""Those that are functions of the vertex language, by their names there."""


def loop_cost(
    f32: tuple[float, int],
    f16: tuple[float, int],
    integer: tuple[float, int] = (7, 1),
    in_place: tuple[tuple[float, int], tuple[float, int]] | None = None,
    start: tuple[int, int] = UNARY_START,
) -> LibraryCost:
    """A :class:`LibraryCost` from pairs of cycles and elements."""
    both = None if in_place is None else (LoopCost(*in_place[0]), LoopCost(*in_place[1]))
    return LibraryCost(LoopCost(*f32), LoopCost(*f16), LoopCost(*integer), both, start)


def define(operation: Operation) -> Operation:
    """Add an operation to the table.

    Raises:
        InvalidOptionError: There is one of its name, or it has neither code nor an expansion.
    """
    if operation.name in TABLE:
        raise InvalidOptionError(f"there is an element-wise operation {operation.name!r} already")
    if operation.code is None and operation.expansion is None:
        raise InvalidOptionError(
            f"operation {operation.name!r} has no code",
            remedy="give it LLVM code, or an expansion into operations that have some",
        )
    for table, name in _places(operation):
        table[name] = operation
    return operation


def _places(operation: Operation) -> list[tuple[dict[str, Operation], str]]:
    places = [(TABLE, operation.name)]
    if operation.spelling is not None:
        places.append((POPOPS, operation.spelling.function))
    if operation.function is not None:
        places.append((FUNCTIONS, operation.function))
    return places


@contextmanager
def defined(operation: Operation) -> Iterator[Operation]:
    """An operation that is in the table inside the ``with`` block only."""
    try:
        yield define(operation)
    finally:
        for table, name in _places(operation):
            if table.get(name) is operation:
                del table[name]


def find_operation(name: str) -> Operation:
    """The operation called ``name`` in expressions.

    Raises:
        InvalidOptionError: There is none; the message names the nearest.
    """
    found = TABLE.get(name)
    return _missing(name, TABLE) if found is None else found


def find_popops(name: str) -> Operation:
    """The operation that popops calls ``name``.

    Raises:
        InvalidOptionError: There is none; the message names the nearest.
    """
    found = POPOPS.get(name)
    return _missing(name, POPOPS) if found is None else found


def _missing(name: str, table: dict[str, Operation]) -> Operation:
    close = nearest(name, table)
    raise InvalidOptionError(
        f"no element-wise operation {name!r}", remedy=f"did you mean {close!r}?" if close else ", ".join(table)
    )


COMBINES: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""Operations that reduce, in NumPy."""


def identity(combine: str, dtype: np.dtype[Any]) -> Any:
    """The value that ``combine`` starts from, as a scalar of ``dtype``: 0, 1, or the lowest or highest value."""
    if combine in ("add", "mul"):
        return dtype.type(combine == "mul")
    if dtype.kind == "f":
        return dtype.type(-np.inf if combine == "max" else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if combine == "max" else limits.max)
