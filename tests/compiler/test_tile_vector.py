"""Tile vectors: whatever is listed, they are the dense arrays that they stand for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import tile_vector
from abele.compiler.tile_vector import TileRows, TileSet, TileTotal, TileVector, added

TILES = 40

Entries = st.lists(st.tuples(st.integers(0, TILES - 1), st.integers(0, 9)), max_size=30)


@st.composite
def vectors(draw: st.DrawFn) -> TileVector:
    """A vector that lists some tiles, all others having one number."""
    tiles = sorted(draw(st.sets(st.integers(0, TILES - 1), max_size=TILES)))
    elsewhere = draw(st.sampled_from([0, 0, 3])) if len(tiles) < TILES else 0
    values = draw(st.lists(st.integers(0, 9), min_size=len(tiles), max_size=len(tiles)))
    return TileVector(TileSet(np.array(tiles, dtype=np.int32), TILES), np.array([*values, elsewhere], dtype=np.int64))


@given(Entries)
def test_sum_of__any_entries__is_the_dense_sum(entries: list[tuple[int, int]]) -> None:
    tile = np.array([t for t, _ in entries], dtype=np.int32)
    amount = np.array([n for _, n in entries], dtype=np.int64)
    expected = np.zeros(TILES, dtype=np.int64)
    np.add.at(expected, tile, amount)
    assert TileVector.sum_of(tile, amount, TILES).tolist() == expected.tolist()


@given(vectors())
def test_tile_vector__every_question__is_answered_as_of_the_dense_array(vector: TileVector) -> None:
    dense = vector.dense()
    assert vector.max() == dense.max()
    assert vector.sum() == dense.sum()
    assert vector.any() == dense.any()
    assert vector.count_nonzero() == np.count_nonzero(dense)
    assert vector.nonzero().tolist() == np.flatnonzero(dense).tolist()
    assert [vector[t] for t in range(TILES)] == dense.tolist() == vector.tolist() == np.asarray(vector).tolist()
    best = np.argsort(-dense, kind="stable")[:3]
    assert vector.largest(3) == [(int(t), int(dense[t])) for t in best if dense[t]]
    assert vector.times(5).tolist() == (5 * dense).tolist()
    packed = vector.packed()
    assert packed.tolist() == dense.tolist()
    assert packed.values.dtype == np.int32
    total = np.arange(TILES)
    vector.add_to(total, 2)
    assert total.tolist() == (np.arange(TILES) + 2 * dense).tolist()


@given(st.lists(st.one_of(st.none(), vectors()), max_size=4))
def test_added__any_vectors__is_the_sum_of_the_dense_arrays(terms: list[TileVector | None]) -> None:
    dense = sum((t.dense() for t in terms if t is not None), np.zeros(TILES, dtype=np.int64))
    assert added(terms, TILES).tolist() == dense.tolist()
    total = TileTotal(TILES)
    for term in terms:
        if term is not None:
            total.add(term, 3)
    assert total.vector().tolist() == (3 * dense).tolist()


@given(st.lists(vectors(), max_size=9), st.sampled_from([1, 8, TILES]))
def test_tile_total__however_soon_it_is_combined__is_the_dense_sum(terms: list[TileVector], part: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_vector, "_DENSE_PART", part)
        total = TileTotal(TILES)
        for term in terms:
            total.add(term)
        dense = sum((t.dense() for t in terms), np.zeros(TILES, dtype=np.int64))
        assert total.vector().tolist() == dense.tolist()
        assert total.vector().sum() == dense.sum()


def test_tile_total__few_tiles_again_and_again__keeps_one_entry_for_each() -> None:
    total, tiles = TileTotal(1_000_000), np.array([5, 900_000], dtype=np.int32)
    for _ in range(100_000):
        total.add(TileVector(TileSet(tiles, 1_000_000), np.array([1, 2, 0])))
    assert total.vector().tile_set.tiles.tolist() == [5, 900_000]
    assert (total.vector()[5], total.vector()[900_000], total.vector()[6]) == (100_000, 200_000, 0)


@given(vectors(), st.lists(st.integers(0, TILES - 1), max_size=9))
def test_at__some_tiles__are_those_of_the_dense_array(vector: TileVector, tiles: list[int]) -> None:
    assert vector.at(np.array(tiles, dtype=np.int64)).tolist() == [int(vector.dense()[t]) for t in tiles]


@given(st.lists(st.one_of(st.none(), vectors()), max_size=4))
def test_tile_rows__of_vectors__give_each_back(terms: list[TileVector | None]) -> None:
    rows = TileRows.of(terms)
    for i, term in enumerate(terms):
        dense = np.full(TILES, rows.elsewhere[i])
        own = slice(rows.ptr[i], rows.ptr[i + 1])
        dense[rows.tile[own]] = rows.value[own]
        assert dense.tolist() == ([0] * TILES if term is None else term.tolist())


@pytest.mark.parametrize("dense", [False, True])
def test_shifted__by_an_ipu__moves_every_number(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_vector, "_DENSE_PART", TILES if dense else 0)
    vector = TileVector.sum_of(np.array([3, 1], dtype=np.int32), np.array([5, 6]), TILES)
    assert vector.tile_set.is_all == dense
    assert vector.shifted(10).nonzero().tolist() == [11, 13]
    assert (vector.shifted(10)[11], vector.shifted(10)[13], vector.shifted(10).sum()) == (6, 5, 11)


def test_tile_vector__tile_beyond_the_machine__is_an_index_error() -> None:
    with pytest.raises(IndexError, match="tile 40 of 40"):
        TileVector.zero(TILES)[TILES]


@pytest.mark.parametrize("dense", [False, True])
def test_tile_total__of_the_largest__keeps_the_larger_on_each_tile(
    dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tile_vector, "_DENSE_PART", TILES if dense else 0)
    total = TileTotal(4, np.maximum)
    for values in ([0, 3, 1, 0], [2, 1, 1, 0]):
        total.add(TileVector.of_dense(values))
    assert total.vector().tolist() == [2, 3, 1, 0]
