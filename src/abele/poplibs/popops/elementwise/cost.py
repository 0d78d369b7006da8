"""Costs of element-wise vertices, in cycles of the whole tile.

Single operations cost exactly what PopLibs' estimators say. A fused expression costs, per vector, the sum of its
operations' slots without their loads and stores, and one set of loads and stores for all: each operand and output
vector moves once, one store sharing its slot with a load. It starts like the two-operand codelet.

Source: machine reference §4.8 (BinaryOp1D, UnaryOp1D, BroadcastScalar1D, BroadcastVectorOuter byRow).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.expr.operation import UNARY_START
from abele.machine import Ipu
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popops.expressions.fused import Fused, library_cost, operation_slots

SUPERVISOR_CYCLES = 11
"""Starting the workers. Source: basicOpSupervisorOverhead, machine reference §1.5."""
BINARY_PROLOGUE = {"f32": 29, "f16": 26, "int": 29}
"""Worker slots before the loop of BinaryOp1D. Source: machine reference §4.8; integers as f32."""
BINARY_PROLOGUE_IN_PLACE = 58
UNARY_PROLOGUE_IN_PLACE = 55
SCALAR_PROLOGUE = 20
"""Worker slots before the loop of BroadcastScalar1D. Source: machine reference §4.8."""
ROW_PROLOGUE = 15
ROW_SLOTS = {"aligned": 7, "misaligned": 25}
"""Worker slots before the loop, and of each row, of BroadcastVectorOuter byRow. Source: machine reference §4.8."""
BLOCK_SLOTS = 12
"""Worker slots to find the block of the first row of a share: a division by multiplying, and addresses. Guessed."""
OPERAND_SLOTS = 2
"""Worker slots to load the pointer of an operand beyond two, and of a scalar. Guessed: two loads."""


@dataclass(frozen=True)
class CostForm:
    """Properties of an element-wise codelet that decide its cost.

    Attributes:
        streams: Operands read as vectors, plus outputs.
        scalars: Operands of which a vertex reads one element.
        in_place: True if an output overwrites an operand.
        rows: True if the vertex walks rows, because operands are repeated along rows or columns.
        blocks: True if its rows are of several blocks.
    """

    streams: int
    scalars: int
    in_place: bool
    rows: bool
    blocks: bool = False


def vector_type(fused: Fused) -> ElementType:
    """The element type whose vectors the loop moves."""
    return f16 if fused.arithmetic == "f16" else f32


def element_cycles(fused: Fused, form: CostForm, size: Int64, columns: Int64 | int, ipu: Ipu) -> Int64:
    """Tile cycles of vertices that evaluate ``fused`` on ``size`` elements each, in rows of ``columns``.

    Args:
        fused: The expressions.
        form: Layout of the operands, as far as it decides the cost.
        size: Elements of each vertex, int64[n].
        columns: Elements of a row, int64[n]; ignored unless ``form.rows``.
        ipu: The machine.
    """
    vector = ipu.vector_width(vector_type(fused))
    workers = ipu.num_workers
    if form.rows:
        return _row_cycles(fused, form, size, np.asarray(columns), vector, workers)
    share = -(-size // workers)
    loops = -(-share // vector)
    supervisor, prologue, slots = _flat_terms(fused, form, vector)
    return np.asarray(supervisor + workers * (prologue + np.ceil(loops * slots)), np.int64)


def _row_cycles(fused: Fused, form: CostForm, size: Int64, columns: Int64, vector: int, workers: int) -> Int64:
    share = -(-size // workers)
    rows = -(-share // columns)
    aligned = columns % vector == 0
    row_slots = np.where(aligned, ROW_SLOTS["aligned"], ROW_SLOTS["misaligned"])
    loops = rows * -(-np.minimum(columns, share) // vector)
    slots = vector_slots(fused, form, vector)
    prologue = ROW_PROLOGUE + (BLOCK_SLOTS if form.blocks else 0)
    return np.asarray(SUPERVISOR_CYCLES + workers * (prologue + rows * row_slots + np.ceil(loops * slots)), np.int64)


def vector_slots(fused: Fused, form: CostForm, vector: int) -> float:
    """Slots of one vector: operations, and one set of loads and stores."""
    return operation_slots(fused, vector, form.in_place) + max(1, form.streams - 1)


def _flat_terms(fused: Fused, form: CostForm, vector: int) -> tuple[int, int, float]:
    """Supervisor cycles, worker prologue slots and slots per vector of vertices without rows."""
    slots = vector_slots(fused, form, vector)
    operations = fused.operations
    if form.streams <= 2 and not form.scalars and all(len(op.args) == 1 for op in operations) and len(operations) <= 1:
        supervisor, prologue = library_cost(operations[0]).start if operations else UNARY_START
        return supervisor, UNARY_PROLOGUE_IN_PLACE if form.in_place else prologue, slots
    if len(operations) == 1 and form.streams <= 2:
        return SUPERVISOR_CYCLES, SCALAR_PROLOGUE, slots
    kind = fused.arithmetic
    prologue = BINARY_PROLOGUE_IN_PLACE if form.in_place else BINARY_PROLOGUE[kind]
    return SUPERVISOR_CYCLES, prologue + OPERAND_SLOTS * (max(0, form.streams - 3) + form.scalars), slots
