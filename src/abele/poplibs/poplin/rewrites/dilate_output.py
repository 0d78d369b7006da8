"""Dilating after the product: outputs between which a dilated input leaves zeros are computed without the zeros.

The gradient of the input of a convolution that takes every second position of its input is zero in between. The product
runs over the positions that are not, and its result is spread out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from abele.graph import Copy, Graph, Tensor
from abele.graph.program import Steps
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.lowering.call import ContractionCall, Meaning
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import Const
from abele.poplibs.poputil.order import StorageOrder, storage_order


def dilated_after(call: ContractionCall) -> ContractionCall | None:
    """``call`` as a product over the positions that are not zero and a spreading out; None where that cannot be.

    Args:
        call: One whose output is [batch, channels, *field].
    """
    axes = call.problem.axes
    if not any(axis.in_step > 1 for axis in axes) or not all(map(_can_wait, axes)):
        return None
    dense = tuple(Axis(axis.inputs, axis.inputs, 1) if axis.in_step > 1 else axis for axis in axes)
    meaning = Meaning(call.problem, call.x, call.w, call.out_roles, lambda out: out)
    spread = DilatedSpread(tuple(axis.in_step for axis in axes), tuple(axis.outputs for axis in axes))
    return replace(call, problem=replace(call.problem, axes=dense), meaning=meaning, spread=spread)


def _can_wait(axis: Axis) -> bool:
    """True if output ``in_step · i`` is made from input i alone, and no other output from any."""
    if axis.in_step == 1:
        return True
    alone = axis.kernel == 1 and axis.out_step == 1 and axis.offset == 0
    return alone and -(-axis.outputs // axis.in_step) == axis.inputs


@dataclass(frozen=True)
class DilatedSpread:
    """Distances between the results in the final field.

    Attributes:
        steps: Distance of neighbours along every field dimension.
        field: Extents of the field that they end up in.
    """

    steps: tuple[int, ...]
    field: tuple[int, ...]

    def allocate(self, graph: Graph, dense: Tensor) -> Tensor:
        """The tensor that ``dense`` [batch, channels, *field] is spread out in: near its elements, in their order."""
        order = storage_order(dense)
        shape = (*dense.shape[:2], *self.field)
        fine = tuple(n if d < 2 else shape[d] for n, d in zip(order.fine, order.of_dim, strict=True))
        wide = StorageOrder(shape, fine, order.of_dim, order.order)
        full = wide.undo(graph.variable(dense.dtype, wide.extents, name="out"))
        # Elements that stay zero are mapped beside the one that they follow, so that users find both on one tile.
        for residues in product(*(range(min(step, n)) for step, n in zip(self.steps, self.field, strict=True))):
            part = self._part(full, residues)
            near = dense
            for d, extent in enumerate(part.shape[2:], start=2):
                near = near.slice(0, extent, d)
            turned = storage_order(near)
            graph.map(turned.apply(part), graph.mapping_of(turned.apply(near)))
        return full

    def emit(self, graph: Graph, body: Steps, dense: Tensor, full: Tensor) -> None:
        """Append the steps that fill ``full`` with zeros and the elements of ``dense``."""
        emit_map(graph, body, [Const(0.0, full.dtype)], [], [full], "zero")
        part = self._part(full, (0,) * len(self.steps))
        order = storage_order(dense)
        body.add(Copy(order.apply(dense), order.apply(part)))

    def _part(self, full: Tensor, residues: tuple[int, ...]) -> Tensor:
        """Every ``steps``-th element of ``full`` from ``residues`` on."""
        for d, (residue, step) in enumerate(zip(residues, self.steps, strict=True), start=2):
            full = full.slice(residue, full.shape[d], d).sub_sample(step, d)
        return full
