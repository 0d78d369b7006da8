"""Products of tile low-rank operators, as placed and on the host, against NumPy in 64 bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench

from abele.compiler import compile_program
from abele.errors import (
    InvalidOptionError,
    OutOfMemoryError,
    PatternMismatchError,
    TensorError,
    TypeMismatchError,
)
from abele.graph import Graph, Sequence
from abele.lowrank import LowRankProduct
from abele.machine import System, systems
from abele.poplibs import lowrank
from abele.poplibs.lowrank import TileLowRank, compress
from abele.runtime import Engine
from support.examples import examples

Array = np.ndarray[Any, Any]
ROUNDING = {"float": 1e-6, "half": 2e-3}
"""Largest error of a result over the sum of the magnitudes of its terms."""


def system_of(ipus: int, tiles: int) -> System:
    """So many Bow IPUs, cut down to so many tiles."""
    whole = systems.get("bow" if ipus == 1 else "bow-2000").with_ipus(ipus)
    return replace(whole, ipu=replace(whole.ipu, num_tiles=tiles))


def kernel(rows: int, columns: int) -> Array:
    """Cauchy kernel of points on two lines."""
    return 1 / (1 + 15 * np.abs(np.linspace(0, 1, rows)[:, None] - np.linspace(0.1, 1.1, columns)))


def mixed(rng: np.random.Generator, rows: int, columns: int) -> Array:
    """Smooth, with noise in one corner that stays dense and zeros in another."""
    matrix = kernel(rows, columns)
    matrix[: rows // 3, : columns // 3] = rng.standard_normal((rows // 3, columns // 3))
    matrix[rows // 2 :, columns // 2 :] = 0
    return matrix


def magnitude(matrix: TileLowRank, x: Array) -> Array:
    """Sums of the magnitudes of all terms."""
    terms = replace(matrix, u=abs(matrix.u), v=abs(matrix.v), dense=abs(matrix.dense))
    return terms.multiply(abs(x))


def results(graph: Graph, prog: Sequence, x: Any, y: Any, values: Array) -> list[Array]:
    """y as placed, and as the host computes it."""
    executable = compile_program(graph, prog)
    found = []
    for mode in ("tiles", "native"):
        with Engine(executable, mode=mode, keep=[x, y], threads=1) as engine:
            engine[x] = values
            engine.run()
            found.append(np.asarray(engine[y], np.float64))
    return found


@examples(40)
@given(st.data())
def test_low_rank_multiply__any_matrix_machine_and_batch__is_numpys(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 5)))
    shape = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 60))
    tile = tuple(data.draw(st.integers(1, side)) for side in shape)
    given = compress(mixed(rng, *shape), (tile[0], tile[1]), tolerance=data.draw(st.sampled_from([0.3, 1e-2, 1e-5])))
    graph = Graph(system_of(data.draw(st.sampled_from([1, 2, 4])), data.draw(st.sampled_from([1, 7, 40]))))
    dtype, batch = data.draw(st.sampled_from(sorted(ROUNDING))), data.draw(st.sampled_from([None, 1, 3]))
    options = {"ipuSplit": data.draw(st.sampled_from(["auto", "columns", "rows"]))}
    prog = Sequence()
    operator = lowrank.create_low_rank_operator(
        graph, given, dtype, batch=data.draw(st.integers(1, 5)), options=options
    )
    if data.draw(st.booleans()):
        x = lowrank.create_low_rank_input(graph, operator, batch)
    else:
        x = graph.variable(dtype, (given.shape[1],) if batch is None else (batch, given.shape[1]), map="linear")
    y = lowrank.low_rank_multiply(graph, operator, x, prog)
    values = rng.standard_normal(x.shape).astype(x.dtype.np)
    wanted = given.multiply(values)
    bound = ROUNDING[dtype] * magnitude(given, values.astype(np.float64)) + 1e-6
    for got in results(graph, prog, x, y, values):
        assert got.shape == wanted.shape
        assert (abs(got - wanted) <= bound).all()


@pytest.mark.parametrize("matrix", [np.zeros((9, 7)), np.random.default_rng(0).standard_normal((9, 7))])
def test_low_rank_multiply__only_zeros_or_only_dense_tiles__is_numpys(matrix: Array) -> None:
    given = compress(matrix, 3, tolerance=1e-6)
    bench = Bench(4)
    operator = lowrank.create_low_rank_operator(bench.graph, given)
    x = bench.tensor(np.arange(7, dtype=np.float32))
    (got,) = bench.run_both(lowrank.low_rank_multiply(bench.graph, operator, x, bench.prog))
    np.testing.assert_allclose(got, matrix @ np.arange(7), rtol=1e-5)


def test_low_rank_multiply__two_operators_one_after_the_other__is_their_product() -> None:
    first, second = compress(kernel(40, 30), 10, tolerance=1e-4), compress(kernel(20, 40), 10, tolerance=1e-4)
    bench = Bench(16)
    x = bench.tensor(np.linspace(-1, 1, 30, dtype=np.float32))
    middle = lowrank.low_rank_multiply(bench.graph, lowrank.create_low_rank_operator(bench.graph, first), x, bench.prog)
    last = lowrank.create_low_rank_operator(bench.graph, second)
    (got,) = bench.run_both(lowrank.low_rank_multiply(bench.graph, last, middle, bench.prog))
    np.testing.assert_allclose(got, second.multiply(first.multiply(bench.values(x))), atol=2e-5)


def test_low_rank_multiply__view_of_another_tensor__is_read_as_it_is_shown() -> None:
    given = compress(kernel(40, 30), 10, tolerance=1e-4)
    bench = Bench(16)
    table = bench.tensor(np.random.default_rng(0).standard_normal((30, 4)).astype(np.float32))
    operator = lowrank.create_low_rank_operator(bench.graph, given)
    (got,) = bench.run_both(lowrank.low_rank_multiply(bench.graph, operator, table.transpose((1, 0))[1:3], bench.prog))
    np.testing.assert_allclose(got, given.multiply(bench.values(table).T[1:3]), atol=1e-5)


def test_cycles__any_vector__are_the_same() -> None:
    given = compress(kernel(300, 400), 50, tolerance=1e-4)
    with LowRankProduct(given, system=system_of(1, 64), mode="tiles") as product:
        seen = []
        for x in (np.zeros(400), np.random.default_rng(0).standard_normal(400), np.full(400, np.inf)):
            product(x)
            seen.append(product.cycles)
    assert len(set(seen)) == 1


def test_layout__uneven_ranks__tiles_hold_and_work_alike() -> None:
    matrix = mixed(np.random.default_rng(0), 600, 900)
    given = compress(matrix, 60, tolerance=1e-3)
    assert given.ranks.max() > 3 * given.mean_rank > 0
    graph, prog = Graph(system_of(1, 64)), Sequence()
    operator = lowrank.create_low_rank_operator(graph, given)
    lowrank.low_rank_multiply(graph, operator, lowrank.create_low_rank_input(graph, operator), prog)
    assert operator.num_bytes < 1.05 * given.num_bytes()
    assert operator.worst_tile_bytes < 1.6 * operator.num_bytes / 64
    # No tile computes much longer than the mean in the two supersteps of products.
    for compute in [s.compute for s in compile_program(graph, prog).plan if s.compute is not None][:2]:
        cycles = np.asarray(compute.by_tile)
        assert cycles.max() < 1.3 * cycles.mean()


def test_several_ipus__more_tiles__take_less_compute() -> None:
    given = compress(kernel(600, 900), 60, tolerance=1e-3)
    cycles = []
    for ipus in (1, 2, 4):
        graph, prog = Graph(system_of(ipus, 8)), Sequence()
        operator = lowrank.create_low_rank_operator(graph, given)
        lowrank.low_rank_multiply(graph, operator, lowrank.create_low_rank_input(graph, operator), prog)
        cycles.append(compile_program(graph, prog).report.cycles().compute)
    assert cycles[0] > 1.35 * cycles[1] > 1.35**2 * cycles[2]


def test_update__matrix_with_the_same_ranks__is_the_one_that_multiplies() -> None:
    one, other = compress(kernel(40, 30), 10, rank=3), compress(kernel(40, 30)[::-1], 10, rank=3)
    x = np.linspace(0, 1, 30)
    with LowRankProduct(one, system=system_of(2, 8)) as product:
        np.testing.assert_allclose(product(x), one.multiply(x), rtol=1e-5)
        product.update(other)
        np.testing.assert_allclose(product(x), other.multiply(x), rtol=1e-5)
        with pytest.raises(PatternMismatchError, match=r"ranks differ(.|\n)*rank=…"):
            product.update(compress(kernel(40, 30), 10, rank=2))
        with pytest.raises(TensorError, match=r"shape \[30\], got \[31\]"):
            product(np.ones(31))
        assert product.latency_seconds == pytest.approx(product.cycles / product.system.ipu.clock_hz)


def test_create_low_rank_operator__too_large_for_the_tiles__names_what_helps() -> None:
    given = compress(np.random.default_rng(0).standard_normal((600, 600)), 200, tolerance=1e-3)
    with pytest.raises(OutOfMemoryError, match=r"the factors take 1,440,000 B in f32(.|\n)*half(.|\n)*IPUs") as caught:
        lowrank.create_low_rank_operator(Graph(system_of(1, 2)), given)
    assert caught.value.tiles[0]["needed_bytes"] > caught.value.tiles[0]["available_bytes"]


def test_create_low_rank_operator__numbers_beyond_f16__are_named() -> None:
    given = compress(kernel(40, 30) * 1e12, 10, tolerance=1e-3)
    with pytest.raises(TensorError, match="do not fit f16"):
        lowrank.create_low_rank_operator(Graph(system_of(1, 4)), given, "half")


def test_create_low_rank_operator__wrong_input__is_named() -> None:
    given, graph = compress(kernel(40, 30), 10, rank=2), Graph(system_of(1, 4))
    with pytest.raises(TypeMismatchError, match="f32 or f16, got i32"):
        lowrank.create_low_rank_operator(graph, given, "int")
    with pytest.raises(TensorError, match="from 1 on, got 0"):
        lowrank.create_low_rank_operator(graph, given, batch=0)
    with pytest.raises(InvalidOptionError, match="ipuSplit"):
        lowrank.create_low_rank_operator(graph, given, options={"ipuSplit": "both"})
    with pytest.raises(TypeMismatchError, match="TileLowRank"):
        lowrank.create_low_rank_operator(graph, np.ones((4, 4)))  # type: ignore[arg-type]


def test_low_rank_multiply__wrong_x__is_named() -> None:
    graph, prog = Graph(system_of(1, 4)), Sequence()
    operator = lowrank.create_low_rank_operator(graph, compress(kernel(40, 30), 10, rank=2))
    for shape in ((40,), (30, 1), (1, 1, 30), (0, 30)):
        x = graph.variable("float", shape, map="linear")
        with pytest.raises(TensorError, match=r"x takes \[30\] or \[batch, 30\]"):
            lowrank.low_rank_multiply(graph, operator, x, prog)
    with pytest.raises(TypeMismatchError, match=r"x is f16, the operator f32(.|\n)*popops.cast"):
        lowrank.low_rank_multiply(graph, operator, graph.variable("half", (30,), map="linear"), prog)
    other = Graph(system_of(1, 4))
    with pytest.raises(TensorError, match="another graph"):
        lowrank.low_rank_multiply(other, operator, other.variable("float", (30,), map="linear"), prog)
    with pytest.raises(TensorError, match="from 1 on, got 0"):
        lowrank.create_low_rank_input(graph, operator, 0)
    assert not prog.steps
