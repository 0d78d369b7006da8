"""Library calls of products with sparse matrices.

The machine runs popsparse's functions. They are wired for one direction, so that the product with the transpose is one
with the transposed pattern, whose values are a permutation that is compiled in. The host has kernels for all passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from abele.arrays import Int64
from abele.errors import PatternMismatchError
from abele.graph import (
    AssumeEqualAcrossReplicas,
    Copy,
    Graph,
    If,
    Program,
    RepeatWhile,
    Sequence,
    Steps,
    Tensor,
    concat,
)
from abele.graph.gather import gathered
from abele.machine import systems
from abele.network.ops.sparse_slots import GRAIN, SlotPlan
from abele.numerics import ElementType, f16, f32, u16
from abele.poplibs import poplin, popops
from abele.poplibs.poplin.contraction.host_kernel import UNSCALED, Scaling
from abele.poplibs.poplin.operations.float8 import multiplies_quarters, scaling_of
from abele.poplibs.popops.expr import Cast, Const, _1, _2
from abele.poplibs.popsparse import dynamic, experimental, static_
from abele.poplibs.popsparse.dynamic.fully_connected import (
    create_fully_connected_weights,
    fully_connected_fwd,
    fully_connected_grad_a,
    fully_connected_sparse_grad_w,
)
from abele.poplibs.popsparse.dynamic.tensors import DynamicSparseTensor
from abele.poplibs.popsparse.experimental.matmul import bs_mat_mul
from abele.poplibs.popsparse.float8 import check_chip, result_type, scaled_for_host
from abele.poplibs.popsparse.host import host_product, host_sampled_product
from abele.poplibs.popsparse.static_.layout import new_dense, new_values
from abele.poplibs.popsparse.static_.lowering import build
from abele.poplibs.popsparse.static_.params import BLOCKS, StaticOptions
from abele.poplibs.popsparse.static_.sparse_tensor import StaticLayouts
from abele.poplibs.poputil.host_body import note_host
from abele.sparsity import Pattern

OPTIONS = StaticOptions()

LARGEST_DENSE = 0.1
"""Share of an IPU's memory up to which a sampled product is taken from a dense one.

Matrix units make all of a 1024 x 1024 product of 32 rows in 3,229 cycles, vertices a tenth of it in 33,000.
Source: measured here, Bow IPU, f16.
"""


def sparse_product(
    graph: Graph,
    values: Tensor,
    dense: Tensor,
    pattern: Pattern,
    prog: Steps,
    *,
    transposed: bool,
    scale: int | Tensor = 0,
    throws: bool = True,
    converts: bool = False,
) -> Tensor:
    """S · dense, or Sᵀ · dense, for values [blocks, *block] and dense [k, n].

    8-bit floats are multiplied by 2^``scale`` besides, on chips that multiply them or with ``converts`` in halves.
    """
    scaling = UNSCALED
    if dense.dtype.is_quarter:
        scaling = _scaling(graph, scale, prog, throws=throws)
        values, dense = _multiplied_as("sparse_matmul", graph, (values, dense), prog, converts=converts)
    pattern, values = _for_device(pattern, values)
    rows, columns = pattern.shape[1 if transposed else 0], dense.shape[1]
    out = graph.map_linear(graph.variable(result_type(dense.dtype), (rows, columns), name="product"))
    flops = 2 * pattern.num_values * columns
    call = graph.library_call(
        prog,
        "popsparse.static_.sparse_matmul",
        inputs=(values, dense, *scaling.tensors),
        outputs=(out,),
        flops=flops,
    )
    planned, flat = pattern, values.flatten()
    if transposed:
        planned, places = transposed_values(pattern)
        flat = gathered(flat, places, np.ones(len(places), np.int64))
    with call as body:
        build(graph, body, _layouts(graph, dense.dtype, planned, columns).layout, flat, dense, out, scaling=scaling)
    scaled, first = scaled_for_host(graph, dense, scaling, "sparse_matmul")
    product = host_product(graph, pattern, values, scaled, out, name="sparse_matmul", transposed=transposed)
    note_host(prog, Sequence(first, product) if scaling.kind else product)
    return out


def _scaling(graph: Graph, scale: int | Tensor, prog: Steps, *, throws: bool) -> Scaling:
    return scaling_of(graph, "sparse_matmul", [scale], prog, throws=throws)


def _multiplied_as(
    name: str, graph: Graph, operands: tuple[Tensor, Tensor], prog: Steps, *, converts: bool
) -> tuple[Tensor, Tensor]:
    """8-bit operands as a chip multiplies them: as they are, or as halves, which have all of their numbers."""
    if multiplies_quarters(graph.system) or not converts:
        check_chip(name, operands[0].dtype, graph.system)
        return operands
    a, b = (popops.cast(graph, t, f16, prog, f"{name}/cast") for t in operands)
    return a, b


def sampled_quarters(
    graph: Graph,
    a: Tensor,
    b: Tensor,
    pattern: Pattern,
    prog: Steps,
    *,
    scale: int | Tensor,
    throws: bool,
    converts: bool,
) -> Tensor:
    """a · bᵀ · 2^``scale`` of 8-bit floats at the places of a pattern, [blocks, *block], on the matrix units.

    Sums go over whole words of 8-bit floats: zeros fill up the last.
    """
    missing = -a.shape[1] % _WORD
    if missing:
        zeros = [graph.map_linear(graph.constant(t.dtype, (t.shape[0], missing), 0.0)) for t in (a, b)]
        a, b = (concat([t, z], 1) for t, z in zip((a, b), zeros, strict=True))
    name, (m, k), n, (high, wide) = "sampled_matmul", pattern.shape, a.shape[1], pattern.block
    a, b = _multiplied_as(name, graph, (a, b), prog, converts=converts)
    sizes = (m, n, k), (high, _WORD, wide), pattern
    if a.dtype.is_quarter:
        params = experimental.BSMatMulParams(*sizes, a.dtype, f16, f16)
        made = bs_mat_mul(graph, params, a, b.T, prog, scales=(scale, None), throws=throws, name=name)
    else:
        # Halves have no scale: sums in f32 are multiplied, and rounded once.
        params = experimental.BSMatMulParams(*sizes, f16, f32, f32)
        made = bs_mat_mul(graph, params, a, b.T, prog, name=name)
        scaling = _scaling(graph, scale, prog, throws=throws)
        factor = _2 if scaling.tensors else Const(2.0**scaling.log2)
        made = popops.map(graph, Cast(_1 * factor, f16), [made, *scaling.tensors], prog, f"{name}/scale")
    return made.reshape((pattern.num_blocks, high, wide))


_WORD = 8
"""8-bit floats of a sum that the matrix units take at a time. Source: machine.md §1.3."""


def new_sparse_values(graph: Graph, dtype: ElementType, pattern: Pattern, columns: int, name: str) -> Tensor | None:
    """Values [blocks, *block] where products with dense columns are made; None for blocks without vertex."""
    edge = vertex_edge(pattern.block)
    if pattern.block != (edge, edge):
        return None
    made = new_values(graph, _layouts(graph, dtype, pattern, columns).layout, name)
    return made.reshape((pattern.num_blocks, *pattern.block))


def new_dense_rows(
    graph: Graph, dtype: ElementType, pattern: Pattern, columns: int, name: str, *, transposed: bool
) -> Tensor:
    """A dense operand [k, n], or [m, n] of the product with the transpose, as products lay it out."""
    edge = vertex_edge(pattern.block)
    finer = pattern if pattern.block == (edge, edge) else pattern.recut((edge, edge))[0]
    planned = finer.transposed()[0] if transposed else finer
    return new_dense(graph, _layouts(graph, dtype, planned, columns).layout, name)


def _layouts(graph: Graph, dtype: ElementType, pattern: Pattern, columns: int) -> StaticLayouts:
    params = static_.MatMulParams.createForSparseDense(1, *pattern.shape, columns)
    return StaticLayouts.find("sparse_matmul", graph, dtype, params=params, matrix=pattern, options=OPTIONS, cache=None)


def sampled_product(graph: Graph, a: Tensor, b: Tensor, pattern: Pattern, prog: Steps) -> Tensor:
    """a · bᵀ at the places of a pattern, [blocks, *block]."""
    out = graph.map_linear(graph.variable(a.dtype, (pattern.num_blocks, *pattern.block), name="sampled"))
    flops = 2 * pattern.num_values * a.shape[1]
    call = graph.library_call(prog, "popsparse.static_.sampled_matmul", inputs=(a, b), outputs=(out,), flops=flops)
    ipu, size = graph.system.ipu, pattern.shape[0] * pattern.shape[1] * a.dtype.bytes
    sampled = _taken if size <= LARGEST_DENSE * ipu.num_tiles * ipu.tile.usable_bytes else _sampled
    with call as body:
        body.add(Copy(sampled(graph, a, b, pattern, body).reshape(out.shape), out))
    note_host(prog, host_sampled_product(graph, pattern, a, b, out, name="sampled_matmul"))
    return out


def transposed_values(pattern: Pattern) -> tuple[Pattern, Int64]:
    """The transpose's pattern, and the place of each of its values in the pattern's flat values, int64[values]."""
    other, order = pattern.transposed()
    places = np.arange(pattern.num_values).reshape((pattern.num_blocks, *pattern.block))
    return other, places[order].transpose((0, 2, 1)).reshape(-1)


def vertex_edge(block: tuple[int, int]) -> int:
    """Edge of the largest square block with a vertex that divides a block."""
    return max(edge for edge in BLOCKS if block[0] % edge == block[1] % edge == 0)


def _for_device(pattern: Pattern, values: Tensor) -> tuple[Pattern, Tensor]:
    """Pattern and values in blocks that have a vertex."""
    edge = vertex_edge(pattern.block)
    if pattern.block == (edge, edge):
        return pattern, values
    finer, order = pattern.recut((edge, edge))
    flat = gathered(values.flatten(), order.reshape(-1), np.ones(order.size, np.int64))
    return finer, flat.reshape(order.shape)


def _taken(graph: Graph, a: Tensor, b: Tensor, pattern: Pattern, prog: Steps) -> Tensor:
    """The pattern's places of the dense product, in its order."""
    every = np.arange(pattern.shape[0] * pattern.shape[1]).reshape(pattern.shape)
    places = pattern.values_of(every).reshape(-1)
    return gathered(poplin.matmul(graph, a, b.T, prog).flatten(), places, np.ones(len(places), np.int64))


def _sampled(graph: Graph, a: Tensor, b: Tensor, pattern: Pattern, prog: Steps) -> Tensor:
    """The gradient of a dynamic layer's weights for one pattern, whose meta-info is a constant, in its order."""
    columns = a.shape[1]
    missing = -columns % GRAIN
    if missing:
        a, b = (concat([t, graph.map_linear(graph.constant(t.dtype, (t.shape[0], missing), 0.0))], 1) for t in (a, b))
    plan = SlotPlan(pattern.shape, pattern.block, pattern.num_blocks, columns + missing, a.dtype.name)
    placement = dynamic.Partitioner(plan.params, a.dtype, graph, plan.options).place(pattern)
    words = _constant_words(graph, placement)
    slots = fully_connected_sparse_grad_w(graph, words, a.T, b.T, plan.params, prog, options=plan.options)
    return gathered(slots, placement.slots, np.ones(len(placement.slots), np.int64))


def _constant_words(graph: Graph, placement: dynamic.Placement) -> Tensor:
    """The meta-info of one pattern, each tile with its own buckets."""
    plan, words = placement.plan, placement.meta
    begin = plan.info_slots
    parts = [graph.map_linear(graph.constant(u16, (begin,), words[:begin], name="overflow"))]
    for each in filter(None, (plan.meta_slots, plan.grad_a_slots)):
        end = begin + plan.num_tiles * each
        rows = words[begin:end].reshape((plan.num_tiles, each))
        made = graph.constant(u16, rows.shape, rows, name="metaInfo")
        parts.append(graph.map_rows(made, list(range(plan.num_tiles))).flatten())
        begin = end
    return concat(parts)


def new_slots(graph: Graph, dtype: ElementType, plan: SlotPlan, name: str) -> tuple[Tensor, Tensor]:
    """Words and slots of a matrix whose pattern is told, where its products are made.

    Raises:
        PatternMismatchError: The plan is for another machine.
    """
    wanted = systems.resolve(plan.system).ipu
    if graph.system.ipu != wanted:
        raise PatternMismatchError(
            f"a layer whose pattern changes was planned for {plan.system}, and is compiled for {graph.system.name}",
            because=f"slots are spread over {wanted.num_tiles:,} tiles there, {graph.system.ipu.num_tiles:,} here",
            remedy=f"make the layer with system={graph.system.name!r}",
        )
    made = create_fully_connected_weights(graph, dtype, plan.params, name, options=plan.options)
    return made.metaInfo, made.nzValues


def dynamic_product(
    graph: Graph, words: Tensor, slots: Tensor, rows: Tensor, plan: SlotPlan, prog: Steps, *, transposed: bool
) -> Tensor:
    """rows · Sᵀ, or rows · S."""
    weights = DynamicSparseTensor(words, slots)
    function = fully_connected_grad_a if transposed else fully_connected_fwd
    with _alike(prog) as steps:
        return function(graph, weights, rows, plan.params, steps, options=plan.options)


def dynamic_sampled_product(
    graph: Graph, words: Tensor, grad: Tensor, rows: Tensor, plan: SlotPlan, prog: Steps
) -> Tensor:
    """Slots of gradᵀ · rows."""
    with _alike(prog) as steps:
        return fully_connected_sparse_grad_w(graph, words, grad, rows, plan.params, steps, options=plan.options)


@contextmanager
def _alike(prog: Steps) -> Iterator[Sequence]:
    """Steps that are appended to ``prog``; loops and branches in them go the same way in all replicas.

    They depend on words alone, which all replicas begin with and no run changes.
    """
    steps = Sequence()
    yield steps
    waiting: list[Program] = [steps]
    while waiting:
        step = waiting.pop()
        if isinstance(step, (If, RepeatWhile)):
            prog.add(AssumeEqualAcrossReplicas(step.reads()[0]))
        waiting.extend(step.children())
    prog.add(steps)
