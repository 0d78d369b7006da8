"""Host kernels as data: the computation of a library call, as loop nests over its operands' logical indices.

A :class:`HostKernel` has operands (inputs, then outputs, then temporaries) and nests, run in order. A :class:`Nest`
means: for every point of its dims, evaluate the value of each store and combine it into the element that the store
names. Dims that a store's index does not mention are reduced. The whole target of a combining store starts from the
combine's identity, or from what is there (``accumulate``); a ``set`` store leaves elements that it does not name as
they were. Points whose store index lies outside the operand are dropped. Loads of a point come before its stores.
One place of an index may be a value, an integer: where it lies outside the operand, a load gives its fill (zero unless
it is given), and a store is dropped.

Arithmetic is f32 for floating-point operands of any width (widened on load, rounded once on store) and i32, u32, i64
or u64 for integers. A constant takes the type of the argument beside it.

>>> i, j, k = dims("i j k")
>>> print(nest({"i": 4, "j": 5, "k": 6}, store(2, (i, j), load(0, i, k) * load(1, k, j), "add")))
for i<4, j<5, k<6
  %2[i, j] add= %0[i, k] * %1[k, j]
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from abele.errors import InvalidOptionError, nearest
from abele.expr import (
    Affine,
    AffineLike,
    Apply,
    Cast,
    Const,
    Expr,
    ExprLike,
    Index,
    Load,
    Random,
    Rounded,
    RowLoad,
    affine,
    apply,
    as_expr,
    common_type,
    compute_type,
    dims,
    expanded,
    is_primitive,
    load,
    result_type,
    select,
)
from abele.expr.nodes import row_index, split_index
from abele.expr.operation import COMBINES
from abele.numerics import ElementType

__all__ = [
    "Affine",
    "AffineLike",
    "Apply",
    "Cast",
    "Const",
    "Expr",
    "ExprLike",
    "HostKernel",
    "Index",
    "Load",
    "Nest",
    "QuickRandom",
    "Random",
    "Rounded",
    "RowLoad",
    "RowOfStore",
    "Store",
    "affine",
    "apply",
    "as_expr",
    "common_type",
    "compute_type",
    "dims",
    "load",
    "nest",
    "result_type",
    "select",
    "store",
]


@dataclass(frozen=True)
class QuickRandom(Random):
    """A u32 whose upper bits alone are random, from the quicker hash, for rounding of results."""


@dataclass(frozen=True)
class RowOfStore:
    """The place of a store along dim ``dim`` of its operand: the integer ``value``."""

    dim: int
    value: Expr


@dataclass(frozen=True)
class Store:
    """Combine ``value`` into an element of ``operand``: ``set``, ``add``, ``max``, ``min`` or ``mul``.

    With a ``row``, the place along one dim is a value. Different points may then name one element, and they are
    combined in the order of the nest's dims, the last one fastest; of several that set it, the last one counts.
    """

    operand: int
    index: tuple[Affine, ...]
    value: Expr
    combine: str = "set"
    accumulate: bool = False
    row: RowOfStore | None = None

    @property
    def values(self) -> tuple[Expr, ...]:
        """Expressions that it evaluates: the value, and the row if it has one."""
        return (self.value,) if self.row is None else (self.value, self.row.value)

    def __post_init__(self) -> None:
        if self.combine != "set" and self.combine not in COMBINES:
            close = nearest(self.combine, ("set", *COMBINES))
            raise InvalidOptionError(
                f"no store combine {self.combine!r}", remedy=f"{close!r}" if close else f"set, {', '.join(COMBINES)}"
            )

    def __str__(self) -> str:
        sign = "=" if self.combine == "set" else f"{self.combine}="
        keep = " (onto what is there)" if self.accumulate else ""
        where = (
            ", ".join(map(str, self.index)) if self.row is None else row_index(self.index, self.row.dim, self.row.value)
        )
        return f"%{self.operand}[{where}] {sign} {self.value}{keep}"


@dataclass(frozen=True)
class Nest:
    """For every point of ``dims``, all stores. Dims are independent: no order is promised, but to stores in rows."""

    dims: tuple[tuple[str, int], ...]
    stores: tuple[Store, ...]

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each dim."""
        return dict(self.dims)

    def loads(self) -> Iterator[Load]:
        """Every load of every store whose place is affine."""
        return (e for e in self.expressions() if isinstance(e, Load))

    def row_loads(self) -> Iterator[RowLoad]:
        """Every load of every store whose place along a dim is a value."""
        return (e for e in self.expressions() if isinstance(e, RowLoad))

    def expressions(self) -> Iterator[Expr]:
        """Every expression of every store."""
        for item in self.stores:
            for value in item.values:
                yield from value.walk()

    def expanded(self, types: tuple[ElementType, ...]) -> Nest:
        """The nest over primitive operations, on operands of ``types``."""
        return Nest(self.dims, tuple(_expanded(s, types) for s in self.stores))

    def __str__(self) -> str:
        head = "for " + ", ".join(f"{d}<{n}" for d, n in self.dims) if self.dims else "once"
        return "\n".join([head, *(f"  {item}" for item in self.stores)])


@dataclass(frozen=True)
class HostKernel:
    """Computation of a library call on the host, as loop nests over its operands.

    Attributes:
        shapes: Logical shape of every operand: inputs, then outputs, then temporaries.
        types: Element type of every operand.
        num_inputs: Number of inputs among the operands.
        num_outputs: Number of outputs among the operands.
        nests: Run in order; composite operations in them are replaced by their parts.

    Raises:
        TensorError: A nest names an operand, dim or element that does not exist, or sets an element more than once.
        TypeMismatchError: An operation on types that it does not take, or a store of another type.
    """

    shapes: tuple[tuple[int, ...], ...]
    types: tuple[ElementType, ...]
    num_inputs: int
    num_outputs: int
    nests: tuple[Nest, ...]

    def __post_init__(self) -> None:
        from abele.kernels.nest.check import check_kernel

        # Passes and code generation know primitive operations alone.
        if not all(is_primitive(value) for n in self.nests for s in n.stores for value in s.values):
            object.__setattr__(self, "nests", tuple(n.expanded(self.types) for n in self.nests))
        check_kernel(self)

    @property
    def inputs(self) -> range:
        """Operand numbers of the inputs."""
        return range(self.num_inputs)

    @property
    def outputs(self) -> range:
        """Operand numbers of the outputs."""
        return range(self.num_inputs, self.num_inputs + self.num_outputs)

    @property
    def temporaries(self) -> range:
        """Operand numbers of the temporaries."""
        return range(self.num_inputs + self.num_outputs, len(self.shapes))

    def __str__(self) -> str:
        roles = ["in"] * self.num_inputs + ["out"] * self.num_outputs + ["temporary"] * len(self.temporaries)
        head = [
            f"%{n} {role} {t}[{', '.join(map(str, s))}]"
            for n, (role, t, s) in enumerate(zip(roles, self.types, self.shapes, strict=True))
        ]
        return "\n".join(head + [str(n) for n in self.nests])


def _expanded(item: Store, types: tuple[ElementType, ...]) -> Store:
    row = None if item.row is None else replace(item.row, value=expanded(item.row.value, types))
    return replace(item, value=expanded(item.value, types), row=row)


def store(
    operand: int, index: Iterable[AffineLike | Expr], value: ExprLike, combine: str = "set", *, accumulate: bool = False
) -> Store:
    """``Store`` with every index given as an Affine, a dim's name or a number; one of them may be a value.

    >>> print(store(2, (load(1, "i"), "j"), load(0, "i", "j"), "add", accumulate=True))
    %2[%1[i], j] add= %0[i, j] (onto what is there)
    """
    places, dim, row = split_index(index)
    at = None if dim is None or row is None else RowOfStore(dim, row)
    return Store(operand, places, as_expr(value), combine, accumulate, at)


def nest(extents: Mapping[str, int], *stores: Store) -> Nest:
    """``Nest`` over the dims of ``extents``, in their order."""
    return Nest(tuple(extents.items()), stores)
