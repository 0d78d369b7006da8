"""Arrays on tiles: what they are, what slices of them are, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import ShapedArray

from abele.errors import TensorError
from abele.jax.tessellate import TileShardedArray, tile_put_replicated, tile_put_sharded
from abele.jax.tessellate.core import check_tile_array_multi_slice

TILES = (1, 2, 6)


@pytest.fixture
def array():
    return TileShardedArray(np.arange(60, dtype=np.float32).reshape(3, 4, 5), TILES)


def test_what_it_says_of_itself(array):
    assert (array.shape, array.dtype, array.ndim, array.size) == ((3, 4, 5), np.float32, 3, 60)
    assert (array.num_tiles, array.tiles, array.tile_shape, len(array)) == (3, TILES, (4, 5), 3)
    assert array.aval == ShapedArray((3, 4, 5), np.float32)
    assert array.tile_aval == ShapedArray((4, 5), np.float32)
    assert array.device_array is array.array
    np.testing.assert_array_equal(np.asarray(array), array.array)
    assert np.asarray(array, np.int32).dtype == np.int32
    assert "tiles=(1, 2, 6)" in repr(array)


def test_tiles_of_numpy_become_whole_numbers_that_do_not_change(array):
    made = TileShardedArray(array.array, np.array(TILES))
    assert made.tiles == TILES
    assert all(type(t) is int for t in made.tiles)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.tiles = (0,)


def test_lists_are_arrays_of_32_bits():
    assert TileShardedArray([[1.0], [2.0]], (0, 1)).dtype == np.float32


@pytest.mark.parametrize("tiles", [(1, 2), (1, 2, 3, 4), ()])
def test_another_number_of_tiles_than_rows__is_a_value_error(array, tiles):
    with pytest.raises(ValueError, match="tile") as caught:
        TileShardedArray(array.array, tiles)
    assert isinstance(caught.value, TensorError)
    assert __file__ in str(caught.value)


@pytest.mark.parametrize("tiles", [(0, -1, 2), (0.5, 1, 2), (True, 1, 2)])
def test_tiles_that_are_none__are_refused(array, tiles):
    with pytest.raises(ValueError, match="is no tile"):
        TileShardedArray(array.array, tiles)


def test_jax_takes_it_apart_and_puts_it_together(array):
    leaves, tree = jax.tree.flatten(array)
    assert len(leaves) == 1
    assert jax.tree.unflatten(tree, leaves).tiles == TILES
    assert jax.tree.map(lambda x: None, array).array is None
    out = jax.jit(lambda x: x)(array)
    assert isinstance(out, TileShardedArray)
    assert out.tiles == TILES
    assert jax.eval_shape(lambda x: x[:2], array).tiles == (1, 2)


def test_rows_keep_their_tiles(array):
    for key, tiles in [(slice(None, 2), (1, 2)), (1, (2,)), (-1, (6,)), (slice(None, None, -1), (6, 2, 1))]:
        found = array[key]
        assert found.tiles == tiles
        np.testing.assert_array_equal(found.array, array.array[key].reshape(found.shape))
    assert array[0:0].shape == (0, 4, 5)


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), 0),
        (slice(None), slice(1, 3)),
        (slice(1, 3), slice(1, 3)),
        (slice(None), 2, slice(1, 4)),
        (slice(None), slice(2, 3), slice(1, 4)),
        (slice(None), 2, 3),
        (slice(None), slice(None), slice(None)),
        (slice(None), slice(0, 4), slice(0, 5)),
        (slice(None), slice(3, 4, 2)),
        (..., slice(0, 5)),
        (slice(None), None, slice(1, 3)),
        (0, 1),
        (),
    ],
)
def test_slices_of_one_piece__are_views(array, key):
    found = array[key]
    whole = tuple(slice(k, k + 1) if n == 0 and isinstance(k, int) else k for n, k in enumerate(key))
    np.testing.assert_array_equal(found.array, array.array[whole])
    assert found.num_tiles == found.shape[0]


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), slice(None), slice(1, 3)),
        (slice(None), slice(None), 0),
        (slice(None), slice(1, 3), slice(1, 3)),
        (slice(None), slice(None, None, 2)),
        (slice(None), slice(None, None, -1)),
        (..., 0),
        None,
        (slice(None), [0, 2]),
        "rows",
    ],
)
def test_slices_that_break_a_row__are_refused(array, key):
    with pytest.raises(ValueError, match="on tiles") as caught:
        array[key]
    assert "tile_put_sharded" in caught.value.remedy


def test_indices_outside__are_refused(array):
    for key in (3, -4, (0, 4)):
        with pytest.raises(IndexError, match="is outside of an array of shape") as caught:
            array[key]
        assert isinstance(caught.value, ValueError)
    with pytest.raises(ValueError, match="on tiles"):
        array[0, 0, 0, 0]


def test_rows_one_by_one(array):
    assert [row.tiles for row in array] == [(1,), (2,), (6,)]


def test_slices_by_themselves():
    assert check_tile_array_multi_slice((slice(None), slice(1, 2)), (3, 4, 5))
    assert check_tile_array_multi_slice((0, slice(1, 3)), (3, 4))
    assert not check_tile_array_multi_slice((slice(None), slice(None), slice(1, 2)), (3, 4, 5))
    assert check_tile_array_multi_slice((slice(None), slice(None), slice(1, 2)), (3, 1, 5))
    assert not check_tile_array_multi_slice((slice(None),) * 4, (3, 1, 5))


def test_other_shapes_of_rows(array):
    assert array.tile_reshape((20,)).shape == array.tile_reshape(20).shape == (3, 20)
    assert array.tile_reshape((2, -1)).shape == (3, 2, 10)
    assert array.reshape((3, 20)).shape == array.reshape(-1, 20).shape == (3, 20)
    wide = array.tile_reshape((1, 20, 1))
    assert wide.squeeze().shape == (3, 20)
    assert wide.squeeze(1).shape == (3, 20, 1)
    assert wide.squeeze((1, -1)).shape == (3, 20)
    assert array[:1].squeeze().shape == (1, 4, 5)
    for wrong in (lambda: array.tile_reshape((7,)), lambda: array.reshape((4, 15)), lambda: array.squeeze(1)):
        with pytest.raises(ValueError, match="shape"):
            wrong()
    with pytest.raises(ValueError, match="that of tiles"):
        array[:1].squeeze(0)


def test_concatenate_joins_tiles(array):
    both = TileShardedArray.concatenate([array, array[:1]])
    assert (both.shape, both.tiles) == ((4, 4, 5), (1, 2, 6, 1))
    with pytest.raises(ValueError, match="along the tiles"):
        TileShardedArray.concatenate([array], axis=1)
    with pytest.raises(TypeError, match="takes arrays on tiles"):
        TileShardedArray.concatenate([array, array.array])


def test_putting_on_the_host():
    x = np.arange(6.0).reshape(3, 2)
    sharded, copies = tile_put_sharded(x, TILES), tile_put_replicated(x, (4, 5))
    assert (sharded.shape, sharded.dtype, sharded.tiles) == ((3, 2), np.float32, TILES)
    assert (copies.shape, copies.tiles) == ((2, 3, 2), (4, 5))
    np.testing.assert_array_equal(copies.array[1], x)
    np.testing.assert_array_equal(tile_put_sharded(sharded, (7, 8, 9)).array, x)
    with pytest.raises(ValueError, match="on 2 tiles"):
        tile_put_sharded(x, (1, 2))
    with pytest.raises(ValueError, match="on 1 tile"):
        tile_put_sharded(np.float32(1), (1,))


def test_derivatives_go_through():
    def loss(x, w):
        y = tile_put_sharded(x, TILES)
        return jnp.sum(y.array * tile_put_replicated(w, TILES).array)

    x, w = jnp.arange(6.0).reshape(3, 2), jnp.array([2.0, 3.0])
    of_x, of_w = jax.grad(loss, (0, 1))(x, w)
    np.testing.assert_array_equal(of_x, jnp.broadcast_to(w, (3, 2)))
    np.testing.assert_array_equal(of_w, x.sum(0))


def test_samples_go_behind_tiles():
    x = jnp.arange(24.0).reshape(4, 3, 2)
    np.testing.assert_array_equal(jax.vmap(lambda x: tile_put_sharded(x, TILES).array)(x), x)
    np.testing.assert_array_equal(
        jax.vmap(lambda x: tile_put_replicated(x, (0, 1)).array)(x), np.broadcast_to(x[:, None], (4, 2, 3, 2))
    )
