from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import compile_program
from abele.errors import TensorError, TypeMismatchError
from abele.graph import Execute, Graph, LibraryCall, Sequence, Tensor, concat, walk
from abele.kernels.nest.reference import evaluate
from abele.machine import systems
from abele.numerics import ElementType, f16, f32, i32
from abele.poplibs import poplin
from poplibs.poplin.support import Array, run_body, system
from support.examples import examples

TOLERANCE = {f32: 1e-5, f16: 4e-3}
KINDS = st.sampled_from([(f32, f32), (f16, f32), (f16, f16)])


def variable(graph: Graph, shape: tuple[int, ...], dtype: ElementType, *, flipped: bool = False) -> Tensor:
    """A linear-mapped tensor, or the transposed view of one."""
    stored = (*shape[:-2], shape[-1], shape[-2]) if flipped else shape
    made = graph.variable(dtype, stored, name="operand").map_linear()
    return made.moveaxis(-1, -2) if flipped else made


def check(graph: Graph, prog: Sequence, a: Tensor, b: Tensor, out: Tensor) -> None:
    """Hold body and kernel of a product against NumPy in float64, with exact inputs."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(t.shape).astype(t.dtype.np).astype(np.float64) for t in (a, b)]
    wanted = values[0] @ values[1]
    (found,) = run_body(graph, prog, dict(zip((a, b), values, strict=True)), out)
    error = TOLERANCE[out.dtype] * np.sqrt(a.shape[-1])
    np.testing.assert_allclose(found, wanted, rtol=TOLERANCE[out.dtype], atol=error)
    (call,) = prog
    assert isinstance(call, LibraryCall)
    assert call.kernel is not None
    inputs: list[Array] = [values[0] if t is a else values[1] for t in call.inputs]
    (exact,) = evaluate(call.kernel, inputs, precise=True)
    np.testing.assert_allclose(exact, wanted, rtol=1e-12, atol=1e-12)
    assert out.mapping.is_complete
    assert call.flops == 2 * a.size * b.shape[-1]


@examples(8)
@given(
    m=st.integers(1, 20),
    k=st.sampled_from([1, 2, 7, 16, 24, 33, 64]),
    n=st.sampled_from([1, 3, 10, 16, 20, 32]),
    kinds=KINDS,
    flips=st.tuples(st.booleans(), st.booleans()),
    tiles=st.sampled_from([4, 64, 1472]),
)
def test_matmul__any_views__is_numpys_product(
    m: int, k: int, n: int, kinds: tuple[ElementType, ElementType], flips: tuple[bool, bool], tiles: int
) -> None:
    graph, prog = Graph(system(tiles)), Sequence()
    a, b = (variable(graph, s, kinds[0], flipped=f) for s, f in zip(((m, k), (k, n)), flips, strict=True))
    out = poplin.matmul(graph, a, b, prog, partials_type=kinds[1])
    check(graph, prog, a, b, out)


@examples(4)
@given(g=st.integers(1, 5), m=st.integers(1, 6), k=st.sampled_from([1, 5, 32]), n=st.sampled_from([1, 8, 18]))
def test_matmul_grouped__stacks__is_numpys_product(g: int, m: int, k: int, n: int) -> None:
    graph, prog = Graph(system(16)), Sequence()
    a, b = variable(graph, (g, m, k), f32), variable(graph, (g, k, n), f32, flipped=True)
    check(graph, prog, a, b, poplin.matmul_grouped(graph, a, b, prog))


def test_matmul__created_operands__are_not_arranged() -> None:
    graph, prog = Graph(system(64)), Sequence()
    a = poplin.create_matmul_input_lhs(graph, f16, (24, 96), (96, 48))
    b = poplin.create_matmul_input_rhs(graph, f16, (24, 96), (96, 48))
    check(graph, prog, a, b, poplin.matmul(graph, a, b, prog, partials_type=f16))
    assert not [c for c in graph.compute_sets if "arrange" in c.name]


def test_matmul__grouped_created_operands__are_not_arranged() -> None:
    graph, prog = Graph(system(64)), Sequence()
    shapes = (3, 8, 32), (3, 32, 20)
    a = poplin.create_matmul_input_lhs(graph, f32, *shapes)
    b = poplin.create_matmul_input_rhs(graph, f32, *shapes)
    check(graph, prog, a, b, poplin.matmul_grouped(graph, a, b, prog))
    assert not [c for c in graph.compute_sets if "arrange" in c.name]


@pytest.mark.parametrize("rows", [5, 40])
def test_matmul__like_weights__lands_on_their_tiles(rows: int) -> None:
    graph, prog = Graph(system(64)), Sequence()
    weights = poplin.create_matmul_input_rhs(graph, f32, (rows, 48), (48, 32))
    a, b = variable(graph, (rows, 48), f32).T, variable(graph, (rows, 32), f32)
    out = poplin.matmul(graph, a, b, prog, like=weights)
    check(graph, prog, a, b, out)
    assert [f for d in out.strided().factors for f in d] == [f for d in weights.strided().factors for f in d]  # type: ignore[union-attr]
    assert out.mapping.tile.tolist() == weights.mapping.tile.tolist()


def test_matmul__view_of_two_variables__is_arranged() -> None:
    graph, prog = Graph(system(16)), Sequence()
    a = concat([variable(graph, (4, 8), f32), variable(graph, (4, 24), f32)], 1)
    b = variable(graph, (32, 6), f32)
    check(graph, prog, a, b, poplin.matmul(graph, a, b, prog))


def test_matmul__output_type__is_converted_once() -> None:
    graph, prog = Graph(system(1)), Sequence()
    a, b = variable(graph, (4, 16), f16), variable(graph, (16, 4), f16)
    out = poplin.matmul(graph, a, b, prog, output_type=f32)
    assert out.dtype == f32
    check(graph, prog, a, b, out)


@pytest.mark.parametrize(("m", "n"), [(8, 256), (256, 8)])
@pytest.mark.parametrize("like", [False, True])
def test_matmul__little_memory__runs_in_serial_parts(m: int, n: int, like: bool) -> None:
    small = {"num_tiles": 4, "tile": {"total_bytes": 12_000, "plain_bytes": 4096, "executable_bytes": 4096}}
    graph, prog = Graph(systems.get("bow").evolve(ipu=small)), Sequence()
    a, b = variable(graph, (m, 48), f32), variable(graph, (48, n), f32)
    wanted = variable(graph, (m, n), f32) if like else None
    out = poplin.matmul(graph, a, b, prog, like=wanted, available_memory_proportion=0.5)
    check(graph, prog, a, b, out)
    schedule = next(iter(prog)).attributes["plan"]  # type: ignore[attr-defined]
    assert len(schedule.plans) > 1
    assert f"{len(schedule.plans)} plans one after the other, over parts of {schedule.dim}" in str(schedule)
    assert sum(plan.problem.extents[schedule.dim] for plan in schedule.plans) == max(m, n)
    assert all(plan.temporary_bytes <= 0.5 * 12_000 for plan in schedule.plans)


def test_matmul__serial_parts_of_operands_in_another_order__are_written_anew_one_by_one() -> None:
    small = {"num_tiles": 4, "tile": {"total_bytes": 12_000, "plain_bytes": 4096, "executable_bytes": 4096}}
    graph, prog = Graph(systems.get("bow").evolve(ipu=small)), Sequence()
    # Channels that are summed lie apart in the right operand, and one after the other in the left one.
    a, b = variable(graph, (8, 48), f16), variable(graph, (48, 512), f16)
    before = len(graph.variables)
    out = poplin.matmul(graph, a, b, prog, available_memory_proportion=0.4)
    check(graph, prog, a, b, out)
    (call,) = prog
    schedule = call.attributes["plan"]  # type: ignore[attr-defined]
    assert len(schedule.plans) > 1
    copies = [v.size for v in graph.variables[before:] if v.name.endswith(("/input", "/weights"))]
    assert len(copies) == len(schedule.plans)
    assert sum(copies) == b.size
    # A plan counts its part of the copy: 4 tiles hold a quarter each.
    for plan in schedule.plans:
        part = b.size * plan.problem.extents[schedule.dim] // 512
        assert plan.temporary_bytes >= part * f16.bytes // 4


@pytest.mark.parametrize(("dtype", "partials"), [(f32, f32), (f16, f32), (f16, f16)])
@pytest.mark.parametrize("like", [False, True])
def test_matmul__little_memory_for_a_long_sum__adds_parts_of_it_up(
    dtype: ElementType, partials: ElementType, like: bool
) -> None:
    small = {"num_tiles": 4, "tile": {"total_bytes": 24_000, "plain_bytes": 8192, "executable_bytes": 8192}}
    graph, prog = Graph(systems.get("bow").evolve(ipu=small)), Sequence()
    a, b = variable(graph, (32, 2048), dtype), variable(graph, (2048, 32), dtype)
    wanted = variable(graph, (32, 32), dtype) if like else None
    out = poplin.matmul(graph, a, b, prog, like=wanted, partials_type=partials, available_memory_proportion=0.5)
    check(graph, prog, a, b, out)
    schedule = next(iter(prog)).attributes["plan"]  # type: ignore[attr-defined]
    assert schedule.adds_up
    assert sum(plan.problem.in_channels for plan in schedule.plans) == 2048
    assert all(plan.temporary_bytes <= 12_000 for plan in schedule.plans)
    # Of every part the sum so far is a partial more; only the last sum has the type of the result.
    assert all(plan.problem.output == partials for plan in schedule.plans)


@pytest.mark.parametrize(("dtype", "partials"), [(f32, f32), (f16, f32), (f16, f16)])
@pytest.mark.parametrize("like", [False, True])
def test_matmul__in_halves__adds_the_second_half_where_the_first_lies(
    dtype: ElementType, partials: ElementType, like: bool
) -> None:
    needed, plans = {}, {}
    for in_halves in (False, True):
        graph, prog = Graph(system(4)), Sequence()
        a, b = variable(graph, (64, 1024), dtype), variable(graph, (1024, 128), dtype, flipped=True)
        wanted = variable(graph, (64, 128), dtype) if like else None
        out = poplin.matmul(graph, a, b, prog, partials_type=partials, like=wanted, in_halves=in_halves)
        check(graph, prog, a, b, out)
        multiplying = [s for s in walk(prog) if isinstance(s, Execute) and s.compute_set.debug.name == "partials"]
        assert len(multiplying) == 1 + in_halves
        needed[in_halves] = max(int(moving.max()) for moving in compile_program(graph, prog).memory.buffers.values())
        plans[in_halves] = next(iter(prog)).attributes["plan"]  # type: ignore[attr-defined]
    assert plans[True] == plans[False]
    assert needed[True] < 0.7 * needed[False]


def test_matmul__in_halves__leaves_products_that_move_little_or_take_short_as_they_are() -> None:
    for rows, tiles in ((64, 64), (4, 4)):
        graph, prog = Graph(system(tiles)), Sequence()
        a, b = variable(graph, (rows, 1024), f16), variable(graph, (1024, 128), f16)
        poplin.matmul(graph, a, b, prog, in_halves=True)
        multiplying = [s for s in walk(prog) if isinstance(s, Execute) and s.compute_set.debug.name == "partials"]
        assert len(multiplying) == 1


def test_matmul__plan__is_attached_to_the_call() -> None:
    graph, prog = Graph(system(64)), Sequence()
    poplin.matmul(graph, variable(graph, (4, 16), f16), variable(graph, (16, 4), f16), prog)
    assert "partial products" in str(next(iter(prog)).attributes["plan"])  # type: ignore[attr-defined]


def test_matmul__inner_extents_differ__names_both() -> None:
    graph = Graph(system(4))
    with pytest.raises(TensorError, match="matmul: a has 5 columns, b has 6 rows"):
        poplin.matmul(graph, variable(graph, (3, 5), f32), variable(graph, (6, 2), f32), Sequence())


def test_matmul__three_dimensions__points_to_the_grouped_one() -> None:
    graph = Graph(system(4))
    with pytest.raises(
        TensorError, match=r"(?s)a must be \[m, k\], got Tensor\(f32\[2, 3, 5\] of 'operand'.*matmul_grouped"
    ):
        poplin.matmul(graph, variable(graph, (2, 3, 5), f32), variable(graph, (5, 2), f32), Sequence())


def test_matmul_grouped__groups_differ__names_both() -> None:
    graph = Graph(system(4))
    with pytest.raises(TensorError, match="a has 2 groups, b has 3"):
        poplin.matmul_grouped(graph, variable(graph, (2, 3, 5), f32), variable(graph, (3, 5, 2), f32), Sequence())


def test_matmul__types_differ__names_both() -> None:
    graph = Graph(system(4))
    with pytest.raises(TypeMismatchError, match="operands differ in type: a 'operand' is f32, b 'operand' is f16"):
        poplin.matmul(graph, variable(graph, (3, 5), f32), variable(graph, (5, 2), f16), Sequence())


def test_matmul__integers__are_refused() -> None:
    graph = Graph(system(4))
    with pytest.raises(TypeMismatchError, match="operands of type i32; f16 and f32 are supported"):
        poplin.matmul(graph, variable(graph, (3, 5), i32), variable(graph, (5, 2), i32), Sequence())


def test_matmul__half_partials_of_floats__are_refused() -> None:
    graph = Graph(system(4))
    with pytest.raises(TypeMismatchError, match="f32 operands cannot be summed in f16 partials"):
        poplin.matmul(graph, variable(graph, (3, 5), f32), variable(graph, (5, 2), f32), Sequence(), partials_type=f16)


def test_matmul__empty_operand__is_refused() -> None:
    graph = Graph(system(4))
    with pytest.raises(TensorError, match=r"a Tensor\(f32\[0, 5\] of 'variable'\) has no elements"):
        poplin.matmul(graph, graph.variable(f32, (0, 5)), variable(graph, (5, 2), f32), Sequence())


def test_create_matmul_input__shapes_do_not_fit__says_so() -> None:
    with pytest.raises(TensorError, match=r"shapes \[3, 4\] and \[5, 6\] are not those of matrices"):
        poplin.create_matmul_input_lhs(Graph(system(4)), f32, (3, 4), (5, 6))
