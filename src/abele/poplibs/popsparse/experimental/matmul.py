"""Products with a right operand, or a result, that is held in blocks."""

from __future__ import annotations

import numpy as np

from abele.errors import TensorError, TypeMismatchError
from abele.graph import Graph, SparseNote, Tensor
from abele.graph.program import Steps
from abele.poplibs.poplin.operations.float8 import Scales, given_scales, scaling_of
from abele.poplibs.popsparse.experimental.host import host_block_product
from abele.poplibs.popsparse.experimental.operands import new_left, new_result, new_right
from abele.poplibs.popsparse.experimental.params import BlockProductOptions, BSMatMulParams, SubBlockMask
from abele.poplibs.popsparse.experimental.plan import BlockPlan, plan_blocks
from abele.poplibs.popsparse.experimental.steps import emit_product
from abele.poplibs.popsparse.experimental.triangles import emit_triangle
from abele.poplibs.poputil.host_body import note_host
from abele.poplibs.poputil.options import Options


def block_plan(graph: Graph, params: BSMatMulParams, *, options: Options = None) -> BlockPlan:
    """The plan of a product: units, tiles, estimated cycles and temporary bytes; its text is one line.

    Raises:
        InvalidOptionError: An option or value that there is not, or several passes of several groups.
    """
    return plan_blocks(params, BlockProductOptions.read("bs_mat_mul", options, params.numGroups), graph.system)


def create_bs_mat_mul_input_lhs(
    graph: Graph, params: BSMatMulParams, *, options: Options = None, name: str = "lhs"
) -> Tensor:
    """A left operand [groups · m, k] in the order in which the product reads it.

    Raises:
        InvalidOptionError: An option or value that there is not.
    """
    BlockProductOptions.read("create_bs_mat_mul_input_lhs", options, params.numGroups)
    return new_left(graph, params, name)


def create_bs_mat_mul_input_rhs(
    graph: Graph, params: BSMatMulParams, *, options: Options = None, name: str = "rhs"
) -> Tensor:
    """A right operand: [blocks, area] of a sparse one, each block on a tile that multiplies it; else [groups · k, n].

    Raises:
        InvalidOptionError: An option or value that there is not.
    """
    read = BlockProductOptions.read("create_bs_mat_mul_input_rhs", options, params.numGroups)
    return new_right(graph, plan_blocks(params, read, graph.system), name)


def bs_mat_mul(
    graph: Graph,
    params: BSMatMulParams,
    lhs: Tensor,
    rhs: Tensor,
    prog: Steps,
    *,
    options: Options = None,
    scales: Scales = None,
    throws: bool = True,
    name: str = "bs_mat_mul",
) -> Tensor:
    """The product of each group's ``lhs`` and ``rhs``.

    Args:
        graph: The graph.
        params: Extents, blocks, mask and types.
        lhs: [groups · m, k]; any view.
        rhs: [blocks, area] of the blocks that are held, or [groups · k, n].
        prog: Program that the call is appended to.
        options: ``numberOfPass`` (1): parts of the result, made one after the other with less temporary memory; 1 with
            several groups. ``memoryCycleRatio`` (0.2): weight of memory beside cycles. ``partitionMethod`` (strip):
            ``strip``, ``stripv0``, ``block``, ``block-naive`` or ``block-group2``.
        scales: Of 8-bit floats: further scales of ``lhs`` and ``rhs``, as in :func:`~abele.poplibs.poplin.matmul`.
        throws: False for scales of tensors that are out of range to be the nearest that are not.
        name: Name of the call.

    Returns:
        [groups · m, n], zeros where no block adds anything; or the held blocks of the result, [blocks, area], in which
        the elements that ``subBlockMask`` names are zero.

    Raises:
        TensorError: An operand of another shape, or nothing is held.
        TypeMismatchError: An operand of another type; 8-bit floats on a chip that does not multiply them; scales of
            other operands.
        InvalidOptionError: An option or value that there is not, or several passes of several groups.
    """
    read = BlockProductOptions.read(name, options, params.numGroups)
    for label, tensor, shape in (("lhs", lhs, params.lhs_shape), ("rhs", rhs, params.rhs_shape)):
        if tensor.shape != shape:
            raise TensorError(
                f"{name}: {label} is {list(shape)}, got {tensor!r}", because=f"params hold {params.pattern}"
            )
        if tensor.dtype != params.inDataType and not (tensor.dtype.is_quarter and params.inDataType.is_quarter):
            raise TypeMismatchError(f"{name}: {label} is {params.inDataType} by its params, got {tensor!r}")
    plan = plan_blocks(params, read, graph.system)
    scaling = scaling_of(graph, name, given_scales(name, params.inDataType, scales), prog, throws=throws)
    storage, out = new_result(graph, params, f"{name}/out")
    call = graph.library_call(
        prog,
        "popsparse.bs_mat_mul",
        inputs=(lhs, rhs, *scaling.tensors),
        outputs=(storage,),
        flops=params.flops,
        debug_name=name,
    )
    with call as body:
        emit_product(graph, body, plan, lhs, rhs, storage, scaling=scaling)
        if params.subBlockMask is not SubBlockMask.NONE:
            emit_triangle(graph, body, params.pattern, params.numGroups, params.subBlockMask, storage)
    _note(graph, plan, out if params.isResultSparse else rhs)
    note_host(prog, host_block_product(graph, params, lhs, rhs, storage, out, name=name, scaling=scaling))
    return out


def _note(graph: Graph, plan: BlockPlan, blocks: Tensor) -> None:
    """Note the operand, or result, that is held in blocks; a block counts on each tile that multiplies it."""
    params, pattern = plan.params, plan.params.pattern
    tiles = np.concatenate([one.tile for one in plan.passes])
    tile, units = np.unique(tiles, return_counts=True)
    variables = blocks.variables
    operand = SparseNote(
        name=variables[0].name if variables else "blocks",
        library="experimental",
        dtype=blocks.dtype.name,
        shape=(pattern.shape[0] // params.numGroups, pattern.shape[1]),
        block=pattern.block,
        blocks=pattern.num_blocks,
        tile=tile,
        values=units * pattern.block[0] * pattern.block[1],
        groups=params.numGroups,
    )
    graph.note_sparse(operand)
