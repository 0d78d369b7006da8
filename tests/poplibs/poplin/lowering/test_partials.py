"""Sums of partials: what a tile holds itself is read in place."""

from __future__ import annotations

import numpy as np
import pytest

from abele.compiler import Executable, compile_program
from abele.graph import Graph, Regions
from abele.graph.program import Sequence
from abele.machine import systems
from abele.numerics import f16, f32
from abele.poplibs.poplin.lowering.contraction_steps import Channels, OutputPartials, finish
from abele.poplibs.poplin.lowering.grid import Home

SIZE = 64


def summed(holders: list[int], summer: int) -> Executable:
    """One block of partials, each on a tile of its own, summed on one tile."""
    graph = Graph(systems.get("gc200"))
    partials = OutputPartials.create(graph, f32, np.array([SIZE], np.int64), len(holders))
    graph.map_regions(partials.regions(), np.array(holders, np.int32))
    out = graph.variable(f16, SIZE, "out").map(summer)
    begin, length = out.intervals()
    written = Regions(np.array([0, 1]), begin, length, out)
    zero, size = np.zeros(1, np.int64), np.array([SIZE], np.int64)
    program = Sequence()
    home = Home(tile=np.array([summer], np.int32), block=zero, low=zero, length=size, regions=written)
    finish(graph, program, partials, f16, home, Channels(size, size))
    return compile_program(graph, program)


@pytest.mark.parametrize("summer", [0, 1, 2])
def test_sum__tile_holds_one_of_the_partials__receives_the_others_and_copies_nothing(summer: int) -> None:
    (step,) = summed([0, 1, 2], summer).plan
    assert step.codelets[0].name == "ReduceAdd"
    assert step.gather is None
    assert step.before is not None
    assert step.before.bytes == 2 * SIZE * 4


def test_sum__tile_holds_none__receives_all() -> None:
    (step,) = summed([0, 1, 2], 5).plan
    assert step.gather is None
    assert step.before is not None
    assert step.before.bytes == 3 * SIZE * 4


def test_sum__tile_holds_several__takes_what_is_cheaper_and_moves_only_the_others() -> None:
    (step,) = summed([4, 4, 7, 4], 4).plan
    assert step.before is not None
    assert step.before.bytes == SIZE * 4
    # Pieces that lie apart cost the vertex less here than putting them side by side.
    assert step.codelets[0].name == "ReduceAddList"
    assert step.gather is None
