"""Steps of the host in place of a sequence: they join the run around them, and take as long as what they replace."""

from __future__ import annotations

import numpy as np
import pytest

from abele.errors import EngineError
from abele.graph import CycleStamp, Graph, Sequence
from abele.poplibs import popops
from abele.poplibs.popops.programs.side_by_side import zip_on_machine
from abele.runtime import Engine

SHAPE = (64,)


def _updates(num_lanes: int):
    """``w -= 0.5 g`` of some vectors side by side, between what halves the gradients and what sums the results."""
    graph = Graph("bow-2000:1")
    prog = Sequence()
    weights = [graph.variable("f32", SHAPE, name=f"w{n}").map(n) for n in range(num_lanes)]
    gradients = [graph.variable("f32", SHAPE, name=f"g{n}").map(n) for n in range(num_lanes)]
    scaled = [popops.mul(graph, g, 0.5, prog, "scaled") for g in gradients]
    lanes = [Sequence() for _ in range(num_lanes)]
    for w, s, lane in zip(weights, scaled, lanes, strict=True):
        popops.scaledAddTo(graph, w, s, -1.0, lane, "update")
    prog.add(zip_on_machine(graph, lanes, "update"))
    total = weights[0]
    for w in weights[1:]:
        total = popops.add(graph, total, w, prog, "total")
    return graph, prog, weights, gradients, scaled, total


@pytest.mark.parametrize("mode", ["native", "tiles"])
def test_lanes__among_other_steps__every_vector_is_updated(mode):
    graph, prog, weights, gradients, _, total = _updates(3)
    rng = np.random.default_rng(1)
    before = [rng.standard_normal(SHAPE).astype(np.float32) for _ in weights]
    steps = [rng.standard_normal(SHAPE).astype(np.float32) for _ in weights]
    with Engine(graph, prog, mode=mode, keep=[*weights, *gradients, total]) as engine:
        for w, g, start, step in zip(weights, gradients, before, steps, strict=True):
            engine[w], engine[g] = start, step
        engine.run()
        wanted = [start - 0.5 * step for start, step in zip(before, steps, strict=True)]
        for w, value in zip(weights, wanted, strict=True):
            np.testing.assert_allclose(engine[w], value, rtol=1e-6)
        np.testing.assert_allclose(engine[total], sum(wanted), rtol=1e-5, atol=1e-6)


def test_lanes__in_native_code__what_lies_between_them_and_their_neighbours_is_not_stored():
    graph, prog, weights, gradients, scaled, total = _updates(3)
    with Engine(graph, prog, keep=[*weights, *gradients, total]) as engine:
        for between in scaled:
            with pytest.raises(EngineError, match="only lives inside"):
                engine[between]


def test_lanes__between_two_stamps__take_as_long_in_native_code_as_on_tiles():
    cycles = []
    for mode in ("native", "tiles"):
        graph, prog, *_ = _updates(3)
        before, after = (graph.variable("u32", (2,), name=name).map(0) for name in ("before", "after"))
        with Engine(graph, Sequence(CycleStamp(before), prog, CycleStamp(after)), mode=mode) as engine:
            engine.run()
            cycles.append(int(engine[after][0]) - int(engine[before][0]))
    assert cycles[0] == cycles[1] > 0
