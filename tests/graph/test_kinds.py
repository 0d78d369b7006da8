"""Classes of a graph's objects: plain ones have our names, Poplar's have both, and views keep their class."""

from __future__ import annotations

import copy
import pickle

import pytest

import abele as ab
from abele import graph as g
from abele import machine, poplar, popops, runtime
from abele.graph import VirtualGraph
from abele.numerics import f32

POPLARS = ("addVariable", "numElements", "setTileMapping", "getTarget", "readTensor", "getNumTiles", "dimShuffle")


@pytest.mark.parametrize("kind", [g.Graph, g.Tensor, g.VirtualGraph, runtime.Engine, machine.Target, g.Stream])
def test_plain_class__of_a_room__has_none_of_poplars_names(kind: type) -> None:
    assert not [name for name in POPLARS if hasattr(kind, name)]
    assert kind.__mro__[-1] is object
    assert not [base.__name__ for base in kind.__mro__ if "Names" in base.__name__]


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[1:3, ::-2],
        lambda t: t.reshape(3, 8).T,
        lambda t: g.concat([t[:2], t[2:]]).flatten(),
        lambda t: t.broadcast_to((2, 4, 6)),
        lambda t: t.clone(),
        lambda t: t.reinterpret("i32"),
        lambda t: t.graph.clone_n(t, 2),
        lambda t: g.gathered(t, *(t.intervals()[0] * 0, t.intervals()[1])),
        lambda t: t.map(3),
        lambda t: t.split(2)[1],
    ],
)
def test_view__of_either_class__keeps_it(view) -> None:
    plain, spoken = (graph.variable(f32, (4, 6), "t", map=0) for graph in (g.Graph("gc200"), ab.Graph("gc200")))
    assert type(view(plain)) is g.Tensor
    assert type(view(spoken)) is poplar.Tensor
    assert view(spoken).shape() == view(plain).shape
    assert repr(view(spoken)) == repr(view(plain))


def test_library__given_either_graph__returns_its_class() -> None:
    for graph, kind in ((g.Graph("gc200"), g.Tensor), (ab.Graph("gc200"), poplar.Tensor)):
        x = graph.variable(f32, (4, 6), "x", map="linear")
        out = popops.add(graph, x, x, ab.Sequence())
        assert type(out) is kind
        assert isinstance(out, ab.Tensor)


def test_virtual_graph__of_a_poplar_graph__speaks_it_too() -> None:
    graph = ab.Graph("gc200")
    part = graph.virtual(8, 12).virtual(2, 4)
    assert isinstance(part, poplar.Graph)
    assert isinstance(part, VirtualGraph)
    t = part.addVariable(poplar.FLOAT, [4], "t")
    part.setTileMapping(t, 1)
    assert t.mapping.tile.tolist() == [11]
    assert part.getTopLevelGraph() is graph is t.graph
    assert part.convertVirtualTileToPhysicalTile(1) == 11
    assert part.convertPhysicalTileToVirtualTile(11) == 1
    assert not isinstance(g.Graph("gc200").virtual(0, 2), poplar.Graph)


def test_streams_buffers_and_functions__of_a_poplar_graph__have_both_names() -> None:
    graph = ab.Graph("bow-2000")
    stream, buffer = graph.host_stream_in("s", f32, 4), graph.remote_buffer("b", f32, 4, 3)
    function = graph.host_function("f", [(f32, 2)])
    assert (stream.handle(), stream.numElements(), stream.size) == ("s", 4, 4)
    assert (buffer.handle(), buffer.getRepeats(), buffer.repeats) == ("b", 3, 3)
    assert function.handle() == function.name == "f"
    assert isinstance(graph.getTarget(), machine.Target)


def test_graph__by_either_constructor__is_the_same() -> None:
    ours, theirs = ab.Graph("m2000", replicas=2), poplar.Graph(poplar.Target(ab.systems.get("m2000")), 2)
    assert (ours.replicas, ours.system) == (theirs.replicas, theirs.system) == (2, ab.systems.get("m2000").with_ipus(2))
    assert ab.Graph("gc200", auto_map=True).auto_map
    assert ab.Graph is poplar.Graph
    assert ab.Engine is poplar.Engine


def test_tensor__copied_and_pickled__shows_the_same() -> None:
    t = ab.Graph("gc200").variable(f32, (4, 6), "t", map=0)[1:]
    assert type(copy.copy(t)) is poplar.Tensor
    assert copy.copy(t).is_same_view(t)
    shape = pickle.loads(pickle.dumps(t.shape))
    assert shape() == shape == (3, 6)


def test_engine__by_keywords__runs_as_by_position() -> None:
    graph = ab.Graph("gc200")
    x = graph.variable(f32, 3, "x", initial=[1.0, 2.0, 3.0], map=0)
    prog = ab.Copy(x, graph.clone(x, name="y"))
    for engine in (
        ab.Engine(graph, prog),
        ab.Engine(graph, program=prog),
        ab.Engine(graph_or_executable=graph, program=prog),
    ):
        with engine:
            engine.load_and_run()
            assert engine.readTensor("y").tolist() == [1.0, 2.0, 3.0]
            assert isinstance(engine, runtime.Engine)
