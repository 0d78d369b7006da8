"""Host form of dynamic sparse products and of the gradients of their values: whole calls in a few vertices."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache

from abele.codelet import Input, Output, Vector, Vertex, codelet, macro
from abele.graph import Execute, Graph, Tensor
from abele.graph.program import Sequence
from abele.numerics import f32, i64, u16
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan
from abele.poplibs.popsparse.dynamic.tensors import SparseViews
from abele.poplibs.popsparse.dynamic.walk import Walked, any_cell, each_row
from abele.poplibs.popsparse.host.sample_codelets import four_values, one_value, square
from abele.poplibs.popsparse.host.sampled import in_rows, whole_lanes
from abele.poplibs.popsparse.host.walked import Buckets, host_walked_product
from abele.poplibs.poputil.host_body import host_vertices


def host_product_steps(
    graph: Graph,
    plan: DynamicPlan,
    sparse: SparseViews,
    dense: Tensor,
    result: Tensor,
    *,
    transposed: bool,
    name: str,
) -> Sequence:
    """Steps that put S·X or Sᵀ·X into ``result`` [groups, rows, columns]."""
    groups, layer = plan.layer.numGroups, plan.layer
    most = -(-layer.numNonZeroValues // (groups * layer.sparsity.area)) * layer.sparsity.area // plan.area
    sizes = Buckets(
        plan.block, plan.cell, plan.grid, plan.header, plan.meta_slots, nz_slots=plan.nz_slots, most=max(most, 1)
    )
    meta, values = (t.reshape((groups, -1)) for t in (sparse.meta, sparse.values))
    return host_walked_product(graph, sizes, meta, values, dense, result, transposed=transposed, name=name)


@cache
def host_weights_codelet(how: Walked, columns: int, cell: tuple[int, int]) -> type:
    """Gradients of the values of one bucket; both dense matrices are row-major, rows whole vectors long."""
    dtype, high, wide, area = how.dtype, how.high, how.wide, how.area
    rows, wides = cell[0] * high, cell[1] * wide
    in_squares, single = high % 2 == 0 and wide % 2 == 0, area == 1

    @macro
    def sample(self, at, row, count, value, v):
        # Nothing is touched beyond the operands, whatever the meta-info says.
        last_row = i64(len(self.g)) // columns - high
        last_column = i64(len(self.x)) // columns - wide
        right = i64(self.meta[at + 2]) * wides
        line = min(i64(self.meta[at + 1]) * rows + i64(self.meta[row]) * high, last_row) * columns
        # Single values of a row are made four at a time, the others in squares where they can be.
        done = count // 4 * 4 if single else i64(0)
        for j in range(0, done, 4):
            x0 = min(right + i64(self.meta[row + 2 + j]), last_column) * columns
            x1 = min(right + i64(self.meta[row + 3 + j]), last_column) * columns
            x2 = min(right + i64(self.meta[row + 4 + j]), last_column) * columns
            x3 = min(right + i64(self.meta[row + 5 + j]), last_column) * columns
            t0, t1, t2, t3 = four_values(self, line, x0, x1, x2=x2, x3=x3, n=columns)
            self.out[v + j] = dtype(t0)
            self.out[v + j + 1] = dtype(t1)
            self.out[v + j + 2] = dtype(t2)
            self.out[v + j + 3] = dtype(t3)
        for j in range(done, count):
            y = min(right + i64(self.meta[row + 2 + j]) * wide, last_column) * columns
            to = v + j * area
            if in_squares:
                for down in range(0, high, 2):
                    for across in range(0, wide, 2):
                        s0, s1, s2, s3 = square(self, line + down * columns, y + across * columns, columns)
                        place = to + down * wide + across
                        self.out[place] = dtype(s0)
                        self.out[place + 1] = dtype(s1)
                        self.out[place + wide] = dtype(s2)
                        self.out[place + wide + 1] = dtype(s3)
            else:
                for down in range(high):
                    for across in range(wide):
                        total = one_value(self, line + down * columns, y + across * columns, columns)
                        self.out[to + down * wide + across] = dtype(total)

    @codelet(name="HostSparseGradW")
    class HostSparseGradW(Vertex):
        meta: Input[Vector[u16]]
        g: Input[Vector[f32]]
        x: Input[Vector[f32]]
        out: Output[Vector[dtype]]

        def compute(self):
            for i in range(i64(len(self.out))):
                self.out[i] = dtype(0.0)
            each_row(self, how, 1, any_cell, sample)

    return HostSparseGradW


def host_weights_steps(
    graph: Graph, plan: DynamicPlan, sparse: SparseViews, grad: Tensor, acts: Tensor, result: Tensor, *, name: str
) -> Sequence:
    """Steps that put the gradient of the values into ``result`` [tiles, values]."""
    groups, each = plan.layer.numGroups, plan.group_tiles
    n = whole_lanes(grad.shape[2])
    (left, first), (right, second) = in_rows(graph, grad, n, name), in_rows(graph, acts, n, name)
    how = Walked.of(plan, f32)
    step = graph.compute_set(f"{name}/host_sample")
    for group in range(groups):
        tiles = slice(group * each, (group + 1) * each)
        lines = [t[group].reshape((1, -1)).broadcast_to((each, t[group].size)) for t in (left, right)]
        fields = {"meta": sparse.meta[tiles], "g": lines[0], "x": lines[1], "out": result[tiles]}
        host_vertices(step, host_weights_codelet(how, n, plan.cell), **fields)
    return Sequence(first, second, Execute(step))
