from __future__ import annotations

import numpy as np
import pytest

from abele.graph import Graph, LibraryCall, Sequence
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin.lowering.grid import VertexGrid
from abele.poplibs.poplin.planner.plan import ContractionPlan
from abele.runtime import Engine
from poplibs.poplin.support import system

FWD, BWD, WU = ({"fullyConnectedPass": f"TRAINING_{name}"} for name in ("FWD", "BWD", "WU"))


class Layer:
    """A fully connected layer with all passes, [groups, batch, inputs] by [groups, inputs, outputs]."""

    def __init__(self, groups: int, batch: int, inputs: int, outputs: int, dtype: ElementType = f32) -> None:
        self.graph, self.prog = Graph(system(64)), Sequence()
        graph, prog = self.graph, self.prog
        shapes = (groups, batch, inputs), (groups, inputs, outputs)
        self.x = poplin.create_matmul_input_lhs(graph, dtype, *shapes, "x", options=FWD)
        self.w = poplin.create_matmul_input_rhs(graph, dtype, *shapes, "w", options=FWD)
        turned = self.w.transpose((0, 2, 1))
        back = (groups, batch, outputs), (groups, outputs, inputs)
        self.d = poplin.create_matmul_input_lhs(graph, dtype, *back, "d", options=BWD)
        self.out = poplin.matmul_grouped(graph, self.x, self.w, prog, options=FWD, name="fwd")
        self.back = poplin.matmul_grouped(graph, self.d, turned, prog, options=BWD, name="bwd")
        poplin.matmul_acc(graph, self.w, -0.5, self.x.transpose((0, 2, 1)), self.d, prog, options=WU, name="wu")

    def plans(self) -> list[ContractionPlan]:
        """The plans of the three passes."""
        calls = [step for step in self.prog.steps if isinstance(step, LibraryCall) and "plan" in step.attributes]
        return [plan for call in calls for plan in call.attributes["plan"].plans]


@pytest.mark.parametrize("dtype", [f16, f32], ids=str)
@pytest.mark.parametrize(
    "sizes", [(1, 8, 256, 320), (1, 1, 200, 136), (3, 5, 72, 100), (2, 40, 64, 48), (1, 4, 97, 33)]
)
def test_passes__planned_together__compute_a_layer(sizes: tuple[int, int, int, int], dtype: ElementType) -> None:
    layer, rng = Layer(*sizes, dtype=dtype), np.random.default_rng(3)
    x, w, d = (rng.integers(-2, 3, t.shape).astype(dtype.np) for t in (layer.x, layer.w, layer.d))
    for mode in ("native", "tiles"):
        with Engine(layer.graph, layer.prog, keep=[layer.out, layer.back, layer.w], mode=mode) as engine:
            engine[layer.x], engine[layer.w], engine[layer.d] = x, w, d
            engine.run()
            np.testing.assert_array_equal(engine[layer.out], x.astype(float) @ w)
            np.testing.assert_array_equal(engine[layer.back], d.astype(float) @ w.swapaxes(1, 2))
            np.testing.assert_array_equal(engine[layer.w], w - 0.5 * (x.swapaxes(1, 2).astype(float) @ d))


def test_passes__planned_together__keep_weights_where_they_are() -> None:
    layer = Layer(1, 8, 256, 320)
    forward, back, update = layer.plans()
    assert forward.tiles == back.tiles == update.tiles > 16
    split = forward.split
    assert (back.split["ci"], back.split["b"]) == (split["b"], split["ci"])
    assert (update.split["b"], update.split["co"]) == (split["b"], split["ci"])
    # tiles by (columns, rows of the weights), which are the part of every pass that the batch has no say in
    grids = [VertexGrid(plan).tiles.reshape(plan.parts) for plan in (forward, back, update)]
    dims = forward.problem.split_dims
    assert dims == ("g", "b", "co", "ci")
    np.testing.assert_array_equal(grids[1], grids[0].transpose(0, 3, 2, 1))
    np.testing.assert_array_equal(grids[2], grids[0].transpose(0, 1, 3, 2))


def test_weight_update__planned_together__moves_no_gradient() -> None:
    layer = Layer(1, 8, 256, 320)
    with Engine(layer.graph, layer.prog, keep=[layer.out, layer.back, layer.w]) as engine:
        names = [row["name"] for row in engine.executable.report.steps.rows()]
    assert any(name.startswith("wu_product/") for name in names)
    assert not any("wu_product/copy" in name for name in names)


def test_passes__given_a_split__are_planned_apart() -> None:
    graph = Graph(system(64))
    options = FWD | {"planConstraints": '{"0": {"partition": {"batchSplit": 4}}}'}
    plan = poplin.explain_matmul(graph, (8, 256), (256, 320), f16, options=options).plan
    assert plan.split["b"] == 4
    assert not plan.order
