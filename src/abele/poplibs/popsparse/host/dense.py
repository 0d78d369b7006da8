"""Dense operands of sparse products, brought to where a host multiplies them.

Rows of a panel are what a register tile takes. A matrix of few columns is its only panel as it lies. Others are copied
into panels: those of many columns, whose rows lie far apart, of columns that fill no vectors, of f16, and activations
of a layer [batch, channels], whose columns lie one after the other.

Example: 1,024 rows of 1,024 columns become 16 panels of 64, 256 KiB each. The copy is as many loads as a product with a
matrix of one value in each row; with 32 values in a row it is three hundredths of the work.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import ElementType, f32
from abele.poplibs.popsparse.host.dense_codelets import (
    BUFFER,
    EDGE,
    copy_codelet,
    pack_across_codelet,
    pack_codelet,
    transpose_codelet,
)
from abele.poplibs.popsparse.host.tiling import MOST_STRIDE, Panels
from abele.poplibs.popsparse.host.walks import num_shares


def is_near(tensor: Tensor) -> bool:
    """True if the host has a tensor in one stretch, in order."""
    # Views that are one interval by a form that does not show it are copied once more: finding out takes longer.
    return tensor.size == 0 or tensor.flatten().content.single_run is not None


def turned(tensor: Tensor) -> Tensor:
    """Columns of each group as rows."""
    return tensor.transpose((0, 2, 1))


def lines(operand: Tensor) -> list[Tensor]:
    """Each group's elements."""
    return [operand[number].flatten() for number in range(operand.shape[0])]


def scratch(graph: Graph, shape: tuple[int, ...], name: str, dtype: ElementType) -> Tensor:
    """A new variable, row-major; the machine knows nothing of it."""
    return graph.variable(dtype, shape, name=f"{name}/host", map="linear")


class Paneled(NamedTuple):
    """A dense operand in panels.

    Attributes:
        tensor: Elements of each group [groups, elements].
        stride: Elements from row to row in a panel.
        last: The same in the last panel.
        jump: Elements from panel to panel.
        steps: Steps that bring it there.
    """

    tensor: Tensor
    stride: int
    last: int
    jump: int
    steps: Sequence


def in_panels(graph: Graph, x: Tensor, panels: Panels, name: str, *, packed: bool = False) -> Paneled:
    """A tensor [groups, rows, columns] in panels of f32.

    Args:
        graph: Graph of the steps and of scratch memory.
        x: The tensor.
        panels: The panels.
        name: Name of the steps.
        packed: True if a panel may not lie in longer rows.
    """
    groups, rows, columns = x.shape
    is_there = columns == panels.width == panels.columns if packed else columns == panels.columns <= MOST_STRIDE
    if is_there and x.dtype == f32 and is_near(x):
        return Paneled(x.reshape((groups, x.size // groups)), columns, columns, panels.width, Sequence())
    across = not is_near(x) and is_near(turned(x))
    given, steps = (turned(x), Sequence()) if across else brought_near(graph, x, name)
    made = scratch(graph, (groups, rows * panels.columns), name, f32)
    steps.add(_packed(graph, given, made, panels, name, across=across))
    return Paneled(made, panels.width, panels.rest, rows * panels.width, steps)


def _packed(graph: Graph, x: Tensor, made: Tensor, panels: Panels, name: str, *, across: bool) -> Execute:
    """The step that fills panels, each in parts of some rows."""
    groups, rows = x.shape[0], x.shape[2 if across else 1]
    columns = x.shape[1 if across else 2]
    step = graph.compute_set(f"{name}/host_pack")
    each = num_shares(groups * (panels.whole + (panels.rest > 0)))
    # Parts begin at whole strips.
    cuts = sorted({min(rows, -(-rows * part // each // EDGE) * EDGE) for part in range(each)} | {0, rows})
    parts = list(pairwise(cuts))
    sources, targets = lines(x), lines(made)
    codelet = pack_across_codelet if across else pack_codelet
    kinds = [(panels.width, panels.width, range(panels.whole))] * (panels.whole > 0)
    kinds += [(panels.rest, panels.there, range(panels.whole, panels.whole + 1))] * (panels.rest > 0)
    for width, there, which in kinds:
        units = [(g, p, begin, end) for g in range(groups) for p in which for begin, end in parts]
        first = [p * rows * panels.width for _, p, _, _ in units]
        fields: dict[str, Any] = {"columns": columns}
        if across:
            fields = {"rows": rows, "buffer": scratch(graph, (len(units), BUFFER), name, f32)}
        step.vertices(
            codelet(x.dtype, width, there),
            tile=np.zeros(len(units), np.int32),
            cycles=np.zeros(len(units), np.int64),
            x=[sources[g] for g, _, _, _ in units],
            out=[targets[g][f + u[0] * width : f + u[1] * width] for f, (g, _, *u) in zip(first, units, strict=True)],
            row=np.array([begin for _, _, begin, _ in units]),
            column=np.array([p * panels.width for _, p, _, _ in units]),
            **fields,
        )
    return Execute(step)


def brought_near(graph: Graph, tensor: Tensor, name: str) -> tuple[Tensor, Sequence]:
    """A tensor [groups, rows, columns] in one stretch, and the steps that bring it there."""
    if is_near(tensor):
        return tensor, Sequence()
    made = scratch(graph, tensor.shape, name, tensor.dtype)
    return made, Sequence(moved(graph, tensor, made, name))


def moved(graph: Graph, source: Tensor, target: Tensor, name: str) -> Execute:
    """The step that copies a tensor [groups, rows, columns] to another; one of them is in one stretch."""
    step = graph.compute_set(f"{name}/host_move")
    if source.dtype == target.dtype and is_near(source) and is_near(turned(target)):
        _transpose(step, source, turned(target))
    elif source.dtype == target.dtype and is_near(target) and is_near(turned(source)):
        _transpose(step, turned(source), target)
    else:
        rows = source.shape[0] * source.shape[1]
        step.vertices(
            copy_codelet(source.dtype, target.dtype),
            tile=np.zeros(rows, np.int32),
            cycles=np.zeros(rows, np.int64),
            x=source.reshape((rows, source.shape[2])),
            out=target.reshape((rows, target.shape[2])),
        )
    return Execute(step)


def _transpose(step: Any, source: Tensor, target: Tensor) -> None:
    """Vertices that turn [groups, rows, columns] into [groups, columns, rows], each some of the columns."""
    groups, rows, columns = source.shape
    each = num_shares(groups)
    cuts = sorted({min(columns, -(-columns * part // each // EDGE) * EDGE) for part in range(each)} | {0, columns})
    units = [(g, begin, end) for g in range(groups) for begin, end in pairwise(cuts)]
    sources, targets = lines(source), lines(target)
    step.vertices(
        transpose_codelet(source.dtype),
        tile=np.zeros(len(units), np.int32),
        cycles=np.zeros(len(units), np.int64),
        x=[sources[g] for g, _, _ in units],
        out=[targets[g][begin * rows : end * rows] for g, begin, end in units],
        buffer=scratch(step.graph, (len(units), BUFFER), step.name, source.dtype),
        rows=rows,
        column=np.array([begin for _, begin, _ in units]),
    )
