"""Bytecode as text: what programs become, held against stored listings."""

from __future__ import annotations

import pytest
from syrupy.assertion import SnapshotAssertion

from abele.graph import (
    Call,
    Copy,
    CycleCount,
    Execute,
    Graph,
    If,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    Switch,
)
from abele.numerics import f32, i32, u32
from abele.runtime import Engine
from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.listing import _OPERANDS
from support.vertices import Down, Scale, Spin


class Parts:
    """Steps to make programs of."""

    def __init__(self) -> None:
        self.graph = graph = Graph("bow-2000:1")
        self.left = graph.variable(i32, 1, "left", initial=[3]).map(0)
        self.total = graph.variable(i32, 1, "total", initial=[0]).map(0)
        self.x = graph.variable(f32, (4, 3), "x").map_rows(range(4))
        self.y = graph.variable(f32, (4, 3), "y").map_rows(range(4))
        self.source = graph.host_stream_in("source", f32, (4, 3))
        self.sink = graph.host_stream_out("sink", f32, (4, 3))
        down, spin, scale = (graph.compute_set(name) for name in ("down", "spin", "scale"))
        down.vertex(Down, tile=0, left=self.left[0])
        spin.vertex(Spin, tile=0, trips=self.left[0], total=self.total[0])
        scale.vertices(Scale, tile=range(4), x=self.x)
        self.down, self.spin, self.scale = Execute(down), Execute(spin), Execute(scale)

    def programs(self) -> dict[str, Program]:
        down, scale, left = self.down, self.scale, self.left[0]
        function = self.graph.function(Sequence(down, scale))
        cycles = self.graph.variable(u32, 2, "cycles").map(0)
        return {
            "steps": Sequence(down, scale, Copy(self.x, self.y)),
            "repeat": Repeat(3, Sequence(Copy(self.source, self.x), scale, Copy(self.x, self.sink))),
            "while": RepeatWhileTrue(Sequence(), left, down),
            "if": If(left, down, scale),
            "switch": Switch(left, {0: down, 7: scale}, Sequence()),
            "calls": Sequence(Call(function), Repeat(2, Call(function))),
            "counted": Repeat(2, self.spin),
            "timed": Sequence(CycleCount(down, cycles)),
            "printed": PrintTensor(self.x, "x"),
        }


@pytest.mark.parametrize("name", ["steps", "repeat", "while", "if", "switch", "calls", "counted", "timed", "printed"])
def test_listing__of_a_program__is_the_stored_one(name: str, snapshot: SnapshotAssertion) -> None:
    parts = Parts()
    with Engine(parts.graph, parts.programs()[name], threads=2, mode="tiles") as engine:
        code = engine.listing().split("\n0x")[0]
        assert code == snapshot


def test_listing__every_operation__has_its_operands() -> None:
    assert set(_OPERANDS) == set(Opcode)
