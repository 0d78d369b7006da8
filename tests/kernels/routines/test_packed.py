"""The packed routine by itself: every loop of it in small blocks, between pages that must not be touched."""

import ctypes

import numpy as np
import pytest
from guarded_memory import GuardedMemory
from hypothesis import given
from hypothesis import strategies as st

from abele.kernels.routines.blocking import GROUP, Blocking, Kept, blocking, register_tile
from abele.kernels.routines.multiply import packed_routine, places_of
from abele.kernels.routines.packed import product_module
from abele.numerics import f16, f32
from support.examples import examples

POINTER, NUMBER = ctypes.c_void_p, ctypes.c_int64
ROUTINE = ctypes.CFUNCTYPE(None, POINTER, *[NUMBER] * 4, *[POINTER] * 3, NUMBER, NUMBER, POINTER)
SMALL = [
    # Lanes, rows, vectors, depth, strip, block. With masks; without; two vectors a row; elements of A by four.
    Blocking(16, 14, 2, 32, 64, 112),
    Blocking(8, 6, 2, 32, 32, 48),
    Blocking(4, 6, 2, 32, 32, 48),
    Blocking(4, 8, 3, 32, 24, 64),
]
RNG = np.random.default_rng(5)


def multiplied(sizes, shape, layout, type_=f32, *, adds=False, runs=1, kept=Kept.COLUMNS, seed=5):
    """The routine's product of random matrices with nothing accessible around them, and that of 64 bits."""
    m, n, k = shape
    memory = GuardedMemory()
    native, address = packed_routine(sizes, type_.name, type_.name)
    a = memory.array((m, k) if layout[0] == "N" else (k, m), type_.np, at_end=True)
    b = memory.array((k, n) if layout[1] == "N" else (n, k), type_.np, at_end=True)
    c = memory.array((m, n), np.dtype(np.float32), at_end=True)
    random = np.random.default_rng(seed)
    for array in (a, b, c):
        array[...] = random.standard_normal(array.shape)
    left = (((m, k),), ((k, 1),)) if layout[0] == "N" else (((m, 1),), ((k, m),))
    right = (((k, n),), ((n, 1),)) if layout[1] == "N" else (((k, 1),), ((n, k),))
    places = places_of([*left, *right, ((m, n),), ((n, 1),)], kept)
    work = memory.array((sizes.work_bytes(shape, kept) // 4,), np.dtype(np.float32), at_end=True)
    # Nothing but what was packed may be read.
    work[...] = np.nan
    wide = [x.astype(np.float64) for x in (a, b)]
    wanted = (wide[0] if layout[0] == "N" else wide[0].T) @ (wide[1] if layout[1] == "N" else wide[1].T)
    before = c.astype(np.float64)
    for run in range(runs):
        pointers = (x.ctypes.data for x in (a, b, c))
        ROUTINE(address)(places.address, 0, m, 0, n, *pointers, int(adds), int(run > 0), work.ctypes.data)
    assert native is not None
    return c, (before + runs * wanted if adds else wanted)


@pytest.mark.parametrize("sizes", SMALL, ids=["16", "8", "4 by 6", "4 by 8"])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("shape", [(101, 117, 75), (224, 96, 64), (61, 40, 3), (1, 1, 1)])
def test_packed__over_blocks_strips_and_slices__stays_inside_and_agrees_with_64_bits(sizes, layout, shape):
    got, wanted = multiplied(sizes, shape, layout)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@examples(10)
@given(
    shape=st.tuples(st.integers(1, 130), st.integers(1, 130), st.integers(1, 70)),
    layout=st.sampled_from(["NN", "NT", "TN", "TT"]),
    sizes=st.sampled_from(SMALL),
)
def test_packed__of_any_shape__adds_onto_what_is_there(shape, layout, sizes):
    got, wanted = multiplied(sizes, shape, layout, adds=True)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("sizes", SMALL, ids=["16", "8", "4 by 6", "4 by 8"])
@pytest.mark.parametrize("kept", [Kept.COLUMNS, Kept.ROWS])
@pytest.mark.parametrize("shape", [(101, 117, 75), (9, 200, 33)])
def test_packed__of_what_is_held_from_before__reads_it_again(sizes, kept, shape):
    got, wanted = multiplied(sizes, shape, "TN", adds=True, runs=2, kept=kept)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-4)


@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_packed__where_nothing_is_kept__packs_a_slice_at_a_time(layout):
    sizes = SMALL[1]
    assert sizes.work_bytes((101, 117, 75), Kept.NOTHING) == 4 * (sizes.panel_elements + sizes.depth * 128)
    got, wanted = multiplied(sizes, (101, 117, 75), layout, kept=Kept.NOTHING)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@examples(10)
@given(
    shape=st.tuples(st.integers(1, 130), st.integers(1, 130), st.integers(1, 70)),
    layout=st.sampled_from(["NN", "NT", "TN", "TT"]),
    sizes=st.sampled_from(SMALL),
)
def test_packed__whatever_is_kept__has_the_same_bits(shape, layout, sizes):
    results = []
    for kept in Kept:
        results.append(multiplied(sizes, shape, layout, kept=kept, seed=7)[0])
    assert (results[0] == results[1]).all()
    assert (results[0] == results[2]).all()


@pytest.mark.parametrize("sizes", SMALL, ids=["16", "8", "4 by 6", "4 by 8"])
@pytest.mark.parametrize("type_", [f32, f16])
@pytest.mark.parametrize("block", [2, 4, 8, 16, 48])
def test_packed__of_operands_in_blocks__agrees_with_64_bits(sizes, type_, block):
    m, n, k = 2 * 48, 3 * 48, 37
    native, address = packed_routine(sizes, type_.name, type_.name)
    memory = GuardedMemory()
    a, b = (memory.array((e // block, k, block), type_.np, at_end=True) for e in (m, n))
    c = memory.array((m, n), np.dtype(np.float32), at_end=True)
    for array in (a, b):
        array[...] = RNG.standard_normal(array.shape)

    def blocks(extent):
        return ((extent // block, k * block), (block, 1))

    places = places_of([blocks(m), ((k, block),), ((k, block),), blocks(n), ((m, n),), ((n, 1),)], Kept.NOTHING)
    work = memory.array((sizes.work_bytes((m, n, k), Kept.NOTHING) // 4,), np.dtype(np.float32), at_end=True)
    work[...] = np.nan
    # From an odd row and column on, panels are no whole runs.
    for first in (0, 5):
        pointers = (x.ctypes.data for x in (a, b, c))
        ROUTINE(address)(places.address, first, m - first, first, n - first, *pointers, 0, 0, work.ctypes.data)
        left, right = (x.astype(np.float64).transpose(1, 0, 2).reshape(k, -1) for x in (a, b))
        np.testing.assert_allclose(c[first:, first:], (left.T @ right)[first:, first:], rtol=0, atol=1e-4)
    assert native is not None


@pytest.mark.parametrize("layout", ["NN", "TN"])
def test_packed__of_half_floats__is_widened_in_groups_and_alone(layout):
    got, wanted = multiplied(SMALL[1], (101, 117, 75), layout, f16)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("lanes", "registers", "tile"),
    [(16, 32, (14, 2)), (8, 16, (6, 2)), (4, 32, (8, 3)), (4, 16, (6, 2))],
    ids=["AVX-512", "AVX2", "NEON", "SSE"],
)
def test_register_tile__of_each_register_file__is_the_one_of_most_reuse(lanes, registers, tile):
    rows, vectors = register_tile(lanes, registers)
    assert (rows, vectors) == tile
    assert rows * vectors + vectors + (rows // lanes if tile == (8, 3) else 1) <= registers


@pytest.mark.parametrize("own_bytes", [1 << 18, 1 << 20, 1 << 22])
@pytest.mark.parametrize("near_bytes", [1 << 15, 1 << 16])
def test_blocking__of_any_caches__has_whole_groups_and_fits(near_bytes, own_bytes):
    sizes = blocking(8, 16, near_bytes, own_bytes)
    assert sizes.block % (GROUP * sizes.rows) == 0
    assert sizes.strip % sizes.columns == 0
    assert 4 * sizes.rows * sizes.depth <= near_bytes // 2
    assert sizes.strip == sizes.columns or 4 * sizes.strip * sizes.depth <= own_bytes // 2


def test_packed__without_avx512__stores_under_masks_at_edges_alone():
    functions = str(product_module(blocking(8, 16, 1 << 15, 1 << 19), "f32", "f32", "edges")).split("define ")
    masked = {
        f.partition("@")[2].partition("(")[0].strip('"') for f in functions if "call void @llvm.masked.store" in f
    }
    assert masked <= {"edges_rows", "edges_columns"}, masked
