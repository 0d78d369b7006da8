"""Work of vertices on a plan, and what it costs by the kind of block.

Example: buckets with room for 130 values and 274 entries hold 13 rows of 10 values, after two headers.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from abele.arrays import Float64
from abele.numerics import ElementType, f16
from abele.poplibs.popsparse.dynamic import costs
from abele.poplibs.popsparse.dynamic.costs import VertexWork
from abele.poplibs.popsparse.dynamic.options import DynamicOptions
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan, fast_edge


class Costed(Protocol):
    """A plan, or candidates for one: what the costs of vertices depend on."""

    @property
    def block(self) -> tuple[int, int]: ...  # noqa: D102

    @property
    def dtype(self) -> ElementType: ...  # noqa: D102

    @property
    def options(self) -> DynamicOptions: ...  # noqa: D102

    @property
    def is_half(self) -> bool: ...  # noqa: D102

    @property
    def amp_grad_w(self) -> Any: ...  # noqa: D102


def vertex_cycles(of: Costed, name: str, work: VertexWork) -> Float64:
    """Cycles of one vertex of a pass: ``fwd``, ``gradA`` or ``gradW``."""
    edge, half = fast_edge(of.block, of.dtype), of.is_half
    half_partials = half and of.options.partials == f16
    if of.block == (1, 1):
        kind = {"fwd": "forward", "gradA": "transposed" if of.options.shared else "own", "gradW": "grad_w"}[name]
        return costs.element_cycles(kind, work, half)
    if not edge:
        return costs.general_block_cycles(work, of.block, half)
    if name == "gradW":
        plain = costs.block_grad_w_cycles(work, edge, half, half_partials)
        return np.where(of.amp_grad_w, costs.amp_grad_w_cycles(work, edge, half, half_partials), plain)
    if of.dtype.is_quarter:
        return costs.quarter_forward_cycles(work, edge)
    cycles = costs.block_forward_cycles(work, edge, half, half_partials)
    if name == "gradA":
        blocks = np.asarray(work.rows) * np.asarray(work.values) * np.asarray(work.relevant)
        cycles = cycles + costs.transpose_cycles(blocks, edge, half)
    return cycles


def full_work(plan: DynamicPlan, buckets: int) -> VertexWork:
    """Work of a vertex with full buckets, all of whose values are of its cell."""
    left = plan.meta_slots - 2 * plan.header - plan.nz_slots
    rows = max(1, min(left // 2, plan.nz_slots, plan.cell[0]))
    return VertexWork(rows, -(-plan.nz_slots // rows), plan.columns, buckets, buckets)


def pass_cycles(plan: DynamicPlan, name: str, work: VertexWork) -> int:
    """Cycles of one vertex of a pass: ``fwd``, ``gradA`` or ``gradW``."""
    return int(vertex_cycles(plan, name, work).max())
