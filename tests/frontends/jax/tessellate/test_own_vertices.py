"""Primitives of vertices in C++: made, declared or translated by hand; on the machine as their authors say."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import ShapedArray
from jax.extend.core import Primitive

from abele import jax as ajax
from abele.codelet.cpp.toolchain import find_compiler
from abele.errors import AbeleError, CodeletLoadError, UnsupportedOpError
from abele.jax.tessellate import (
    create_ipu_tile_primitive,
    declare_ipu_tile_primitive,
    register_ipu_tile_primitive,
    tile_fill,
    tile_map,
    tile_put_sharded,
)
from abele.jax.tessellate.core import (
    IpuTensorSlice,
    IpuTileMapEquation,
    make_ipu_vertex_attributes,
    make_ipu_vertex_constant_info,
    make_ipu_vertex_in_info,
    make_ipu_vertex_out_info,
)
from frontends.jaxpr.jaxpr_kit import check, read, run

SOURCE = str(Path(__file__).parent / "vertices.cpp")
TILES = (3, 4, 9)
X = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)


@declare_ipu_tile_primitive("ScaleTwice<{x}>", gp_filename=SOURCE)
def scale_twice_p(x: ShapedArray, by: float = 3.0, factor: float = 2.0):
    outputs = {"once": x, "twice": ShapedArray(x.shape, x.dtype)}
    return outputs, {"factors": np.full(x.shape, factor, x.dtype)}, {"tmp": x}, 100


@scale_twice_p.def_impl
def _scale_twice(x, by=3.0, factor=2.0):
    return factor * x, by * factor * x


add_p = create_ipu_tile_primitive(
    "add_number", "AddInPlace", inputs=["x"], outputs={"x": 0}, gp_filename=SOURCE, perf_estimate=7
)
sums_p = create_ipu_tile_primitive(
    "row_sums",
    "RowSums",
    inputs=["x"],
    outputs={"sums": lambda avals: ShapedArray(avals[0].shape[:1], avals[0].dtype)},
    gp_filename=SOURCE,
)
made_twice_p = create_ipu_tile_primitive(
    "made_twice",
    "ScaleTwice<{dtype}>",
    inputs=["x"],
    outputs={"once": 0, "twice": 0},
    constants={"factors": lambda inavals, outavals, attributes: 0.5 * np.ones(outavals[0].shape, inavals[0].dtype)},
    tmp_space=0,
    gp_filename=SOURCE,
)
count_p = create_ipu_tile_primitive(
    "count_up", "CountUp", [], {"out": ShapedArray((5,), np.dtype(np.int32))}, gp_filename=SOURCE
)


@add_p.def_impl
def _add(x, n):
    x = np.array(x)  # in NumPy, which cannot be traced
    x += n
    return x


@sums_p.def_impl
def _sums(x):
    return np.sum(np.asarray(x), axis=1)


@count_p.def_impl
def _count(start):
    return start + np.arange(5)


@made_twice_p.def_impl
def _made_twice(x, by):
    return x / 2, by * x / 2


def translated(p, tiles, inavals, attributes):
    (x,) = inavals
    whole, numbers = make_ipu_vertex_attributes(**attributes)
    assert (whole, numbers) == ([], [])
    slices = [IpuTensorSlice(0, 3), IpuTensorSlice(3, 5), IpuTensorSlice(1, 12)]
    return IpuTileMapEquation(
        vname="RowSums",
        pname=p.name,
        tiles=tiles,
        inputs_info=[make_ipu_vertex_in_info("x", x, slices2d=slices)],
        outputs_info=[make_ipu_vertex_out_info("sums", ShapedArray((3,), x.dtype))],
        gp_filename=SOURCE,
    )


parts_p = Primitive("sums_of_parts")
parts_p.def_abstract_eval(lambda x: ShapedArray((3,), x.dtype))
register_ipu_tile_primitive(
    parts_p, translated, meaning=lambda x: jnp.stack([x.ravel()[a:b].sum() for a, b in ((0, 3), (3, 5), (1, 12))])
)


@pytest.fixture(autouse=True)
def _compiler():
    try:
        find_compiler()
    except CodeletLoadError:
        pytest.skip("no C++ compiler: neither clang++ nor ziglang is installed")


def everything(x):
    a = tile_put_sharded(x, TILES)
    once, twice = tile_map(scale_twice_p, a)
    half, more = tile_map(scale_twice_p, tile_put_sharded(x.astype(jnp.float16), TILES), by=0.5, factor=4.0)
    first = tile_map(add_p, once, n=2)
    again = tile_map(add_p, first, n=3)
    pair = tile_map(made_twice_p, a, by=2.0)
    return once, twice, half, more, again, tile_map(sums_p, a), tile_map(parts_p, a), pair


def test_all_kinds_of_vertices():
    check(everything, X, native=True)


@pytest.mark.slow
def test_all_kinds_of_vertices__without_compilation_and_in_jax():
    eager, compiled = everything(X), jax.jit(everything)(X)
    for a, b in zip(jax.tree.leaves(eager), jax.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_vertices_without_operands():
    def f():
        return tile_map(count_p, tiles=TILES, start=4), tile_fill((2,), 7, np.int32, TILES)

    counted, filled = run(f)
    np.testing.assert_array_equal(counted, np.broadcast_to(4 + np.arange(5), (3, 5)))
    np.testing.assert_array_equal(filled, np.full((3, 2), 7))
    np.testing.assert_array_equal(f()[0].array, counted)


def test_the_machine_counts_the_cycles():
    compiled = ajax.jit(lambda x: tile_map(add_p, tile_put_sharded(x, TILES), n=1)).lower(X).compile()
    table = compiled.report.steps
    cost = [table["cycles"][n] for n, kind in enumerate(table["kind"]) if kind == "compute"]
    assert len(cost) == 1
    assert cost[0] > 24 * 6  # each element is loaded, added to and stored, in turns of six workers


def test_meanings_are_those_of_samples_too():
    def f(x):
        return jax.vmap(lambda x: tile_map(scale_twice_p, tile_put_sharded(x, TILES))[1].array)(x)

    samples = np.stack([X, 2 * X])
    np.testing.assert_allclose(f(samples), 6 * samples, rtol=1e-6)
    np.testing.assert_allclose(run(f, samples)[0], 6 * samples, rtol=1e-6)


def test_primitives_by_themselves_work_on_one_row():
    once, _ = scale_twice_p.bind(X[0])
    np.testing.assert_allclose(once, 2 * X[0])
    np.testing.assert_array_equal(add_p.bind(X[0], n=1), X[0] + 1)
    assert jax.eval_shape(lambda x: sums_p.bind(x), X[0]).shape == (4,)


def test_no_meaning():
    mute_p = create_ipu_tile_primitive("mute", "AddInPlace", ["x"], {"x": 0}, gp_filename=SOURCE)

    def f(x):
        return tile_map(mute_p, tile_put_sharded(x, TILES), n=2)

    np.testing.assert_array_equal(run(f, X)[0], X + 2)
    for how in (lambda: f(X), lambda: read(f, X)):
        with pytest.raises(UnsupportedOpError, match=r"no meaning outside of the device|mute") as caught:
            how()
        assert "def_impl" in str(caught.value)


@pytest.mark.parametrize(
    ("made", "params", "words"),
    [
        (create_ipu_tile_primitive("a", "Missing", ["x"], {"x": 0}, gp_filename=SOURCE), {}, "Missing"),
        (create_ipu_tile_primitive("b", "AddInPlace", ["y"], {"y": 0}, gp_filename=SOURCE), {"n": 1}, "field"),
        (create_ipu_tile_primitive("c", "AddInPlace", ["x"], {"x": 0}, gp_filename=SOURCE), {}, "n is not connected"),
        (create_ipu_tile_primitive("d", "AddInPlace", ["x"], {"x": 0}, gp_filename=SOURCE), {"m": 1}, "no field 'm'"),
        (create_ipu_tile_primitive("e", "AddInPlace", ["x"], {"x": 0}, gp_filename="none.cpp"), {"n": 1}, "none.cpp"),
        (create_ipu_tile_primitive("f", "Nowhere", ["x"], {"x": 0}), {}, "Nowhere"),
        (create_ipu_tile_primitive("g", "Add<{y}>", ["x"], {"x": 0}, gp_filename=SOURCE), {}, "asks for 'y'"),
        (create_ipu_tile_primitive("h", "popops::Addd<float>", ["x"], {"x": 0}), {}, "no vertex Addd"),
        (create_ipu_tile_primitive("i", "AddInPlace", ["x"], {"x": 0}, gp_filename=SOURCE), {"n": "1"}, "attribute n"),
    ],
)
def test_wrong_vertices__are_named(made, params, words):
    with pytest.raises(AbeleError, match=words):
        run(lambda x: tile_map(made, tile_put_sharded(x, TILES), **params), X)


def test_another_number_of_arrays():
    with pytest.raises(ValueError, match="takes 1 arrays, it was given 2"):
        tile_map(add_p, *[tile_put_sharded(X, TILES)] * 2, n=1)


def test_constants_of_a_translation():
    info = make_ipu_vertex_constant_info("c", np.arange(3.0))
    np.testing.assert_array_equal(info.constant, [0, 1, 2])
    assert info.constant.dtype == np.float32


def test_attributes_that_only_functions_read():
    def f(x):
        return tile_map(made_twice_p, tile_put_sharded(x, TILES), by=2.0, factors=0.5, other=1)

    np.testing.assert_allclose(run(f, X)[1], X, rtol=1e-6)
