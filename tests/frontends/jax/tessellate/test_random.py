"""Random numbers of tiles: states that are set and read, and numbers drawn from them."""

import jax
import numpy as np
import pytest

from abele import jax as ajax
from abele.jax.tessellate import (
    TileShardedArray,
    tile_get_hw_seeds,
    tile_random_normal,
    tile_random_uniform,
    tile_set_hw_seeds,
)
from frontends.jaxpr.jaxpr_kit import read

TILES = (3, 4, 9)
SEEDS = np.random.default_rng(0).integers(1, 2**32, (3, 6, 4), dtype=np.uint32)


def draws():
    return (
        tile_random_uniform(TILES, 3000, np.float32, 0.5, 1.0),
        tile_random_normal(TILES, 3000, np.float32, 1.0, 2.0),
        tile_random_uniform(TILES, 3000, np.float16, offset=-1.0, scale=0.5),
    )


def look_at(uniform, normal, half):
    uniform, normal, half = map(np.asarray, (uniform, normal, half))
    assert (uniform.shape, uniform.dtype, half.dtype) == ((3, 3000), np.float32, np.float16)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    np.testing.assert_allclose(uniform.mean(1), 0.5, atol=0.03)
    np.testing.assert_allclose(uniform.std(1), 12**-0.5, atol=0.02)
    np.testing.assert_allclose(normal.mean(1), 1, atol=0.15)
    np.testing.assert_allclose(normal.std(1), 2, atol=0.15)
    assert half.min() >= -1.25
    assert half.max() <= -0.75
    assert len(np.unique(uniform)) > 8900  # tiles draw other numbers than each other


def test_distributions__on_the_machine_on_the_host_and_in_numpy():
    on_machine = ajax.jit(draws)
    first, second = on_machine(), on_machine()
    look_at(*first)
    look_at(*second)
    assert (np.asarray(first[0]) != np.asarray(second[0])).mean() > 0.99
    look_at(*draws())
    look_at(*read(draws))


def test_equal_states_give_equal_numbers__and_move_on():
    def f(seeds):
        seeds = tile_set_hw_seeds(TileShardedArray(seeds, TILES))
        first = tile_random_uniform(TILES, 100)
        return first, tile_random_uniform(TILES, 100), tile_get_hw_seeds(TILES), seeds

    compiled = ajax.jit(f)
    first, second, after, given = map(np.asarray, compiled(SEEDS))
    again = [np.asarray(x) for x in compiled(SEEDS)]
    np.testing.assert_array_equal(first, again[0])
    np.testing.assert_array_equal(second, again[1])
    np.testing.assert_array_equal(given, SEEDS)
    assert (first != second).mean() > 0.99
    assert (after != SEEDS).mean() > 0.99
    same = np.broadcast_to(SEEDS[:1], SEEDS.shape)
    rows = np.asarray(compiled(same)[0])
    np.testing.assert_array_equal(rows, rows[:1].repeat(3, 0))


def test_states_that_are_set__are_read():
    def f(seeds):
        tile_set_hw_seeds(TileShardedArray(seeds, TILES))
        return tile_get_hw_seeds(TILES)

    got = ajax.jit(f)(SEEDS)
    assert (got.shape, got.tiles) == ((3, 6, 4), TILES)
    np.testing.assert_array_equal(np.asarray(got), SEEDS)
    assert tile_get_hw_seeds((1, 2)).shape == (2, 6, 4)


def test_wrong_calls():
    with pytest.raises(ValueError, match="int32"):
        tile_random_uniform(TILES, 10, np.int32)
    with pytest.raises(ValueError, match="seeds are float32"):
        tile_set_hw_seeds(TileShardedArray(np.zeros((3, 6, 4), np.float32), TILES))
    with pytest.raises(ValueError, match=r"seeds are uint32\[3, 4\]"):
        tile_set_hw_seeds(TileShardedArray(np.zeros((3, 4), np.uint32), TILES))
    assert jax.eval_shape(lambda: tile_random_normal(TILES, 5, np.float16)).dtype == np.float16
