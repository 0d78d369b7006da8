"""Whole programs on tiles: products, transforms, automata, sorts, integrals, molecules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from abele import jax as ajax
from abele.jax.tessellate import (
    TileShardedArray,
    ipu_cycle_count,
    tile_constant_replicated,
    tile_constant_sharded,
    tile_gather,
    tile_map,
    tile_put_replicated,
    tile_put_sharded,
    tile_random_uniform,
)
from abele.jax.tessellate.lax import add_inplace_p, rotation2d_p, sub_inplace_p
from abele.jax.tessellate.linalg import ipu_eigh

RNG = np.random.default_rng(0)


def test_a_product_in_blocks_of_a_grid_of_tiles():
    """C's block (i, j) on tile 4 · i + j: rows of A and columns of B go to a row and a column of the grid."""
    grid, block = 4, 8
    tiles = tuple(range(grid * grid))
    a, b = (RNG.normal(size=(grid * block, grid * block)).astype(np.float32) for _ in range(2))
    along = (((1,), (0,)), ((), ()))

    @ajax.jit
    def product(a, b):
        rows = a.reshape(grid, block, grid * block)
        columns = jnp.moveaxis(b.reshape(grid * block, grid, block), 1, 0)
        left = tile_gather(rows, [t // grid for t in tiles], tiles)
        right = tile_gather(columns, [t % grid for t in tiles], tiles)
        left, right, start = ipu_cycle_count(left, right)
        c = tile_map(lax.dot_general_p, left, right, dimension_numbers=along)
        c, end = ipu_cycle_count(c)
        blocks = c.array.reshape(grid, grid, block, block)
        return jnp.swapaxes(blocks, 1, 2).reshape(grid * block, grid * block), start, end

    c, start, end = product(a, b)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
    cycles = int(np.asarray(end)[0, 0] - np.asarray(start)[0, 0])
    assert block**2 * grid * block / 6 < cycles / 6 < 12 * block**2 * grid * block / 6


def test_a_fourier_transform_by_butterflies():
    """A number on each of 16 tiles; stage s pairs those whose numbers differ in bit s."""
    num, stages = 16, 4
    tiles = tuple(range(1, num + 1))
    number = np.arange(num)
    turned = np.array([int(f"{n:04b}"[::-1], 2) for n in range(num)])

    @ajax.jit
    def transform(re, im):
        re, im = (tile_gather(v.reshape(num, 1), turned, tiles) for v in (re, im))
        for s in range(stages):
            half = 1 << s
            low = (number & half) == 0
            angle = -np.pi * (number % half) / half
            cs = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
            sign = np.where(low, 1.0, -1.0).astype(np.float32)[:, None]
            first = [tile_gather(v, number & ~half, tiles) for v in (re, im)]
            second = [tile_gather(v, number | half, tiles) for v in (re, im)]
            second = tile_map(rotation2d_p, tile_constant_sharded(cs, tiles), *second)
            signs = tile_constant_sharded(sign, tiles)
            re, im = (tile_map(lax.add_p, a, tile_map(lax.mul_p, signs, b)) for a, b in zip(first, second, strict=True))
        return re.array[:, 0], im.array[:, 0]

    x = (RNG.normal(size=num) + 1j * RNG.normal(size=num)).astype(np.complex64)
    re, im = transform(x.real, x.imag)
    np.testing.assert_allclose(re + 1j * im, np.fft.fft(x), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_game_of_life():
    """A row of the board on each tile; a generation reads the rows above and below."""
    size, generations = 12, 6
    tiles, number = tuple(range(3, 3 + size)), np.arange(size)
    board = (RNG.random((size, size)) < 0.4).astype(np.int32)

    def generation(_, rows):
        beside = tile_map(lax.add_p, rows, around(rows, 1))
        beside = tile_map(lax.add_p, beside, around(rows, -1))
        total = tile_map(lax.add_p, beside, tile_gather(beside, (number - 1) % size, tiles))
        total = tile_map(lax.add_p, total, tile_gather(beside, (number + 1) % size, tiles))
        three, four = (tile_constant_replicated(np.full(size, n, np.int32), tiles) for n in (3, 4))
        born = tile_map(lax.eq_p, total, three)
        stays = tile_map(lax.and_p, tile_map(lax.eq_p, total, four), tile_map(lax.gt_p, rows, zeros()))
        return tile_map(lax.convert_element_type_p, tile_map(lax.or_p, born, stays), new_dtype=np.dtype(np.int32))

    def zeros():
        return tile_constant_replicated(np.zeros(size, np.int32), tiles)

    def around(rows, by):
        columns = tile_constant_replicated(((number - by) % size).astype(np.int32)[:, None], tiles)
        dims = lax.GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(0,), start_index_map=(0,))
        return tile_map(lax.gather_p, rows, columns, dimension_numbers=dims, slice_sizes=(1,))

    @ajax.jit
    def life(board):
        return lax.fori_loop(0, generations, generation, tile_put_sharded(board, tiles))

    want = board
    for _ in range(generations):
        near = sum(np.roll(want, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - want
        want = ((near == 3) | ((near == 2) & (want == 1))).astype(np.int32)
    np.testing.assert_array_equal(np.asarray(life(board)), want)


def test_a_bitonic_sort():
    num, bits = 16, 4
    tiles, number = tuple(range(num)), np.arange(num)
    x = RNG.normal(size=(num, 3)).astype(np.float32)

    @ajax.jit
    def ordered(x):
        v = tile_put_sharded(x, tiles)
        for k in range(1, bits + 1):
            for j in reversed(range(k)):
                other = tile_gather(v, number ^ (1 << j), tiles)
                takes_small = (((number >> j) & 1) == ((number >> k) & 1)) if k < bits else ((number >> j) & 1) == 0
                flag = tile_constant_sharded(takes_small, tiles)
                small, large = tile_map(lax.min_p, v, other), tile_map(lax.max_p, v, other)
                v = tile_map(lax.select_n_p, flag, large, small)
        return v

    np.testing.assert_array_equal(np.asarray(ordered(x)), np.sort(x, 0))


@pytest.mark.slow
def test_pi_by_throwing_darts():
    tiles, darts = tuple(range(64)), 500

    @ajax.jit
    def quarter():
        x, y = (tile_random_uniform(tiles, darts, np.float32, 0.5, 1.0) for _ in range(2))
        r = tile_map(add_inplace_p, tile_map(lax.mul_p, x, x), tile_map(lax.mul_p, y, y))
        inside = tile_map(lax.lt_p, r, tile_constant_replicated(np.ones(darts, np.float32), tiles))
        hits = tile_map(lax.convert_element_type_p, inside, new_dtype=np.dtype(np.float32))
        return 4 * jnp.mean(tile_map(lax.reduce_sum_p, hits, axes=(0,)).array) / darts

    first, second = float(quarter()), float(quarter())
    assert first != second
    assert abs((first + second) / 2 - np.pi) < 0.04


@pytest.mark.parametrize("atoms", [6, pytest.param(10, marks=pytest.mark.slow)])
def test_orbitals_of_a_ring_of_carbon(atoms):
    """Hückel's method: energies α + 2β cos(2πk / n), of a matrix with β between neighbours."""
    alpha, beta = np.float32(-11.4), np.float32(-2.5)
    ring = alpha * np.eye(atoms, dtype=np.float32)
    ring += beta * (np.roll(np.eye(atoms), 1, 0) + np.roll(np.eye(atoms), -1, 0)).astype(np.float32)

    @ajax.jit
    def orbitals(h):
        vectors, energies = ipu_eigh(h, num_iters=6)
        filled = vectors[:, : atoms // 2]
        return energies, 2 * jnp.sum(energies[: atoms // 2]), 2 * filled @ filled.T

    energies, total, density = orbitals(ring)
    want = np.sort(alpha + 2 * beta * np.cos(2 * np.pi * np.arange(atoms) / atoms))
    np.testing.assert_allclose(energies, want, atol=2e-5)
    np.testing.assert_allclose(total, 2 * want[: atoms // 2].sum(), rtol=1e-5)
    np.testing.assert_allclose(np.diag(density), 1, atol=1e-4)


def test_shortest_paths():
    """Floyd and Warshall: a row of distances on each tile, of which one goes to all in each of n steps."""
    num = 8
    tiles = tuple(range(num))
    weights = np.where(RNG.random((num, num)) < 0.5, RNG.integers(1, 20, (num, num)), 10_000).astype(np.float32)
    np.fill_diagonal(weights, 0)

    @ajax.jit
    def paths(weights):
        rows = tile_put_sharded(weights, tiles)
        for k in range(num):
            through = tile_put_replicated(rows.array[k], tiles)
            step = tile_put_sharded(jnp.broadcast_to(rows.array[:, k : k + 1], (num, num)), tiles)
            rows = tile_map(lax.min_p, rows, tile_map(lax.add_p, through, step))
        return rows

    want = weights.copy()
    for k in range(num):
        want = np.minimum(want, want[:, k : k + 1] + want[k])
    np.testing.assert_array_equal(np.asarray(paths(weights)), want)


def test_training_with_rows_on_tiles():
    """Linear regression: JAX differentiates through placement, updates are made in place on tiles."""
    tiles = tuple(range(8))
    x = RNG.normal(size=(8, 4, 3)).astype(np.float32)
    truth = np.array([1.0, -2.0, 0.5], np.float32)
    y = x @ truth

    def loss(w, x, y):
        w, x = tile_put_replicated(w, tiles), tile_put_sharded(x, tiles)
        guess = tile_map(lax.dot_general_p, x, w, dimension_numbers=(((1,), (0,)), ((), ())))
        off = tile_map(sub_inplace_p, guess, tile_put_sharded(y, tiles))
        return jnp.mean(tile_map(lax.square_p, off).array)

    step = ajax.jit(lambda w, x, y: (loss(w, x, y), w - 0.3 * jax.grad(loss)(w, x, y)))
    w, losses = np.zeros(3, np.float32), []
    for _ in range(40):
        value, w = step(w, x, y)
        losses.append(float(value))
    assert losses[-1] < 1e-5 * losses[0]
    np.testing.assert_allclose(w, truth, atol=1e-2)
    assert isinstance(tile_put_sharded(x, tiles), TileShardedArray)
