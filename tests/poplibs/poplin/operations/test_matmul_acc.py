"""Products that are added onto a sum where partial sums are added up."""

from __future__ import annotations

import numpy as np
import pytest

from abele.compiler import Executable, compile_program
from abele.graph import Execute, Graph, Tensor, walk
from abele.graph.program import Sequence
from abele.machine import systems
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from poplibs.poplin.support import run_body, system
from support.engines import run_once

TOLERANCE = {f32: 1e-5, f16: 4e-3}


class Sum:
    """c + scale · (a @ b), of matrices whose rows are summed, as in the gradient of weights."""

    def __init__(
        self, *, in_place: bool, total: ElementType = f32, dtype: ElementType = f32, scale: float = 1.0, tiles: int = 64
    ) -> None:
        self.graph, self.prog = Graph(system(tiles)), Sequence()
        self.a = self.graph.variable(dtype, (96, 64), "a").map_linear()
        self.b = self.graph.variable(dtype, (96, 32), "b").map_linear()
        weights = poplin.create_matmul_input_rhs(self.graph, total, (96, 64), (64, 32), name="c")
        self.c: Tensor = weights
        poplin.matmul_acc(
            self.graph,
            self.c,
            scale,
            self.a.T,
            self.b,
            self.prog,
            in_place=in_place,
            product_type=dtype,
            partials_type=dtype,
        )
        rng = np.random.default_rng(1)
        self.values = {t: rng.standard_normal(t.shape).astype(t.dtype.np) for t in (self.a, self.b, self.c)}
        a, b, c = (self.values[t].astype(np.float64) for t in (self.a, self.b, self.c))
        self.wanted = c + scale * (a.T @ b)

    def on_tiles(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """The sum that every vertex makes on its tile."""
        return run_body(self.graph, self.prog, self.values, self.c)[0]

    def on_host(self) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """The sum that host kernels make."""
        return np.asarray(run_once(self.graph, self.prog, self.values, mode="native")[self.c], np.float64)

    def compiled(self) -> Executable:
        """The program, compiled."""
        return compile_program(self.graph, self.prog)

    @property
    def codelets(self) -> list[str]:
        """Names of the vertices, in order."""
        return [g.codelet.name for s in walk(self.prog) if isinstance(s, Execute) for g in s.compute_set.groups]


@pytest.mark.parametrize("tiles", [1, 64])
@pytest.mark.parametrize(("total", "dtype"), [(f32, f32), (f16, f16), (f32, f16)])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_matmul_acc__in_place__adds_what_numpy_adds(
    tiles: int, total: ElementType, dtype: ElementType, scale: float
) -> None:
    made = Sum(in_place=True, total=total, dtype=dtype, scale=scale, tiles=tiles)
    for found in (made.on_tiles(), made.on_host()):
        np.testing.assert_allclose(found, made.wanted, rtol=TOLERANCE[dtype], atol=20 * TOLERANCE[dtype])


@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize(("total", "dtype"), [(f32, f32), (f16, f16), (f32, f16)])
def test_matmul_acc__in_place__gives_the_bits_of_a_product_and_a_sum(
    total: ElementType, dtype: ElementType, scale: float
) -> None:
    apart, together = (Sum(in_place=p, total=total, dtype=dtype, scale=scale).on_tiles() for p in (False, True))
    np.testing.assert_array_equal(together, apart)


def test_matmul_acc__in_place__makes_no_tensor_of_the_product() -> None:
    apart, together = (Sum(in_place=p) for p in (False, True))
    assert together.codelets[-1] == "ReduceOnto"
    assert len(together.codelets) == len(apart.codelets) - 1
    made = [v for v in together.graph.variables if v.size == together.c.size]
    assert made == list(together.c.variables)
    assert together.compiled().report.total_cycles < apart.compiled().report.total_cycles


@pytest.mark.parametrize(("total", "dtype"), [(f32, f32), (f16, f16)])
def test_matmul_acc__serial_parts_of_a_sum_that_lies_row_by_row__few_tiles_get_no_partials(
    total: ElementType, dtype: ElementType
) -> None:
    # Rows of the sum lie tile by tile, so that a part of them is on a quarter of the tiles or less.
    small = systems.get("bow").evolve(ipu={"num_tiles": 16})
    graph, prog = Graph(small), Sequence()
    a = graph.variable(dtype, (512, 1024), "a").map_linear()
    b = graph.variable(dtype, (512, 64), "b").map_linear()
    c = graph.variable(total, (1024, 64), "c").map_linear()
    poplin.matmul_acc(graph, c, 1.0, a.T, b, prog, in_place=True, available_memory_proportion=0.05, partials_type=dtype)
    rng = np.random.default_rng(2)
    values = {t: rng.standard_normal(t.shape).astype(t.dtype.np) for t in (a, b, c)}
    (found,) = run_body(graph, prog, values, c)
    wanted = values[c].astype(np.float64) + values[a].astype(np.float64).T @ values[b].astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE[dtype], atol=100 * TOLERANCE[dtype])
    executable = compile_program(graph, prog)
    # A part of the product is moved as such: all of the sum's partials on the tiles that hold it would be a megabyte.
    assert executable.memory.step_max_bytes.max() < 0.3 * small.ipu.tile.total_bytes


def test_matmul_acc__scale_of_a_tensor__makes_the_product_first() -> None:
    graph, prog = Graph(system(4)), Sequence()
    a, b, c = (graph.variable(f32, (16, 16), n).map_linear() for n in "abc")
    scale = graph.variable(f32, (), "scale").map(0)
    poplin.matmul_acc(graph, c, scale, a, b, prog, in_place=True)
    names = [g.codelet.name for s in walk(prog) if isinstance(s, Execute) for g in s.compute_set.groups]
    assert "ReduceOnto" not in names
