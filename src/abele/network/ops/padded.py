"""Values that are zero but for a part, as gradients of slices are: facts about them without computing.

The gradient of a slice has zeros around it, a view that costs nothing. The slices that make up a value (queries, keys
and values of one product) have gradients that lie beside each other, so their sum is a view too: the slices put
together again, where adding three tensors of mostly zeros would read, move and write all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abele.network.ir import BlockBuilder, Value
from abele.network.ops.constant import full
from abele.network.ops.views import concat


@dataclass(frozen=True)
class Padded:
    """A value that is zero but for some parts along one dimension.

    Attributes:
        dim: The dimension.
        parts: First index and contents of each part that may differ from zero, in order.
    """

    dim: int
    parts: tuple[tuple[int, Value], ...]

    def meets(self, other: Padded) -> bool:
        """True if a part of one overlaps a part of the other."""
        return any(
            begin < first + x.shape[self.dim] and first < begin + y.shape[self.dim]
            for begin, y in other.parts
            for first, x in self.parts
        )

    def beside(self, other: Padded) -> Padded:
        """Both values side by side, where they do not overlap."""
        return Padded(self.dim, tuple(sorted((*self.parts, *other.parts), key=lambda part: part[0])))

    def written(self, net: BlockBuilder, like: Value) -> Value:
        """The value itself, with zeros between the parts."""
        at, pieces = 0, []
        for begin, value in (*self.parts, (like.shape[self.dim], None)):
            if begin > at:
                gap = (*like.shape[: self.dim], begin - at, *like.shape[self.dim + 1 :])
                pieces.append(full(net, 0.0, gap, like.dtype))
            if value is not None:
                pieces.append(value)
                at = begin + value.shape[self.dim]
        return concat(net, pieces, self.dim)


def padded(net: BlockBuilder, value: Value) -> Padded | None:
    """Place in ``value`` where it may differ from zero, if it was made by putting zeros beside something."""
    maker = net.makers.get(value)
    if maker is None or maker.kind != "concat":
        return None
    dim, at, parts = maker.attrs["dim"], 0, []
    for piece in maker.inputs:
        if net.scalar(piece) != 0:
            parts.append((at, piece))
        at += piece.shape[dim]
    return Padded(dim, tuple(parts)) if len(parts) < len(maker.inputs) else None


def laid_together(net: BlockBuilder, values: Sequence[Value]) -> list[Value]:
    """Fewer values with the same sum: those that are zero wherever another is not become one."""
    kept: list[Value] = []
    merged: list[tuple[Padded, list[Value]]] = []
    for value in values:
        known = padded(net, value)
        if known is None:
            kept.append(value)
            continue
        for number, (other, members) in enumerate(merged):
            if other.dim == known.dim and not other.meets(known):
                merged[number] = other.beside(known), [*members, value]
                break
        else:
            merged.append((known, [value]))
    return kept + [m[0] if len(m) == 1 else p.written(net, m[0]) for p, m in merged]
