"""Softmax over the held blocks of each row, and its gradient.

What is not held, or hidden by a mask, counts as minus infinity: it takes no part in a row's sum. A row in which all is
hidden, or minus infinity, becomes zeros, not NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence as Program
from abele.graph.program import Steps
from abele.graph.vertices import StateData
from abele.numerics import f32
from abele.poplibs.popsparse.experimental.block_rows import BlockRows
from abele.poplibs.popsparse.experimental.codelets import (
    gradient_cycles,
    host_gradient_codelet,
    host_softmax_codelet,
    softmax_codelet,
    softmax_cycles,
    softmax_gradient_codelet,
)
from abele.poplibs.popsparse.experimental.params import SubBlockMask, mask_pattern
from abele.poplibs.popsparse.host.dense import brought_near, moved, scratch
from abele.poplibs.poputil.host_body import note_host
from abele.sparsity import Pattern

Mask = Pattern | npt.NDArray[np.bool_] | npt.NDArray[np.uint8] | Sequence[int] | bytes


def bs_softmax(
    graph: Graph,
    tensor: Tensor,
    dim: tuple[int, int],
    block_size: tuple[int, int],
    sparsity: Mask,
    prog: Steps,
    *,
    sub_block_mask: SubBlockMask | str = SubBlockMask.NONE,
    groups: int = 1,
    name: str = "bs_softmax",
) -> Tensor:
    """Softmax of each row over its held blocks, as a new tensor.

    Args:
        graph: The graph.
        tensor: Held blocks [blocks, area], f16 or f32.
        dim: Rows and columns of a group's matrix.
        block_size: Rows and columns of a block.
        sparsity: Bytes for all blocks, groups after each other, or a pattern of the stacked groups.
        prog: Program that the call is appended to.
        sub_block_mask: Elements of held blocks that count as minus infinity, and become zero.
        groups: Matrices that are stacked along rows.
        name: Name of the call.

    Raises:
        SparsePatternError: A mask that does not fit the extents.
        TensorError: A tensor of another shape.
        TypeMismatchError: Its elements are neither f16 nor f32.
    """
    rows = _rows_of(name, dim, block_size, sparsity, sub_block_mask, groups)
    rows.check(name, tensor)
    out = rows.new_blocks(graph, tensor, f"{name}/out")
    call = graph.library_call(
        prog, "popsparse.bs_softmax", inputs=(tensor,), outputs=(out,), flops=4 * out.size, debug_name=name
    )
    with call as body:
        rows.emit(graph, body, partial(softmax_codelet, out.dtype, False), softmax_cycles(out.dtype), out, x=tensor)
    note_host(prog, _host_softmax(graph, rows, tensor, out, name))
    return out


def bs_softmax_in_place(
    graph: Graph,
    tensor: Tensor,
    dim: tuple[int, int],
    block_size: tuple[int, int],
    sparsity: Mask,
    prog: Steps,
    *,
    sub_block_mask: SubBlockMask | str = SubBlockMask.NONE,
    groups: int = 1,
    name: str = "bs_softmax",
) -> None:
    """Overwrite held blocks with their :func:`bs_softmax`.

    Raises:
        ConstantWriteError: The tensor cannot be written.
        As :func:`bs_softmax`.
    """
    rows = _rows_of(name, dim, block_size, sparsity, sub_block_mask, groups)
    rows.check(name, tensor)
    call = graph.library_call(
        prog,
        "popsparse.bs_softmax_in_place",
        inputs=(tensor,),
        outputs=(tensor,),
        flops=4 * tensor.size,
        debug_name=name,
    )
    with call as body:
        rows.emit(graph, body, partial(softmax_codelet, tensor.dtype, True), softmax_cycles(tensor.dtype), tensor)
    note_host(prog, _host_softmax(graph, rows, tensor, tensor, name))


def bs_softmax_grad(
    graph: Graph,
    sparse_out: Tensor,
    sparse_out_grad: Tensor,
    dim: tuple[int, int],
    block_size: tuple[int, int],
    sparsity: Mask,
    prog: Steps,
    *,
    sub_block_mask: SubBlockMask | str = SubBlockMask.NONE,
    groups: int = 1,
    name: str = "bs_softmax_grad",
) -> Tensor:
    """Gradient by the softmax's input: y · (g − Σ g · y) over the held blocks of each row; zeros where a mask hides.

    Args:
        graph: The graph.
        sparse_out: Result y of the softmax, [blocks, area].
        sparse_out_grad: Gradient g by it, of the same shape and type.
        dim: Rows and columns of a group's matrix.
        block_size: Rows and columns of a block.
        sparsity: As for the softmax.
        prog: Program that the call is appended to.
        sub_block_mask: As for the softmax.
        groups: As for the softmax.
        name: Name of the call.

    Raises:
        As :func:`bs_softmax`.
    """
    rows = _rows_of(name, dim, block_size, sparsity, sub_block_mask, groups)
    for tensor in (sparse_out, sparse_out_grad):
        rows.check(name, tensor)
    if sparse_out.dtype != sparse_out_grad.dtype:
        raise TypeMismatchError(f"{name}: {sparse_out!r} and {sparse_out_grad!r} are not of one type")
    out = rows.new_blocks(graph, sparse_out, f"{name}/out")
    call = graph.library_call(
        prog,
        "popsparse.bs_softmax_grad",
        inputs=(sparse_out, sparse_out_grad),
        outputs=(out,),
        flops=4 * out.size,
        debug_name=name,
    )
    with call as body:
        codelet = partial(softmax_gradient_codelet, out.dtype)
        rows.emit(graph, body, codelet, gradient_cycles(out.dtype), out, y=sparse_out, g=sparse_out_grad)
    note_host(prog, _host_gradient(graph, rows, sparse_out, sparse_out_grad, out, name))
    return out


def _rows_of(
    name: str,
    dim: tuple[int, int],
    block_size: tuple[int, int],
    sparsity: Mask,
    mask: SubBlockMask | str,
    groups: int,
) -> BlockRows:
    if groups < 1:
        raise TensorError(f"{name}: there is at least one group, got {groups}")
    shape, block = (int(dim[0]), int(dim[1])), (int(block_size[0]), int(block_size[1]))
    return BlockRows(mask_pattern(name, sparsity, shape, block, groups), groups, SubBlockMask.of(mask))


def _near(graph: Graph, tensor: Tensor, steps: Program, name: str) -> Tensor:
    """The tensor in one stretch."""
    made, before = brought_near(graph, tensor.expand_dims(0), name)
    steps.add(before)
    return made[0] if before.steps else tensor


def _host_softmax(graph: Graph, rows: BlockRows, x: Tensor, out: Tensor, name: str) -> Program:
    steps, (held, begin) = Program(), rows.held
    if not len(held):
        return steps
    per_group = rows.pattern.grid[0] // rows.groups
    step = graph.compute_set(f"{name}/host_rows")
    given = _near(graph, x, steps, name)
    in_place = x is out
    made = given if in_place else out
    most = int(np.diff(begin).max()) * rows.pattern.block[1]
    fields: dict[str, Any] = {} if in_place else {"x": rows.stretches(given)}
    step.vertices(
        host_softmax_codelet(out.dtype, rows.pattern.block, rows.mask, in_place),
        tile=np.zeros(len(held), np.int32),
        cycles=np.zeros(len(held), np.int64),
        out=rows.stretches(made),
        s=scratch(graph, (len(held), most), name, f32),
        across=StateData(rows.pattern.columns.astype(np.int32), begin),
        down=held % per_group,
        **fields,
    )
    steps.add(Execute(step))
    if made is not out:
        steps.add(moved(graph, made.expand_dims(0), out.expand_dims(0), name))
    return steps


def _host_gradient(graph: Graph, rows: BlockRows, y: Tensor, g: Tensor, out: Tensor, name: str) -> Program:
    steps, (held, _) = Program(), rows.held
    if not len(held):
        return steps
    step = graph.compute_set(f"{name}/host_rows")
    step.vertices(
        host_gradient_codelet(out.dtype, rows.pattern.block),
        tile=np.zeros(len(held), np.int32),
        cycles=np.zeros(len(held), np.int64),
        y=rows.stretches(_near(graph, y, steps, name)),
        g=rows.stretches(_near(graph, g, steps, name)),
        out=rows.stretches(out),
    )
    steps.add(Execute(step))
    return steps
