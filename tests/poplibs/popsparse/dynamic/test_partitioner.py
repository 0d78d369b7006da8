"""The Partitioner: formats both ways, spills, the layout of buckets, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import PatternMismatchError, SparseOverflowError, SparsePatternError, TypeMismatchError
from abele.poplibs.popsparse import COOMatrix, CSCMatrix, CSRMatrix, dynamic
from abele.sparsity import Pattern, random_pattern
from poplibs.popsparse.dynamic.sparse_kit import grid, tiles_of, values_of
from support.examples import examples

BLOCKS = ((1, 1), (4, 4), (2, 6), (12, 12), (4, 2))


def partitioner(
    shape: tuple[int, int], density: float, block: tuple[int, int] = (1, 1), groups: int = 1, **options: Any
) -> Any:
    params = dynamic.MatMulParams.createWithNzRatio(
        dynamic.SparsityParams(blockDimensions=block), density, groups, *shape, 8
    )
    return dynamic.Partitioner(params, "float", tiles_of(), options)


@examples(40)
@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(BLOCKS),
    st.floats(0, 1),
    st.sampled_from([0.1, 0.3, 1.0]),
    st.booleans(),
    st.integers(0, 2**16),
)
def test_partitioner__random_matrix__comes_back_in_all_formats(
    rows: int, columns: int, block: tuple[int, int], density: float, oversize: float, nearest: bool, seed: int
) -> None:
    shape = rows * block[0], columns * block[1]
    pattern = random_pattern(shape, density, block, seed=seed)
    values = values_of([pattern], "f4", seed)[0]
    options: dict[str, Any] = {
        "metaInfoBucketOversizeProportion": oversize,
        "partitioner.optimiseForSpeed": nearest,
    }
    made = partitioner(shape, density, block, **options)
    wanted = pattern.to_dense(values)
    try:
        filled = [
            made.createSparsityDataImpl(f.from_pattern(pattern, values)) for f in (COOMatrix, CSRMatrix, CSCMatrix)
        ]
    except SparseOverflowError:
        return  # too uneven for buckets that are hardly larger than an even pattern's
    for data in filled:
        np.testing.assert_array_equal(data.metaInfo, filled[0].metaInfo)
        np.testing.assert_array_equal(data.nzValues, filled[0].nzValues)
    for back in (
        made.sparsityDataImplToCOOMatrix(filled[0]),
        made.sparsityDataImplToCSRMatrix(filled[0]),
        made.sparsityDataImplToCSCMatrix(filled[0]),
    ):
        np.testing.assert_array_equal(back.to_dense(), wanted)


SIZES = [(100, 0.05, 0.1, 1), (100, 0.1, 0.1, 4), (1000, 0.1, 0.1, 1), (1000, 0.05, 0.1, 4), (64, 1.0, 0.005, 1)]


@pytest.mark.parametrize(("size", "density", "oversize", "block"), SIZES)
def test_partitioner__sizes_of_upstreams_tests__come_back(
    size: int, density: float, oversize: float, block: int
) -> None:
    made = partitioner((size, size), density, (block, block), metaInfoBucketOversizeProportion=oversize)
    pattern = random_pattern((size, size), density, (block, block))
    values = values_of([pattern], "f4")[0]
    data = made.createSparsityDataImpl((pattern, values))
    (found, back), *_ = made.read(data)
    assert found == pattern
    np.testing.assert_array_equal(back, values)
    assert data.metaInfo.dtype == np.uint16
    assert data.nzValues.size == made.plan.num_values


@examples(25)
@given(
    st.integers(0, 2**16), st.sampled_from([(6, 4, 1), (2, 2, 4), (1, 5, 2), (5, 1, 2)]), st.booleans(), st.booleans()
)
def test_partitioner__skewed_pattern__every_block_is_in_one_bucket(
    seed: int, parts: tuple[int, int, int], shared: bool, forced: bool
) -> None:
    options = {
        "sharedBuckets": shared,
        "partitioner.forceBucketSpills": forced,
        "metaInfoBucketOversizeProportion": 2.0,
    }
    params = dynamic.FullyConnectedParams.createWithNzRatio(dynamic.SparsityParams(), 0.2, 8, 1, 40, 48)
    made = dynamic.Partitioner(params, "float", tiles_of(), {**options, **grid(*parts), "doGradAPass": True})
    rng = np.random.default_rng(seed)
    held = rng.random((48, 40)) < np.outer(rng.random(48) ** 3, rng.random(40) ** 3)
    pattern = Pattern.from_dense_mask(held)
    if pattern.num_values > params.numNonZeroValues:
        return
    try:
        place = made.place(pattern)
    except SparseOverflowError:
        return
    assert len(np.unique(place.slots)) == pattern.num_values
    plan = made.plan
    filled = np.bincount(place.placed.bucket, minlength=plan.num_tiles)
    assert filled.max(initial=0) <= plan.nz_slots
    # The farthest bucket is as far away as the overflow info says.
    home = place.placed.bucket // plan.parts[2]
    far_y = (home % plan.parts[1] - place.placed.cell % plan.parts[1]) % plan.parts[1]
    far_x = (home // plan.parts[1] - place.placed.cell // plan.parts[1]) % plan.parts[0]
    assert far_x.max(initial=0) < place.info[0]
    assert far_y.max(initial=0) < place.info[1]
    assert set(np.flatnonzero(place.info[3 : 3 + plan.parts[0]])) >= set(far_x.tolist())


def test_buckets__example_of_the_layout__is_as_written() -> None:
    made = partitioner((4, 4), 3 / 16, **grid(1, 1, 1))
    data = made.createSparsityDataImpl(CSRMatrix(4, 4, [5, 6, 7], [1, 3, 0], [0, 2, 2, 3, 3]))
    bucket = data.metaInfo[made.plan.info_slots :].tolist()
    assert data.metaInfo[: made.plan.info_slots].tolist() == [1, 1, 1, 1]
    assert bucket[:9] == [1, 0, 0, 3, 46, 8, 2, 0, 6]
    assert bucket[39:46] == [0, 2, 1, 3, 2, 1, 0]
    assert not any(bucket[46:])
    assert data.nzValues[:3].tolist() == [5, 6, 7]


def test_partitioner__spill_of_one_cell__goes_to_the_next_along_y() -> None:
    made = partitioner((8, 8), 0.75, metaInfoBucketOversizeProportion=0.3, **grid(2, 2, 1))
    held = np.zeros((8, 8), bool)
    held[:4, :4] = True
    held[:4, 4:6] = True
    held[4:, :2] = True
    place = made.place(Pattern.from_dense_mask(held))
    assert place.info[:2].tolist() == [1, 2] if place.passes else place.info[:2].tolist() == [1, 1]


def test_partitioner__blocks_cut_for_the_device__are_put_together_again() -> None:
    made = partitioner((72, 48), 0.5, (24, 24))
    assert made.plan.block == (8, 8)
    pattern = random_pattern((72, 48), 0.5, (24, 24))
    values = values_of([pattern], "f4")[0]
    back = made.sparsityDataImplToCSRMatrix(made.createSparsityDataImpl((pattern, values)))
    assert back.blockDimensions == (24, 24)
    np.testing.assert_array_equal(back.to_dense(), pattern.to_dense(values))


def test_placement__explicit_zeros_and_empty_matrices__are_held() -> None:
    made = partitioner((16, 16), 0.25)
    pattern = random_pattern((16, 16), 0.2)
    data = made.createSparsityDataImpl((pattern, np.zeros(pattern.num_values)))
    assert made.read(data)[0][0] == pattern
    empty = random_pattern((16, 16), 0.0)
    assert made.read(made.createSparsityDataImpl((empty, [])))[0][0] == empty


def test_placement__pack_and_unpack__are_inverse_and_leave_unused_slots_zero() -> None:
    made = partitioner((16, 16), 0.25)
    place = made.place(random_pattern((16, 16), 0.2))
    values = np.arange(1.0, place.slots.size + 1)
    packed = place.pack(values)
    np.testing.assert_array_equal(place.unpack(packed), values)
    assert np.count_nonzero(packed) == values.size
    with pytest.raises(SparsePatternError, match="values for patterns that hold"):
        place.pack(values[:-1])


def test_partitioner__more_values_than_declared__is_an_overflow() -> None:
    made = partitioner((16, 16), 0.1)
    with pytest.raises(SparseOverflowError, match=r"51 values, declared were 26 \(0\.102 of the elements\)"):
        made.place(random_pattern((16, 16), 51 / 256))


def test_partitioner__no_room_left__names_cell_and_remedy() -> None:
    made = partitioner((64, 64), 0.5, metaInfoBucketOversizeProportion=0.0, **grid(4, 4, 1))
    held = np.zeros((64, 64), bool)
    held[:32] = True  # half of the cells have all values, and their meta-info is beyond all buckets' together
    held[32:, 0], held[0, :32] = True, False
    with pytest.raises(SparseOverflowError, match=r"overflow in buckets: .* of cell \(\d, \d\) of group 0") as raised:
        made.place(Pattern.from_dense_mask(held))
    assert "metaInfoBucketOversizeProportion 0 →" in str(raised.value)


def test_partitioner__matrix_of_other_sizes__is_refused() -> None:
    made = partitioner((16, 16), 0.5, groups=2)
    with pytest.raises(SparsePatternError, match="1 matrices for 2 groups"):
        made.place(random_pattern((16, 16), 0.1))
    with pytest.raises(SparsePatternError, match="declared were 16 x 16"):
        made.place([random_pattern((16, 8), 0.1)] * 2)
    with pytest.raises(SparsePatternError, match="blocks of 4 x 4, declared were 1 x 1"):
        made.place([random_pattern((16, 16), 0.1, (4, 4))] * 2)
    with pytest.raises(TypeMismatchError, match="a sparse matrix is a COOMatrix"):
        made.createSparsityDataImpl([np.eye(16), np.eye(16)])


def test_reading__meta_info_of_another_plan_or_damaged__is_refused() -> None:
    one, other = partitioner((64, 64), 0.2), partitioner((64, 64), 0.4)
    pattern = random_pattern((64, 64), 0.1)
    data = one.createSparsityDataImpl((pattern, np.ones(pattern.num_values)))
    with pytest.raises(PatternMismatchError, match="this plan's"):
        other.read(data)
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = data.metaInfo.copy()
        damaged[rng.integers(0, damaged.size, 3)] = rng.integers(0, 1 << 16, 3)
        try:
            one.read(dynamic.SparsityData(damaged, data.nzValues))
        except SparsePatternError:
            continue
