"""Packing: packed addresses are those of sorting all pieces, however many variables are mapped alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele import Graph, f32
from abele.compiler import layout as layout_module
from abele.compiler.layout import Layout, pack
from abele.graph.mapping import TileMapping

TILES = 12

Mappings = st.lists(st.lists(st.tuples(st.integers(-1, 5), st.integers(1, 3)), min_size=1, max_size=6), max_size=4)


def columns(mappings: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Begins, ends, tiles and pointers of variables that are given as lengths and tiles of their pieces."""
    length = np.concatenate([np.empty(0, np.int64), *(m[0] for m in mappings)])
    tile = np.concatenate([np.empty(0, np.int32), *(m[1] for m in mappings)])
    end = np.cumsum(length)
    return end - length, end, tile, np.cumsum([0, *(len(m[0]) for m in mappings)])


@given(Mappings, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 6)), max_size=8), st.booleans())
def test_pack__variables_mapped_alike__is_what_sorting_each_element_gives(
    mappings: list[list[tuple[int, int]]], again: list[tuple[int, int]], compared: bool
) -> None:
    made = [(np.array([n for _, n in m]), np.array([t for t, _ in m], dtype=np.int32)) for m in mappings]
    for which, further in again:
        if made:
            length, tile = made[which % len(made)]
            made.append((length, np.where(tile < 0, tile, tile + further).astype(np.int32) % TILES))
    begin, end, tile, ptr = columns(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout_module, "_LEAST_COMPARED", 1 if compared else 1000)
        found = pack(begin, end, tile, ptr, TILES)
    pieces = np.arange(len(begin))
    owner = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    packed, share = found.at(pieces, owner)
    if not found.is_shared:
        assert (found.packed.tolist(), found.share.tolist()) == (packed.tolist(), share.tolist())
    for variable in range(len(ptr) - 1):
        own = slice(ptr[variable], ptr[variable + 1])
        tiles = np.repeat(tile[own], (end - begin)[own])
        first = begin[ptr[variable]]
        place = np.empty(len(tiles), dtype=np.int64)
        place[np.argsort(tiles, kind="stable")] = first + np.arange(len(tiles))
        assert packed[own].tolist() == place[begin[own] - first].tolist()
        shares = [int(place[tiles == t].min()) for t in tile[own]]
        assert share[own].tolist() == shares
        held = slice(found.shares.ptr[variable], found.shares.ptr[variable + 1])
        numbers, counts = np.unique(tiles[tiles >= 0], return_counts=True)
        assert found.shares.tile[held].tolist() == numbers.tolist()
        assert found.shares.elements[held].tolist() == counts.tolist()


def test_pack__a_model_on_each_ipu__is_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("bow-2000")
    each = graph.system.ipu.num_tiles
    order = np.random.default_rng(0).permutation(each)
    for ipu in range(4):
        graph.variable(f32, (each, 2), f"x{ipu}").map_rows((ipu * each + order).tolist())
    graph.variable(f32, 3, "last").map(7)
    sorted_pieces = []
    original = layout_module._sorted

    def noted(*columns: Any) -> object:
        sorted_pieces.append(len(columns[0]))
        return original(*columns)

    monkeypatch.setattr(layout_module, "_sorted", noted)
    layout = Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)
    assert sorted_pieces == [each + 1]
    shares = layout.packing.shares
    assert shares.tile[shares.ptr[2] : shares.ptr[3]].tolist() == list(range(2 * each, 3 * each))


def test_layout__empty_variables_between_others__have_no_shares() -> None:
    graph = Graph("bow-2000:1")
    for number, size in enumerate((0, 3, 0, 0, 2)):
        graph.variable(f32, size, f"v{number}").map(number)
    layout = Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)
    assert np.diff(layout.packing.shares.ptr).tolist() == [0, 1, 0, 0, 1]
    assert isinstance(graph.variables[0].mapping, TileMapping)
