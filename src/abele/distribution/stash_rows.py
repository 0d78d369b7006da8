"""Rows of rings: values of one element type, one after the other, as they are or as narrower floats.

Narrower floats are made when a row is written: each element is divided by the format's scale, limited to its largest
number and rounded once, and widened again when the row is read. So whoever reads the row sees numbers that differ from
those that were made by up to half a unit in the last place of the narrow format.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from abele.graph import Copy, Graph, Steps, Tensor, concat
from abele.network.ir import Stage, Value
from abele.network.locations import TensorLocation
from abele.numerics import ElementType
from abele.poplibs.popops.elementwise.cast import cast_with_output
from abele.poplibs.poputil.layout import clone
from abele.poplibs.poputil.order import storage_order


@dataclass(frozen=True)
class WaitingValue:
    """A value that waits for later stages.

    Attributes:
        value: It.
        tensor: Tensor of the stage that made it.
        stored: The element type as which it waits.
    """

    value: Value
    tensor: Tensor
    stored: ElementType


def stored_as(value: Value, stash: ElementType | None, *, exact: bool) -> ElementType:
    """The type as which a value waits: the stash's, if the forward pass made it and nothing reads it ``exact``."""
    if stash is None or exact or not value.dtype.is_float or value.stage != Stage.FORWARD:
        return value.dtype
    return stash


def held(graph: Graph, tensor: Tensor, prog: Steps) -> Tensor:
    """A tensor that shows each of its elements once; a copy, where it shows some several times."""
    if not tensor.contains_aliases and not tensor.contains_constant:
        return tensor
    made = graph.map_linear(graph.variable(tensor.dtype, tensor.shape, name="held"))
    prog.add(Copy(tensor, made, name="hold"))
    return made


class RingRow:
    """The values of a row.

    Args:
        graph: The IPU's.
        tensors: The values, where they were made; all of one type.
        stored: The element type of the ring; that of the values, or a narrower float.
    """

    def __init__(self, graph: Graph, tensors: Mapping[Value, Tensor], stored: ElementType) -> None:
        self._graph = graph
        self._tensors = dict(tensors)
        self.stored = stored
        self._made = concat([_flat(tensor) for tensor in self._tensors.values()])

    @property
    def is_narrow(self) -> bool:
        """True if the ring has another type than the values."""
        return self.stored != self._made.dtype

    @property
    def size(self) -> int:
        """Elements."""
        return self._made.size

    @cached_property
    def tensor(self) -> Tensor:
        """The row as the ring stores it, [elements]: the values themselves, or what :meth:`fill` rounds them to."""
        return self.variable("narrowed", self.stored) if self.is_narrow else self._made

    def variable(self, name: str, dtype: ElementType) -> Tensor:
        """A new row that lies as the values do, [elements]."""
        parts = self._tensors.items()
        return concat([clone(self._graph, _flat(t), f"{v.name or 'value'}/{name}", dtype) for v, t in parts])

    def fill(self, prog: Steps) -> Tensor:
        """:attr:`tensor`; appends the step that rounds the values to it, where they are rounded."""
        if self.is_narrow:
            cast_with_output(self._graph, self._made, self.tensor, prog, "narrow_row", saturate=True)
        return self.tensor

    def values(self, stored: Tensor, prog: Steps) -> dict[Value, Tensor]:
        """The values of a row of the ring, [elements] of :attr:`stored`; appends what widens them."""
        if self.is_narrow:
            wide = self.variable("widened", self._made.dtype)
            cast_with_output(self._graph, stored, wide, prog, "widen_row")
            stored = wide
        found, begin = {}, 0
        for value, tensor in self._tensors.items():
            end, order = begin + tensor.size, storage_order(tensor)
            found[value] = order.undo(stored[begin:end].reshape(order.extents))
            begin = end
        return found


def rows_of(graph: Graph, waiting: Iterable[WaitingValue], location: TensorLocation) -> Iterator[tuple[RingRow, bool]]:
    """Rows of the values of one element type that lie alike, and whether they lie in streaming memory."""
    found: dict[tuple[str, str, bool], list[WaitingValue]] = {}
    for part in waiting:
        away = location.is_off_chip(part.tensor.size)
        found.setdefault((part.tensor.dtype.name, part.stored.name, away), []).append(part)
    for (_, _, away), parts in found.items():
        yield RingRow(graph, {part.value: part.tensor for part in parts}, parts[0].stored), away


def _flat(tensor: Tensor) -> Tensor:
    """Its elements in the order in which they lie in memory."""
    return storage_order(tensor).apply(tensor).flatten()
