from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Layout, exchange, field_uses, moves, plan_copy, plan_exchange, region_tiles
from abele.compiler.durations import copy_cycles_by_tile, exchange_cycles, link_cycles
from abele.compiler.exchange import ExchangePlan
from abele.graph import ComputeSet, Graph, concat, shared
from abele.numerics import f16, f32
from compiler.support import Reader, ReadHalf, Update, Writer, link_bytes, small_system
from support.vertices import Increment


def layout_of(graph: Graph) -> Layout:
    return Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)


def plan(cs: ComputeSet) -> ExchangePlan:
    return plan_exchange(field_uses(cs.groups), layout_of(cs.graph), cs.graph.system.ipu.num_tiles)


def copy_plan(graph: Graph, source: object, target: object) -> ExchangePlan:
    return plan_copy(source, target, layout_of(graph), graph.system.ipu.num_tiles)  # type: ignore[arg-type]


def test_exchange__rows_on_their_own_tiles__moves_nothing(graph: Graph) -> None:
    x, y = (graph.variable(f32, (8, 5), n).map_rows(range(8)) for n in "xy")
    cs = graph.compute_set()
    cs.vertices(Update, tile=range(8), x=x, y=y)
    found = plan(cs)
    assert found.before is None
    assert found.after is None
    assert len(found.gather.tile) == 0
    assert not found.buffer_bytes.any()


def test_exchange__block_that_is_contiguous_on_its_tile__needs_no_copy(graph: Graph) -> None:
    x = graph.variable(f32, (4, 16), "x")
    for t in range(8):
        x[:, 2 * t : 2 * t + 2].map(t)
    cs = graph.compute_set()
    for t in range(8):
        cs.vertex(Reader, tile=t, x=x[:, 2 * t : 2 * t + 2].flatten())
    found = plan(cs)
    assert found.before is None
    assert len(found.gather.tile) == 0


def test_exchange__broadcast__is_sent_once_and_received_by_each_tile(graph: Graph) -> None:
    x = graph.variable(f32, (10,), "x").map(0)
    cs = graph.compute_set()
    cs.vertices(Reader, tile=[*range(8), *range(8)], x=shared(x))
    phase = plan(cs).before
    assert phase is not None
    assert phase.received_bytes.tolist() == [0, *[40] * 7]
    assert phase.sent_bytes.tolist() == [40, *[0] * 7]
    assert phase.received_fragments.tolist() == [0, *[1] * 7]
    assert phase.paired_bytes.tolist() == [0, 0, *[40] * 6]


def test_exchange__halo__brings_only_what_is_missing_and_copies_the_rest(graph: Graph) -> None:
    x = graph.variable(f32, (80,), "x")
    for t in range(8):
        x[10 * t : 10 * t + 10].map(t)
    cs = graph.compute_set()
    cs.vertex(Reader, tile=3, x=x[29:41])
    found = plan(cs)
    assert found.before is not None
    assert found.before.received_bytes.tolist() == [0, 0, 0, 8, 0, 0, 0, 0]
    assert found.before.sent_bytes.tolist() == [0, 0, 4, 0, 4, 0, 0, 0]
    assert found.before.received_fragments[3] == 2
    assert found.gather.tile.tolist() == [3]
    assert found.gather.bytes.tolist() == [40]
    assert found.buffer_bytes.tolist() == [0, 0, 0, 48, 0, 0, 0, 0]


def test_exchange__output_for_another_tile__is_sent_after_the_vertices(graph: Graph) -> None:
    y = graph.variable(f32, (4,), "y").map(5)
    cs = graph.compute_set()
    cs.vertex(Writer, tile=2, y=y)
    found = plan(cs)
    assert found.before is None
    assert found.after is not None
    assert found.after.received_bytes[5] == 16
    assert found.after.sent_bytes[2] == 16
    assert found.buffer_bytes[2] == 16


def test_exchange__inout_elsewhere__goes_both_ways(graph: Graph) -> None:
    y = graph.variable(f32, (4,), "y").map(5)
    cs = graph.compute_set()
    cs.vertex(Increment, tile=2, y=y)
    found = plan(cs)
    assert found.before is not None
    assert found.after is not None
    assert found.before.received_bytes[2] == found.after.received_bytes[5] == 16


def test_exchange__scattered_on_one_tile__is_gathered_without_exchange(graph: Graph) -> None:
    x = graph.variable(f32, (4, 4), "x").map(1)
    cs = graph.compute_set()
    cs.vertex(Reader, tile=1, x=x[:, 0])
    cs.vertex(Writer, tile=1, y=x[:, 1])
    found = plan(cs)
    assert found.before is None
    assert found.gather.bytes.tolist() == [4] * 4
    assert found.scatter.bytes.tolist() == [4] * 4
    assert found.gather.granule.tolist() == [4] * 4


def test_exchange__single_halves__arrive_as_words_and_need_a_copy(graph: Graph) -> None:
    x = graph.variable(f16, (8,), "x").map(0)
    cs = graph.compute_set()
    cs.vertex(ReadHalf, tile=1, x=x[1:2])
    found = plan(cs)
    assert found.before is not None
    assert found.before.received_bytes[1] == 4
    assert found.gather.tile.tolist() == [1]
    assert found.gather.granule.tolist() == [2]


def test_exchange__reversed_region__arrives_in_single_pieces(graph: Graph) -> None:
    x = graph.variable(f32, (6,), "x").map(0)
    cs = graph.compute_set()
    cs.vertex(Reader, tile=1, x=x.reverse())
    phase = plan(cs).before
    assert phase is not None
    assert phase.received_fragments[1] == 6
    assert phase.sent_fragments[0] == 1


def test_exchange__two_ipus__counts_the_link_once_for_all_tiles_of_the_other() -> None:
    graph = Graph(small_system(4, 2))
    x = graph.variable(f32, (10,), "x").map(0)
    cs = graph.compute_set()
    cs.vertices(Reader, tile=range(8), x=shared(x))
    phase = plan(cs).before
    assert phase is not None
    assert phase.link_bytes.dense(2).tolist() == [[0, 40], [0, 0]]
    bandwidth = graph.system.ipu_links.bundle_bytes_per_second(graph.system.ipu_links.pair_links)
    assert link_cycles(phase.link_bytes, graph.system) == -(-40 * graph.system.ipu.clock_hz // bandwidth)


def test_link_cycles__traffic_through_a_shared_rail__adds_up() -> None:
    system = small_system(4, 4)
    one = link_cycles(link_bytes({(0, 2): 10**6}), system)
    both = link_bytes({(0, 2): 10**6, (1, 2): 10**6})
    assert link_cycles(both, system) == pytest.approx(2 * one, abs=2)


def test_copy__between_tiles__is_exchanged_and_within_a_tile_copied(graph: Graph) -> None:
    x = graph.variable(f32, (8,), "x").map(0)
    y = graph.variable(f32, (8,), "y")
    y[:4].map(0)
    y[4:].map(1)
    found = copy_plan(graph, x, y)
    assert found.before is not None
    assert found.before.received_bytes.tolist() == [0, 16, *[0] * 6]
    assert found.scatter.bytes.tolist() == [16]
    assert found.scatter.tile.tolist() == [0]


def test_copy__of_a_broadcast__sends_once_and_repeats_on_the_tile(graph: Graph) -> None:
    x = graph.variable(f32, (2,), "x").map(0)
    y = graph.variable(f32, (4, 2), "y").map(1)
    found = copy_plan(graph, x.broadcast_to((4, 2)), y)
    assert found.before is not None
    assert found.before.received_bytes[1] == 8
    assert found.scatter.bytes.sum() == 24


def test_copy__onto_itself__goes_through_a_buffer(graph: Graph) -> None:
    x = graph.variable(f32, (8,), "x").map(0)
    found = copy_plan(graph, x.reverse(), x)
    assert found.buffer_bytes.tolist() == [32, *[0] * 7]
    assert found.scatter.bytes.sum() == 64


def test_exchange_cycles__one_kilobyte__takes_a_phase_a_route_and_a_word_a_cycle(graph: Graph) -> None:
    x = graph.variable(f32, (256,), "x").map(0)
    cs = graph.compute_set()
    cs.vertex(Reader, tile=1, x=x)
    found = plan(cs).before
    assert found is not None
    exchange = graph.system.ipu.exchange
    assert exchange_cycles(found, graph.system) == exchange.phase_overhead_cycles + exchange.route_mean_cycles + 256


def test_exchange_cycles__a_pair_that_wants_the_same_from_many__receives_two_words_a_cycle(graph: Graph) -> None:
    x = graph.variable(f32, (6, 64), "x").map_rows([0, 1, 4, 5, 6, 7])
    cs = graph.compute_set()
    cs.vertices(Reader, tile=[2, 3], x=shared(x.flatten()))
    pair = plan(cs).before
    alone = graph.compute_set()
    alone.vertex(Reader, tile=2, x=x.flatten())
    single = plan(alone).before
    assert pair is not None
    assert single is not None
    assert pair.paired_bytes.tolist() == [0, 0, 6 * 256, 6 * 256, *[0] * 4]
    assert exchange_cycles(single, graph.system) - exchange_cycles(pair, graph.system) == 6 * 64 // 2


def test_copy_cycles__pieces_of_the_regression__cost_what_it_says(graph: Graph) -> None:
    x, y = (graph.variable(f32, (512, 2), n).map(0) for n in "xy")
    found = copy_plan(graph, x[:, 0], y[:, 0])
    cycles = copy_cycles_by_tile(found.scatter, graph.system.ipu, 8)
    rearrange = graph.system.ipu.rearrange
    assert cycles[0] == rearrange.local_copy_cycles + 2 * rearrange.word_cycles_per_kib
    whole = copy_cycles_by_tile(copy_plan(graph, x, y).scatter, graph.system.ipu, 8)
    assert whole[0] < rearrange.local_copy_cycles + 4096 / graph.system.ipu.tile.memcpy_bytes_per_cycle + 4


def brute_force(graph: Graph, cs: ComputeSet) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Bytes received and sent before and after, element by element."""
    home = np.repeat(graph.interval_map().tile, np.diff(np.append(graph.interval_map().begin, graph.num_elements)))
    needs: set[tuple[int, int]] = set()
    gives: set[tuple[int, int]] = set()
    for use in field_uses(cs.groups):
        regions, tiles = use.edge.regions.take(use.edge.index), use.row_tile
        for row, tile in enumerate(tiles):
            for k in range(int(regions.ptr[row]), int(regions.ptr[row + 1])):
                for e in range(int(regions.begin[k]), int(regions.begin[k] + regions.length[k])):
                    if home[e] != tile:
                        if use.reads:
                            needs.add((int(tile), e))
                        if use.writes:
                            gives.add((int(tile), e))
    received, sent, back, out = (np.zeros(graph.num_tiles, dtype=np.int64) for _ in range(4))
    for tile, _ in needs:
        received[tile] += 4
    for e in {e for _, e in needs}:
        sent[home[e]] += 4
    for tile, e in gives:
        back[home[e]] += 4
        out[tile] += 4
    return received, sent, back, out


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_ipus", [1, 2])
def test_exchange__in_portions_of_few_pieces__is_that_of_all_pieces_at_once(
    seed: int, num_ipus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    graph = Graph(small_system(8, num_ipus))
    x = graph.variable(f16, (24, 30), "x")
    z = graph.variable(f32, (24, 30), "z")
    y = graph.variable(f32, (24, 30), "y").map_rows(rng.integers(0, graph.num_tiles, 24))
    for i in range(0, 720, 3):
        for t in (x, z):
            t.flatten()[i : i + 3].map(int(rng.integers(0, graph.num_tiles)))
    columns = rng.permutation(30) if seed % 2 else range(30)
    halves, floats = (concat([t[:, int(c) : int(c) + 1] for c in columns], 1) for t in (x, z))
    cs = graph.compute_set()
    cs.vertices(Update, tile=rng.integers(0, graph.num_tiles, 24), x=floats, y=y)
    cs.vertices(ReadHalf, tile=rng.integers(0, graph.num_tiles, 24), x=halves)
    for tile in range(0, graph.num_tiles, 2):
        part = halves[int(rng.integers(0, 3)) :: 3]
        cs.vertices(ReadHalf, tile=[tile, tile + 1], x=shared(part.flatten()))
    whole = plan(cs)
    monkeypatch.setattr(exchange, "PORTION", 7)
    monkeypatch.setattr(region_tiles, "PORTION", 5)
    monkeypatch.setattr(moves, "_LEAST_SUMMED", 0)
    parts = plan(cs)
    assert whole.before is not None
    assert parts.before is not None
    for name in ("received_bytes", "sent_bytes", "received_fragments", "sent_fragments", "paired_bytes"):
        assert getattr(parts.before, name).tolist() == getattr(whole.before, name).tolist(), name
    assert [side.tolist() for side in parts.before.link_bytes] == [side.tolist() for side in whole.before.link_bytes]
    assert parts.before.is_local == whole.before.is_local
    assert parts.buffer_bytes.tolist() == whole.buffer_bytes.tolist()
    for mine, theirs in ((parts.gather, whole.gather), (parts.scatter, whole.scatter)):
        cycles = [copy_cycles_by_tile(m, graph.system.ipu, graph.num_tiles).tolist() for m in (mine, theirs)]
        assert cycles[0] == cycles[1]
        assert mine.summed().pieces.sum() == theirs.pieces.sum()


@given(st.data())
def test_exchange__random_graphs__agrees_with_brute_force(data: st.DataObject) -> None:
    graph = Graph(small_system(4))
    x = graph.variable(f32, (6, 8), "x")
    y = graph.variable(f32, (6, 8), "y")
    tiles = st.lists(st.integers(0, 3), min_size=12, max_size=12)
    for t in (x, y):
        for i, tile in enumerate(data.draw(tiles)):
            t.flatten()[4 * i : 4 * i + 4].map(tile)
    cs = graph.compute_set()
    number = st.integers(0, 5)
    for row in range(6):
        first, second = data.draw(number), data.draw(number)
        view = data.draw(
            st.sampled_from([x[first], x[first].reverse(), x[:, first], concat([x[first], x[second, 2:5]])])
        )
        cs.vertex(Update, tile=data.draw(st.integers(0, 3)), x=view, y=y[row])
    whole = st.lists(st.integers(0, 3), min_size=1, max_size=3)
    cs.vertices(Reader, tile=data.draw(whole), x=shared(x[data.draw(number)]))
    found = plan(cs)
    received, sent, back, out = brute_force(graph, cs)
    zero = np.zeros(4, dtype=np.int64)
    np.testing.assert_array_equal(found.before.received_bytes if found.before else zero, received)
    np.testing.assert_array_equal(found.before.sent_bytes if found.before else zero, sent)
    np.testing.assert_array_equal(found.after.received_bytes if found.after else zero, back)
    np.testing.assert_array_equal(found.after.sent_bytes if found.after else zero, out)
