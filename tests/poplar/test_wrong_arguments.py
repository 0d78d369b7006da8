"""Arguments that are something else: typed errors that say what was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from abele import graph as g
from abele import poplar
from abele.errors import AbeleError
from abele.poplar import FLOAT, Engine, Graph, IPUModel, program
from abele.poplar.program import Copy, Execute, If, Repeat, Sequence

DEVICE = IPUModel().createDevice()


class Given:
    """A graph with a variable."""

    def __init__(self) -> None:
        self.graph = Graph(DEVICE)
        self.x = self.graph.addVariable(FLOAT, [4], "x")
        self.graph.setTileMapping(self.x, 0)
        self.prog = Sequence()


CASES: dict[str, tuple[type[AbeleError], str, Callable[[Given], Any]]] = {
    "run a program": (
        poplar.poplar_error,
        "an engine runs programs by number or name, not Sequence",
        lambda b: Engine(b.graph, b.prog).run(Sequence()),
    ),
    "run nothing": (poplar.poplar_error, "by number or name", lambda b: Engine(b.graph, b.prog).run(None)),
    "graph of a number": (poplar.invalid_machine_model, "5 is no system", lambda b: Graph(5)),
    "graph of nothing": (poplar.invalid_machine_model, "None is no system", lambda b: Graph(None)),
    "our graph of a number": (poplar.invalid_machine_model, "5 is no system", lambda b: g.Graph(5)),
    "graph": (poplar.invalid_machine_model, "a Graph is for a target, a device or a system", lambda b: Graph()),
    "replicas": (poplar.type_error, "replicas are a whole number", lambda b: Graph(DEVICE, "two")),
    "half a replica": (poplar.type_error, "not float 1.5", lambda b: Graph(DEVICE, poplar.replication_factor(1.5))),
    "engine": (poplar.poplar_error, "an Engine takes a graph and programs", lambda b: Engine()),
    "engine of a graph": (poplar.poplar_error, "an engine needs a program", lambda b: Engine(b.graph)),
    "engine of a number": (poplar.poplar_error, "got (int, Sequence)", lambda b: Engine(5, b.prog)),
    "load a number": (poplar.poplar_error, "5 is no device", lambda b: Engine(b.graph, b.prog).load(5)),
    "execute": (poplar.control_program_error, "an Execute runs a compute set", lambda b: Execute(5)),
    "copy from": (poplar.control_program_error, "a Copy is between views", lambda b: Copy(5, b.x)),
    "copy to": (poplar.control_program_error, "not list [1]", lambda b: Copy(b.x, [1])),
    "repeat": (poplar.control_program_error, "a number of times, not str 'x'", lambda b: Repeat("x", b.prog)),
    "repeat of a number": (poplar.control_program_error, "body of a Repeat", lambda b: Repeat(2, 5)),
    "if": (poplar.control_program_error, "a predicate is a tensor, not int 5", lambda b: If(5, b.prog, b.prog)),
    "branch": (poplar.control_program_error, "branches of an If are programs", lambda b: If(b.x[0], b.prog, 5)),
    "while": (
        poplar.control_program_error,
        "condition and body",
        lambda b: program.RepeatWhileTrue(5, b.x[0], b.prog),
    ),
    "call": (poplar.control_program_error, "a Call is of a function", lambda b: program.Call(5)),
    "write undef": (poplar.control_program_error, "a WriteUndef is of a tensor", lambda b: program.WriteUndef(5)),
    "print": (poplar.control_program_error, "a PrintTensor prints a tensor", lambda b: program.PrintTensor("x")),
    "sync": (poplar.control_program_error, "a Sync is of a kind, not int 5", lambda b: program.Sync(5)),
    "switch": (poplar.control_program_error, "the control of a Switch", lambda b: program.Switch(5, {})),
    "error": (poplar.control_program_error, "prints a tensor", lambda b: program.ErrorProgram("m", 5)),
    "block": (poplar.control_program_error, "the body of a Block", lambda b: program.Block(5)),
    "replica copy": (
        poplar.control_program_error,
        "between tensors, not int 5",
        lambda b: program.CrossReplicaCopy(5, b.x, {0: 0}),
    ),
    "function": (poplar.type_error, "addFunction takes a program", lambda b: b.graph.addFunction(5)),
    "shape": (poplar.tensor_creation_error, "not str 'ab'", lambda b: b.graph.addVariable(FLOAT, "ab")),
    "fractional shape": (
        poplar.tensor_creation_error,
        "whole numbers, as in (4, 3), not list [1.5]",
        lambda b: b.graph.addVariable(FLOAT, [1.5]),
    ),
    "values": (
        poplar.tensor_creation_error,
        "cannot start as an array of shape [3]",
        lambda b: b.graph.addConstant(FLOAT, [4], [1, 2, 3]),
    ),
    "initial values": (
        poplar.tensor_creation_error,
        "cannot start as an array of shape [1]",
        lambda b: b.graph.setInitialValue(b.x, [1]),
    ),
    "initial value of a number": (poplar.type_error, "setInitialValue", lambda b: b.graph.setInitialValue(5, [1])),
    "map": (poplar.type_error, "places a tensor or a vertex, not int 5", lambda b: b.graph.setTileMapping(5, 1)),
    "half a tile": (
        poplar.type_error,
        "a mapping is a tile, or lists of intervals, not float 1.5",
        lambda b: b.graph.setTileMapping(b.x, 1.5),
    ),
    "mapping of a number": (poplar.type_error, "getTileMapping", lambda b: b.graph.getTileMapping(5)),
    "vertex": (poplar.type_error, "addVertex adds to a compute set", lambda b: b.graph.addVertex(5, "X")),
    "connect": (poplar.type_error, "connect takes a field of a vertex", lambda b: b.graph.connect(5, b.x)),
    "estimate": (poplar.type_error, "setPerfEstimate is of a vertex", lambda b: b.graph.setPerfEstimate(5, 1)),
    "clone": (poplar.type_error, "clone takes a tensor, not None", lambda b: b.graph.clone(FLOAT)),
    "read": (poplar.type_error, "host handle 'x' is for a tensor", lambda b: b.graph.createHostRead("x", 5)),
    "stream": (
        poplar.tensor_creation_error,
        "negative dimension",
        lambda b: b.graph.addHostToDeviceFIFO("s", FLOAT, -1),
    ),
    "rows": (poplar.type_error, "a number of rows", lambda b: b.graph.addRemoteBuffer("r", FLOAT, 4, "x")),
    "virtual": (poplar.tensor_creation_error, "not str 'a'", lambda b: b.graph.createVirtualGraph("a")),
    "concat": (poplar.type_error, "concat takes tensors, not int 5", lambda b: poplar.concat([b.x, 5])),
    "cycle count": (
        poplar.control_program_error,
        "cycleCount times a sequence",
        lambda b: poplar.cycleCount(b.graph, 5, 0),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_argument__of_another_kind__is_refused_in_words(name: str) -> None:
    kind, text, call = CASES[name]
    with pytest.raises(kind) as caught:
        call(Given())
    assert text in caught.value.message
