from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Layout, exchange, field_uses, multicast_groups, plan_exchange
from abele.compiler.durations import copy_cycles_by_tile
from abele.compiler.exchange import ExchangePlan, FieldWish, in_domains
from abele.compiler.multicast_groups import Audiences, WantedRegions, find_audiences
from abele.compiler.region_tiles import foreign_pairs, residence_of
from abele.graph import Graph, concat, shared
from abele.numerics import f16, f32
from compiler.support import Reader, ReadHalf, Update, small_system

COLUMNS = ("received_bytes", "sent_bytes", "received_fragments", "sent_fragments", "paired_bytes")


def wanted(lists: dict[int, list[int]], domain: int = 0) -> WantedRegions:
    """Regions of one field wanted by tiles."""
    pairs = sorted((tile, region) for tile, regions in lists.items() for region in regions)
    tile, region = np.array(pairs, dtype=np.int64).T
    return WantedRegions(tile.astype(np.int32), region, domain)


def members(found: Audiences) -> list[list[int]]:
    """The tiles of each audience."""
    return [found.tile[found.owner == n].tolist() for n in range(len(found))]


def tiles_by_themselves(fields: Sequence[WantedRegions], num_tiles: int) -> tuple[Audiences, list[Any]]:
    """As ``find_audiences``, for tiles that have nothing in common."""
    found, receiver = Audiences.alone(np.concatenate([f.tile for f in fields]), num_tiles)
    ends = np.cumsum([len(f.tile) for f in fields])[:-1]
    return found, [(r, f.region) for r, f in zip(np.split(receiver, ends), fields, strict=True)]


def everything(plan: ExchangePlan, graph: Graph) -> list[Any]:
    """All numbers of a plan."""
    found: list[Any] = [plan.buffer_bytes.tolist()]
    for phase in (plan.before, plan.after):
        if phase is not None:
            found += [getattr(phase, name).tolist() for name in COLUMNS]
            found.append(phase.link_bytes.dense(graph.system.num_ipus).tolist())
    for moves in (plan.gather, plan.scatter):
        found += [int(moves.pieces.sum()), moves.bytes_by_tile(graph.num_tiles).tolist()]
        found.append(copy_cycles_by_tile(moves, graph.system.ipu, graph.num_tiles).tolist())
    return found


def test_audiences__tiles_with_equal_lists__are_one() -> None:
    found, [(audience, region)] = find_audiences([wanted({0: [1, 2], 3: [1, 2], 4: [2], 7: [1, 2]})], 8)
    assert members(found) == [[0, 3, 7], [4]]
    assert audience.tolist() == [0, 0, 1]
    assert region.tolist() == [1, 2, 2]


def test_audiences__rows_and_columns_of_a_grid__are_domains_of_their_own() -> None:
    rows, columns = ({tile: [place[tile]] for tile in range(6)} for place in ([0, 0, 0, 1, 1, 1], [0, 1, 2] * 2))
    found, _ = find_audiences([wanted(rows, 0), wanted(columns, 1)], 8)
    assert members(found) == [[0, 1, 2], [3, 4, 5], [0, 3], [1, 4], [2, 5]]
    assert found.domain.tolist() == [0, 0, 1, 1, 1]


def test_audiences__fields_of_one_domain__are_compared_together() -> None:
    rows, columns = ({tile: [place[tile]] for tile in range(4)} for place in ([0, 0, 1, 1], [0, 0, 0, 1]))
    found, pairs = find_audiences([wanted(columns), wanted(rows)], 8)
    assert members(found) == [[0, 1], [2], [3]]
    assert [[p.tolist() for p in pair] for pair in pairs] == [[[0, 1, 2], [0, 0, 1]], [[0, 1, 2], [0, 1, 1]]]


def test_audiences__hashes_that_are_equal_by_accident__do_not_join_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multicast_groups, "_GOLDEN", np.uint64(0))
    found, _ = find_audiences([wanted({0: [1, 2], 1: [1, 2], 2: [3, 2], 3: [1], 4: [1, 2]})], 8)
    assert members(found) == [[0, 1, 4], [2], [3]]


def test_neighbours__of_two_domains__are_pairs_of_each() -> None:
    rows = wanted({0: [0], 1: [0], 2: [1]}, 0)
    columns = wanted({1: [0], 2: [1], 3: [0]}, 1)
    pairs = find_audiences([rows, columns], 4)[0].neighbours()
    assert pairs.left.tolist() == [0, 2]
    assert pairs.even.tolist() == [0, 3]
    assert pairs.odd.tolist() == [0, 2]


def test_domains__of_operands_padded_with_the_same_zeros__are_theirs_and_that_of_the_zeros(graph: Graph) -> None:
    x, w, zeros = (graph.variable(f32, (2, 6), n).map_rows(range(2)) for n in ("x", "w", "zeros"))
    cs = graph.compute_set()
    for v in (x, w):
        cs.vertices(Reader, tile=range(4, 8), x=shared(concat([v[0], zeros[0, :1]])))
    layout = Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)
    inputs = []
    for use in field_uses(cs.groups):
        residence = residence_of(use.edge.regions, layout)
        inputs.append(
            FieldWish(residence, *foreign_pairs(residence, use.row_tile, use.edge.index), residence.counts == 1)
        )
    found = in_domains(inputs, layout)
    assert [wish.domain for wish in found] == [0, 1, 1, 2]
    assert [wish.residence.length.tolist() for wish in found] == [[6], [1], [1], [6]]
    assert not any(wish.alone.any() for wish in found)


@given(st.data())
def test_plan__of_tiles_that_want_the_same__is_that_of_tiles_looked_at_one_by_one(data: st.DataObject) -> None:
    graph = Graph(small_system(4, 2))
    variables = [graph.variable(dtype, (6, 8), "x") for dtype in (f32, f32, f16)]
    tile = st.integers(0, 7)
    for v in variables:
        for start in range(0, 48, 3):
            v.flatten()[start : start + 3].map(data.draw(tile))
    cs, number = graph.compute_set(), st.integers(0, 5)
    y = graph.variable(f32, (6, 8), "y").map_rows(range(6))
    for row in range(6):
        cs.vertex(Update, tile=data.draw(tile), x=variables[0][data.draw(number)], y=y[row])
    for v in variables:
        first, second = data.draw(number), data.draw(number)
        views = [v[first], v[first].reverse(), v[:, first], concat([v[first], v[second, 2:5]]), v.flatten()[3:44]]
        for view in data.draw(st.lists(st.sampled_from(views), max_size=2)):
            codelet = ReadHalf if v.dtype == f16 else Reader
            cs.vertices(codelet, tile=data.draw(st.lists(tile, min_size=1, max_size=8)), x=shared(view))
    padded = concat([variables[0][data.draw(number)], variables[1][data.draw(number), :2]])
    cs.vertices(Reader, tile=data.draw(st.lists(tile, min_size=1, max_size=8)), x=shared(padded))
    layout = Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)
    found = plan_exchange(field_uses(cs.groups), layout, 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "find_audiences", tiles_by_themselves)
        assert everything(found, graph) == everything(plan_exchange(field_uses(cs.groups), layout, 4), graph)
