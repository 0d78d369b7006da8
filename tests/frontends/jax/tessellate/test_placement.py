"""Rows lie where programs put them, and stay there: on the host, in NumPy and on the machine."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from abele import jax as ajax
from abele.errors import TileMappingError
from abele.graph import CycleStamp, walk
from abele.jax.tessellate import (
    TileShardedArray,
    ipu_cycle_count,
    tile_constant_replicated,
    tile_constant_sharded,
    tile_copy,
    tile_data_barrier,
    tile_fill,
    tile_gather,
    tile_map,
    tile_put_replicated,
    tile_put_sharded,
    tile_sharded_identity,
)
from abele.jax.tessellate.lax import add_inplace_p
from frontends.jaxpr.jaxpr_kit import check

TILES = (4, 7, 9)


def rows(num, width=8, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).normal(size=(num, width)).astype(dtype)


def steps(compiled):
    """Kind and name of each step between loads and stores."""
    table = compiled.report.steps
    every = list(zip(table["kind"], table["name"], strict=True))
    return [(kind, name) for kind, name in every if not str(kind).startswith("stream")]


@pytest.mark.slow
def test_everything_at_once__agrees_with_the_host():
    constant = np.arange(8, dtype=np.float32)

    def f(x, y, z):
        a, b = tile_put_sharded(x, TILES), tile_put_replicated(y, TILES)
        a, b = tile_data_barrier(a, b)
        c = tile_constant_replicated(constant, TILES)
        d = tile_constant_sharded(np.stack([constant] * 3), TILES)
        e = tile_map(lax.add_p, tile_map(lax.mul_p, a, b), tile_map(lax.sub_p, c, d))
        g = tile_gather(e, (2, 1, 0, 0), (4, 7, 9, 1))
        h = tile_gather(z, (1, 0), (3, 5))
        return e, g, h, tile_copy(g), tile_fill((2, 3), 1.5, np.float16, TILES), tile_sharded_identity(np.int32, TILES)

    check(f, rows(3), rows(1)[0], rows(2), native=True)


def test_inputs_arrive_on_their_tiles__and_vertices_run_there():
    def f(x):
        return tile_map(lax.neg_p, tile_put_sharded(x, TILES))

    compiled = ajax.jit(f).lower(rows(3)).compile()
    assert [kind for kind, _ in steps(compiled)] == ["compute"]
    graph = compiled.executable.graph
    made = [v for v in graph.variables if v.shape == (3, 8)]
    assert len(made) == 2
    for variable in made:
        np.testing.assert_array_equal(variable.mapping.tile, TILES)
        np.testing.assert_array_equal(variable.mapping.length, [8, 8, 8])


def test_views_of_rows_stay__and_gathered_rows_that_are_there_too():
    def f(x):
        a = tile_put_sharded(x, TILES)
        halves = a.tile_reshape((2, 4))[:, 1]
        turned = tile_gather(halves, (0, 1, 2), TILES)
        return tile_map(lax.neg_p, turned), tile_map(lax.abs_p, halves[1:])

    check(f, rows(3), native=True)
    assert [kind for kind, _ in steps(ajax.jit(f).lower(rows(3)).compile())] == ["compute", "compute"]


def test_several_rows_on_a_tile():
    tiles = (5, 5, 6, 5)

    def f(x):
        a = tile_put_sharded(x, tiles)
        return tile_map(lax.exp_p, a), tile_gather(a, (3, 3, 0), (5, 5, 6)), tile_put_replicated(x[0], (8, 8))

    check(f, rows(4), native=True)


def test_arithmetic_of_jax_between__is_brought_back():
    def f(x):
        a = tile_put_sharded(x, TILES)
        b = TileShardedArray((a.array * 2 + 1).T.reshape(8, 3).T, TILES)
        return tile_map(lax.add_p, a, b)

    check(f, rows(3), native=True)


def test_in_place__writes_over_its_operand_or_over_a_copy():
    def once(x):
        a, b = tile_put_sharded(x, TILES), tile_put_sharded(2 * x, TILES)
        c = tile_map(lax.mul_p, a, b)
        return tile_map(add_inplace_p, c, b)

    def twice(x):
        a, b = tile_put_sharded(x, TILES), tile_put_sharded(2 * x, TILES)
        c = tile_map(lax.mul_p, a, b)
        d = tile_map(add_inplace_p, c, b)
        return c, d, tile_map(add_inplace_p, d.tile_reshape((2, 4)), b.tile_reshape((2, 4))), d[:2]

    check(once, rows(3), native=True)
    check(twice, rows(3), native=True)
    assert "copy" not in [kind for kind, _ in steps(ajax.jit(once).lower(rows(3)).compile())]


def test_what_leaves_is_not_overwritten__in_loops_neither():
    def f(x):
        a = tile_put_sharded(x, TILES)
        one = tile_fill((8,), 1.0, np.float32, TILES)
        first = tile_map(lax.neg_p, a)
        second = tile_map(add_inplace_p, first, one)
        return first, second, tile_map(add_inplace_p, a, one), x

    check(f, rows(3), native=True)


def test_counters_are_read_in_order():
    def f(x):
        a = tile_put_sharded(x, TILES)
        a, start = ipu_cycle_count(a)
        b = tile_map(lax.add_p, a, a)
        b, end = ipu_cycle_count(b)
        c = tile_map(lax.add_p, b, b)
        c, last = ipu_cycle_count(c, sync=True)
        return c, start, end, last

    x = rows(3)
    compiled = ajax.jit(f).lower(x).compile()
    c, start, end, last = compiled(x)
    np.testing.assert_array_equal(np.asarray(c), 4 * x)
    for count in (start, end, last):
        assert (count.shape, count.tiles) == ((3, 2), TILES)
        assert np.asarray(count).dtype == np.uint32
    first, second = (np.asarray(b)[:, 0] - np.asarray(a)[:, 0] for a, b in ((start, end), (end, last)))
    table = compiled.report.steps
    add, _ = (table["cycles"][n] for n, kind in enumerate(table["kind"]) if kind == "compute")
    # Between two readings are a vertex and 45 cycles of reading, and a barrier where one is asked for.
    assert (first == add + 45).all()
    assert (second == first + 64).all()
    assert [kind for kind, _ in steps(compiled)] == ["control", "compute", "control", "compute", "control", "control"]


def test_programs_with_counters_are_saved_and_loaded(tmp_path):
    def f(x):
        a, start = ipu_cycle_count(tile_put_sharded(x, TILES))
        b, end = ipu_cycle_count(tile_map(lax.exp_p, a), sync=True)
        return b, start, end

    executable = ajax.jit(f).lower(rows(3)).compile().executable
    executable.save(tmp_path / "program")
    again = type(executable).load(tmp_path / "program")
    assert again.listing() == executable.listing()
    readings = [n for n in walk(again.program) if isinstance(n, CycleStamp)]
    assert [(n.tile, n.sync) for n in readings] == [(TILES, None)] * 2


def test_counters_are_zeros_on_the_host():
    a, count = ipu_cycle_count(tile_put_sharded(rows(3), TILES))
    assert not np.asarray(count).any()
    assert a.tiles == count.tiles == TILES


def test_barriers_of_arrays_on_several_tiles():
    def f(x, y):
        a, b = tile_data_barrier(tile_put_sharded(x, TILES), tile_put_sharded(y, (1, 2)))
        (c,) = tile_data_barrier(a)
        return c, b

    check(f, rows(3), rows(2).astype(np.int32), native=True)
    assert tile_data_barrier() == ()


def test_loops_carry_rows():
    def f(x):
        a = tile_put_sharded(x, TILES)

        def trip(_, a):
            return tile_gather(tile_map(lax.mul_p, a, a), (1, 2, 0), TILES)

        return jax.lax.fori_loop(0, 3, trip, a)

    x = rows(3)
    want = x
    for _ in range(3):
        want = (want**2)[[1, 2, 0]]
    np.testing.assert_allclose(np.asarray(jax.jit(f)(x)), want, rtol=1e-5)


def test_gradients_of_placed_products():
    def loss(x, w):
        a, b = tile_put_sharded(x, TILES), tile_put_replicated(w, TILES)
        return jnp.sum(tile_gather(tile_map(lax.mul_p, a, b), (0, 0, 2), TILES).array)

    check(jax.grad(loss, (0, 1)), rows(3), rows(1)[0])


def test_samples_share_tiles():
    def f(x):
        return jax.vmap(lambda x: tile_map(lax.sin_p, tile_put_sharded(x, TILES)).array)(x)

    check(f, np.stack([rows(3), rows(3, seed=1)]), native=True)


def test_what_is_wrong__is_said_where_it_is_written():
    a = tile_put_sharded(rows(3), TILES)
    for call, words in [
        (lambda: tile_data_barrier(a, rows(3)), "argument 1 is ndarray"),
        (lambda: ipu_cycle_count(rows(3)), "takes arrays on tiles"),
        (lambda: ipu_cycle_count(), "give it an array"),
        (lambda: tile_copy(rows(3)), "takes arrays on tiles"),
        (lambda: jax.jit(lambda x: tile_constant_sharded(x, TILES))(rows(3)), "that JAX traces"),
    ]:
        with pytest.raises(TypeError, match=words):
            call()
    for call, words in [
        (lambda: tile_gather(a, (0, 3), (1, 2)), "row 3"),
        (lambda: tile_gather(a, (0, 1), (1, 2, 3)), "2 indices to 3 tiles"),
        (lambda: tile_constant_sharded(rows(3), (1, 2)), "on 2 tiles"),
    ]:
        with pytest.raises(ValueError, match=words) as caught:
            call()
        assert __file__ in str(caught.value)


def test_a_tile_that_the_machine_lacks():
    with pytest.raises(TileMappingError, match="tile 2000") as caught:
        ajax.jit(lambda x: tile_map(lax.neg_p, tile_put_sharded(x, (1, 2, 2000))), settings={"system": "bow-2000:1"})(
            rows(3)
        )
    assert "1,472 tiles" in str(caught.value)
