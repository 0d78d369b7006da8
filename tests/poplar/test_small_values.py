"""Answers of streams, buffers, intervals and models by Poplar's names."""

from __future__ import annotations

import numpy as np
import pytest

from abele import poplar
from abele.poplar import FLOAT, HALF, Engine, Graph, IPUModel, ReplicatedStreamMode, SyncType, program


@pytest.fixture
def graph() -> Graph:
    return Graph(IPUModel().createDevice())


def test_interval__of_a_mapping__has_ends_to_read_and_to_call(graph: Graph) -> None:
    x = graph.addVariable(FLOAT, [10])
    graph.setTileMapping(x.slice(0, 6, 0), 3)
    graph.setTileMapping(x.slice(6, 10, 0), 1)
    mapping = graph.getTileMapping(x)
    found = mapping[3][0]
    assert (found.begin(), found.end(), found.size()) == (found.begin, found.end, found.size) == (0, 6, 6)
    assert [sum(i.size() for i in tile) for tile in mapping[:4]] == [0, 4, 0, 6]
    begin, end = mapping[1][0]
    assert x.slice(begin, end, 0).shape == (4,)


def test_interval__of_regions__has_ends_to_call(graph: Graph) -> None:
    x = graph.addVariable(FLOAT, [10])
    contiguous = x[2:7].getContiguousRegions()
    assert [r.size() for r in contiguous] == [5]
    assert [v.interval.begin() for v in x[2:7].getVarRegions()] == [2]
    groups = graph.getSortedContiguousRegions(x, [poplar.Interval(5, 10), poplar.Interval(0, 5)])
    assert sum(interval.size() for group in groups for interval in group) == 10
    assert poplar.Interval(2, 5) == (2, 5)


def test_stream__asked_in_poplars_names__answers(graph: Graph) -> None:
    stream = graph.addHostToDeviceFIFO("in", HALF, 12, ReplicatedStreamMode.BROADCAST)
    assert (stream.handle(), stream.numElements(), stream.elementType()) == ("in", 12, HALF)
    assert stream.replicatedMode() is ReplicatedStreamMode.BROADCAST


def test_remote_buffer__asked_in_poplars_names__answers(graph: Graph) -> None:
    buffer = graph.addRemoteBuffer("rb", FLOAT, 8, 3)
    assert (buffer.handle(), buffer.numElements(), buffer.elementType(), buffer.getRepeats()) == ("rb", 8, FLOAT, 3)
    assert not buffer.isRearrangeOnHost()


def test_host_function__asked_for_its_handle__answers(graph: Graph) -> None:
    assert graph.addHostFunction("f", [(FLOAT, 2)], [(FLOAT, 2)]).handle() == "f"


def test_model__relative_sync_delay__has_its_enumeration() -> None:
    model = IPUModel()
    model.relativeSyncDelay = IPUModel.RelativeSyncDelayType.NO_DELAY
    assert model.relativeSyncDelay is poplar.RelativeSyncDelayType.NO_DELAY


@pytest.mark.parametrize("rest", [("timer",), (SyncType.EXTERNAL, "timer"), (SyncType.EXTERNAL,), ()])
def test_cycle_count__name_with_or_without_a_sync__is_taken(graph: Graph, rest: tuple[object, ...]) -> None:
    x = graph.addVariable(FLOAT, [64])
    graph.setTileMapping(x, 0)
    y = graph.clone(x)
    prog = program.Sequence([program.Copy(x, y)])
    cycles = poplar.cycleCount(graph, prog, 0, *rest)
    graph.createHostRead("cycles", cycles)
    engine = Engine(graph, prog)
    engine.run(0)
    low, high = engine.readTensor("cycles")
    assert low > 0
    assert high == 0
    assert cycles.name == ("timer" if "timer" in rest else "cycle_count")


def test_cycle_count__of_several_tiles__has_a_row_for_each(graph: Graph) -> None:
    x = graph.addVariable(FLOAT, [64])
    graph.setTileMapping(x, 0)
    prog = program.Sequence([program.Copy(x, graph.clone(x))])
    cycles = poplar.cycleCount(graph, prog, [0, 5], SyncType.INTERNAL, "timer")
    graph.createHostRead("cycles", cycles)
    engine = Engine(graph, prog)
    engine.run(0)
    counted = np.asarray(engine.readTensor("cycles"))
    assert counted.shape == (2, 2)
    assert (counted[:, 0] > 0).all()


def test_tiles__of_a_virtual_graph__have_numbers_in_the_whole() -> None:
    graph = Graph(IPUModel().createDevice())
    inner = graph.createVirtualGraph([7, 3, 9])
    assert [inner.convertVirtualTileToPhysicalTile(t) for t in range(3)] == [7, 3, 9]
    assert inner.convertPhysicalTileToVirtualTile(3) == inner.convertPhysicalTileToVirtualTile(0, 3) == 1
    assert graph.convertPhysicalTileToVirtualTile(graph.convertVirtualTileToPhysicalTile(5)) == 5
    with pytest.raises(poplar.invalid_tile_mapping, match="outside the virtual graph"):
        inner.convertPhysicalTileToVirtualTile(4)


def test_names__written_as_contexts__are_the_names() -> None:
    graph = Graph(IPUModel().createDevice())
    place = poplar.SourceLocation.Current()
    assert place.fileName.endswith("test_small_values.py")
    names = [{"x"}, poplar.DebugContext("x"), poplar.DebugContext(place, "x"), [poplar.DebugContext("a"), "x"]]
    assert [graph.addVariable(FLOAT, [1], name).name for name in names] == ["x", "x", "x", "a/x"]
