"""Sparse products of a host, beside NumPy in float64."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.machine import systems
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popsparse.host import host_product, host_sampled_product, products, scattered
from abele.poplibs.popsparse.host.tiling import Panels, panels_of
from abele.poplibs.popsparse.host.walks import product_walk, shares_of
from abele.runtime import Engine
from abele.sparsity import Pattern
from support.examples import examples

BLOCKS = [(1, 1), (4, 4), (8, 8), (16, 16), (2, 2), (3, 5), (16, 4), (2, 8)]
COLUMNS = [1, 3, 4, 16, 37, 64, 130]


def pattern_of(grid: tuple[int, int], block: tuple[int, int], density: float, rng: Any) -> Pattern:
    """A random pattern with an empty row, and a full one."""
    mask = rng.random(grid) < density
    mask[grid[0] // 2] = False
    mask[-1] = True
    return Pattern.from_dense_mask(mask, block)


def run(graph: Graph, prog: Sequence, inputs: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Contents of all tensors after the program."""
    engine = Engine(graph, prog, allow_out_of_memory=True, keep=list(tensors.values()))
    for name, data in inputs.items():
        engine[tensors[name]] = data
    engine.run()
    return {name: np.asarray(engine[tensor], np.float64) for name, tensor in tensors.items()}


def variables(graph: Graph, dtype: ElementType, **shapes: tuple[int, ...]) -> dict[str, Tensor]:
    """A variable for each shape."""
    return {name: graph.variable(dtype, shape, name=name, map="linear") for name, shape in shapes.items()}


CASES = {
    "block": st.sampled_from(BLOCKS),
    "columns": st.sampled_from(COLUMNS),
    "dtype": st.sampled_from([f32, f16]),
    "shuffled": st.sampled_from(["no", "blocks", "values"]),
    "turned": st.booleans(),
    "seed": st.integers(0, 1000),
}


@examples(12)
@given(transposed=st.booleans(), **CASES)
def test_product__random_pattern__is_that_of_dense_matrices(transposed: bool, **case: Any) -> None:
    check_product(transposed=transposed, **case)


@pytest.mark.parametrize(
    ("block", "columns", "apart"),
    [
        ((1, 1), 1, True),
        ((1, 1), 4, False),
        ((1, 1), 37, True),
        ((8, 8), 1, False),
        ((4, 8), 4, True),
        ((8, 8), 37, True),
    ],
)
def test_transposed_product__values_far_apart__goes_by_rows(
    block: tuple[int, int], columns: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scattered, "SCATTERED_VALUES", 0)
    monkeypatch.setattr(scattered, "MANY_BLOCKS", 0 if apart else 1 << 30)
    check_product(block=block, columns=columns, dtype=f32, transposed=True, shuffled="no", turned=columns == 37, seed=3)


@pytest.mark.parametrize(("block", "columns"), [((16, 16), 1), ((16, 8), 1), ((16, 16), 4), ((16, 4), 3)])
def test_product__values_beyond_the_cache__is_that_of_dense_matrices(
    block: tuple[int, int], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "FAR_VALUES", 0)
    check_product(block=block, columns=columns, dtype=f16, transposed=False, shuffled="no", turned=False, seed=4)


def check_product(
    *,
    block: tuple[int, int],
    columns: int,
    dtype: ElementType,
    transposed: bool,
    shuffled: str,
    turned: bool,
    seed: int,
) -> None:
    """Compare a product with that of dense matrices in float64."""
    rng = np.random.default_rng(seed)
    pattern = pattern_of((7, 5), block, 0.4, rng)
    values = rng.standard_normal((pattern.num_blocks, *block)).astype(dtype.np)
    order = order_of(pattern, shuffled, rng)
    (m, k) = pattern.shape[::-1] if transposed else pattern.shape
    x = rng.standard_normal((k, columns)).astype(dtype.np)
    graph = Graph(systems.get("bow"))
    shapes = {"x": (columns, k), "out": (columns, m)} if turned else {"x": (k, columns), "out": (m, columns)}
    held = variables(graph, dtype, values=(values.size + 3,), **shapes)
    view = {name: held[name].transpose((1, 0)) if turned else held[name] for name in ("x", "out")}
    prog = host_product(
        graph, pattern, held["values"], view["x"], view["out"], name="p", order=order, transposed=transposed
    )
    stored = np.full(values.size + 3, np.nan, dtype.np)
    stored[slice(values.size) if order is None else order.reshape(-1)] = values.reshape(-1)
    got = run(graph, prog, {"values": stored, "x": x.T if turned else x}, held)["out"]
    dense = pattern.to_dense(values.astype(np.float64))
    want = (dense.T if transposed else dense) @ x.astype(np.float64)
    tolerance = 1e-4 if dtype == f32 else 2e-2
    np.testing.assert_allclose(got.T if turned else got, want, rtol=tolerance, atol=tolerance)


@examples(12)
@given(spare=st.sampled_from([0, 5]), **CASES)
def test_sampled_product__random_pattern__is_that_of_dense_matrices(spare: int, **case: Any) -> None:
    check_sampled(spare=spare, **case)


def check_sampled(
    *, block: tuple[int, int], columns: int, dtype: ElementType, shuffled: str, turned: bool, spare: int, seed: int
) -> None:
    """Compare a sampled product with that of dense matrices in float64."""
    rng = np.random.default_rng(seed)
    pattern = pattern_of((7, 5), block, 0.4, rng)
    order = order_of(pattern, shuffled, rng)
    g, x = (rng.standard_normal((size, columns)).astype(dtype.np) for size in pattern.shape)
    graph = Graph(systems.get("bow"))
    shapes = {name: a.T.shape if turned else a.shape for name, a in (("g", g), ("x", x))}
    held = variables(graph, dtype, out=(pattern.num_values + spare,), **shapes)
    left, right = (held[name].transpose((1, 0)) if turned else held[name] for name in ("g", "x"))
    prog = host_sampled_product(graph, pattern, left, right, held["out"], name="p", order=order)
    data = {name: a.T if turned else a for name, a in (("g", g), ("x", x))}
    got = run(graph, prog, {**data, "out": np.full(held["out"].size, np.nan, dtype.np)}, held)["out"]
    want = np.zeros(held["out"].size)
    places = np.arange(pattern.num_values) if order is None else order.reshape(-1)
    want[places] = pattern.values_of(g.astype(np.float64) @ x.astype(np.float64).T).reshape(-1)
    tolerance = 1e-4 if dtype == f32 else 2e-2
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def order_of(pattern: Pattern, shuffled: str, rng: Any) -> Any:
    """Places of a pattern's values in another order."""
    places = np.arange(pattern.num_values).reshape((pattern.num_blocks, *pattern.block))
    if shuffled == "no":
        return None
    if shuffled == "blocks":
        return places[rng.permutation(pattern.num_blocks)]
    return rng.permutation(pattern.num_values).reshape(places.shape)


@pytest.mark.parametrize("own", [False, True])
def test_groups__shared_pattern_or_one_each__are_products_of_their_own(own: bool) -> None:
    rng = np.random.default_rng(5)
    patterns = [pattern_of((4, 6), (4, 4), d, rng) for d in (0.2, 0.9, 0.5)]
    patterns = patterns if own else [patterns[0]] * 3
    values = [rng.standard_normal((p.num_blocks, 4, 4)).astype("f") for p in patterns]
    x, g = (rng.standard_normal((3, size, 20)).astype("f") for size in (24, 16))
    graph = Graph(systems.get("bow"))
    size = sum(v.size for v in values)
    held = variables(
        graph, f32, values=(size,), x=x.shape, g=g.shape, out=(3, 16, 20), back=(3, 24, 20), change=(size,)
    )
    known = patterns if own else patterns[0]
    prog = Sequence(
        host_product(graph, known, held["values"], held["x"], held["out"], name="p"),
        host_product(graph, known, held["values"], held["g"], held["back"], name="q", transposed=True),
        host_sampled_product(graph, known, held["g"], held["x"], held["change"], name="r"),
    )
    data = {"values": np.concatenate([v.reshape(-1) for v in values]), "x": x, "g": g}
    got = run(graph, prog, data, held)
    dense = [p.to_dense(v) for p, v in zip(patterns, values, strict=True)]
    for number in range(3):
        np.testing.assert_allclose(got["out"][number], dense[number] @ x[number], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(got["back"][number], dense[number].T @ g[number], rtol=1e-4, atol=1e-4)
    change = [p.values_of(g[i] @ x[i].T).reshape(-1) for i, p in enumerate(patterns)]
    np.testing.assert_allclose(got["change"], np.concatenate(change), rtol=1e-4, atol=1e-4)


def test_product__operand_of_another_size__is_refused() -> None:
    graph = Graph(systems.get("bow"))
    pattern = Pattern.from_dense_mask(np.ones((2, 3), bool), (4, 4))
    held = variables(graph, f32, values=(96,), x=(8, 5), out=(8, 5))
    with pytest.raises(TensorError, match=r"X of p is \[1, 8, 5\], not \[1, 12, 5\]"):
        host_product(graph, pattern, held["values"], held["x"], held["out"], name="p")


def test_product__more_columns_than_16_bits_name__is_that_of_dense_matrices() -> None:
    rng = np.random.default_rng(7)
    pattern = Pattern.from_coordinates((4, 70_000), [0, 1, 3, 3], [69_999, 5, 65_536, 65_537])[0]
    values, x = rng.standard_normal((4, 1, 1)).astype("f"), rng.standard_normal((70_000, 4)).astype("f")
    graph = Graph(systems.get("bow"))
    held = variables(graph, f32, values=(4,), x=x.shape, out=(4, 4), g=(4, 4), back=(70_000, 4))
    prog = Sequence(
        host_product(graph, pattern, held["values"], held["x"], held["out"], name="p"),
        host_product(graph, pattern, held["values"], held["g"], held["back"], name="q", transposed=True),
    )
    got = run(graph, prog, {"values": values.reshape(-1), "x": x, "g": x[:4]}, held)
    dense = pattern.to_dense(values)
    np.testing.assert_allclose(got["out"], dense @ x, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(got["back"], dense.T @ x[:4], rtol=1e-4, atol=1e-4)


def test_product__no_blocks__is_zero() -> None:
    graph = Graph(systems.get("bow"))
    pattern = Pattern.from_dense_mask(np.zeros((2, 3), bool), (4, 4))
    held = variables(graph, f32, values=(16,), x=(12, 5), out=(8, 5))
    prog = host_product(graph, pattern, held["values"], held["x"], held["out"], name="p")
    data = {"values": np.full(16, np.nan, "f"), "x": np.ones((12, 5), "f"), "out": np.full((8, 5), np.nan, "f")}
    assert not run(graph, prog, data, held)["out"].any()


def test_product__values_that_are_not_finite__stay_in_their_row() -> None:
    graph = Graph(systems.get("bow"))
    pattern = Pattern.from_dense_mask(np.eye(3, dtype=bool))
    held = variables(graph, f32, values=(3,), x=(3, 37), out=(3, 37))
    prog = host_product(graph, pattern, held["values"], held["x"], held["out"], name="p")
    got = run(graph, prog, {"values": np.array([1, np.inf, np.nan], "f"), "x": np.ones((3, 37), "f")}, held)["out"]
    assert (got[0] == 1).all()
    assert np.isinf(got[1]).all()
    assert np.isnan(got[2]).all()


@examples(30)
@given(lengths=st.lists(st.integers(0, 50), min_size=1, max_size=40), shares=st.integers(1, 9))
def test_shares__any_rows__hold_each_once_and_differ_by_a_row_at_most(lengths: list[int], shares: int) -> None:
    mask = np.arange(50) < np.array(lengths)[:, None]
    walk = product_walk(Pattern.from_dense_mask(mask), None, transposed=False)
    cuts = shares_of(walk, shares)
    assert cuts[0] == 0
    assert cuts[-1] == len(lengths)
    assert (np.diff(cuts) >= 0).all()
    work = [sum(length + 2 for length in lengths[begin:end]) for begin, end in pairwise(cuts)]
    assert max(work) <= sum(work) / shares + max(lengths) + 2


@pytest.mark.parametrize(
    ("columns", "panels"),
    [
        (37, Panels(48, 0, 48, 37)),
        (100, Panels(64, 1, 48, 36)),
        (1024, Panels(64, 16, 0, 0)),
        (4, Panels(4, 1, 0, 0)),
        (5, Panels(8, 0, 8, 5)),
    ],
)
def test_panels__columns__are_whole_ones_and_a_rest(columns: int, panels: Panels) -> None:
    assert panels_of(columns, 64) == panels


@pytest.mark.parametrize(("values", "order", "told"), [(95, None, "95 values"), (96, np.arange(5), "5 places")])
def test_product__too_few_values_or_places__is_refused(values: int, order: Any, told: str) -> None:
    graph = Graph(systems.get("bow"))
    pattern = Pattern.from_dense_mask(np.ones((2, 3), bool), (4, 4))
    held = variables(graph, f32, values=(values,), x=(12, 5), out=(8, 5))
    with pytest.raises(TensorError, match=told):
        host_product(graph, pattern, held["values"], held["x"], held["out"], name="p", order=order)
