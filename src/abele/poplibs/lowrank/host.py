"""A product as a host runs it: the same sums with few vertices, whose operands lie in one stretch of memory.

A block column's V rows are contiguous, and so are the products that they make. Shares of U columns stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.graph import Execute, Graph, Regions, Sequence, Tensor
from abele.numerics import f32
from abele.poplibs.lowrank.codelets import host_sums_codelet, products_codelet
from abele.poplibs.lowrank.operator import stretches, stride_of
from abele.poplibs.lowrank.steps import LowRankSteps


def host_steps(product: LowRankSteps) -> Sequence:
    """Steps that a host runs: a vertex for each block column, each share of U columns and each part of a block row."""
    operator, right, left = product.operator, product.operator.right, product.operator.left
    z = product.variable("z/host", operator.dtype, len(right.source), map="linear")
    heights = left.height[left.shares.item]
    partials = product.variable("partials/host", f32, int(heights.sum()), map="linear")
    steps = Sequence()
    rows = np.diff(np.append(right.starts, len(right.source)))
    width = operator.matrix.widths[right.column]
    stride = stride_of(width, operator.dtype)
    if len(rows):
        length = rows * stride
        steps.add(
            _step(
                product.graph,
                products_codelet(operator.dtype, operator.dtype),
                m=stretches(operator.v, np.cumsum(length) - length, length),
                x=product.pieces_of_x,
                out=stretches(z, right.starts * product.batch, rows * product.batch),
                rows=rows,
                columns=width,
                stride=stride,
                batch=product.batch,
            )
        )
    if left.shares.num:
        operands = product.operands(z, right.starts * product.batch, right.starts, rows)
        fields = product.left_fields(partials, operands)
        steps.add(_step(product.graph, products_codelet(operator.dtype, f32), **fields))
    steps.add(_sums(product, partials, heights))
    return steps


def _sums(product: LowRankSteps, partials: Tensor, heights: Int64) -> Execute:
    start, height = product.rows_of_y
    item = product.part_of[product.operator.left.shares.item]
    order = np.argsort(item, kind="stable")
    base = int(partials.intervals()[0][0]) if partials.size else 0
    begin = base + ((np.cumsum(heights) - heights) * product.batch)[order]
    given = partials if partials.size else product.variable("none", f32, 1, map="linear")
    total = product.variable("total/host", f32, int(height.sum()), map="linear")
    each = np.tile(np.arange(product.batch), len(height))
    rows = np.repeat(start, product.batch) + each * product.y.shape[1]
    num = len(height)
    return _step(
        product.graph,
        host_sums_codelet(product.y.dtype),
        x=Regions.from_intervals(given, item[order], begin, heights[order] * product.batch, num),
        total=stretches(total, (np.cumsum(height) - height) * product.batch, height * product.batch),
        out=(
            stretches(product.y, rows, np.repeat(height, product.batch)),
            np.arange(len(rows)),
            np.arange(num + 1) * product.batch,
        ),
    )


def _step(graph: Graph, codelet: type, **fields: Any) -> Execute:
    num = next(f.num for f in fields.values() if isinstance(f, Regions))
    cs = graph.compute_set("host")
    cs.vertices(codelet, tile=np.zeros(num, np.int32), cycles=np.zeros(num, np.int64), **fields)
    return Execute(cs)
