"""Convolutions with operands exchanged, and with output positions as channels: what they compute, and when they pay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from abele.graph import Graph, Sequence
from abele.numerics import f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.contraction import problem as problems
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.lowering.call import ContractionCall, cheapest
from abele.poplibs.poplin.operations import convolution
from abele.poplibs.poplin.options import DEFAULT, Types
from abele.poplibs.poplin.planner.target import least_cycles, target_of
from abele.poplibs.poplin.rewrites.expand_kernel import expansions
from abele.poplibs.poplin.rewrites.flatten_field_out import OutputWindows, flattenings
from abele.poplibs.poplin.rewrites.swap_operands import is_turned, swapped
from abele.runtime import Engine
from poplibs.poplin.support import system

Way = Callable[[ContractionCall], Iterator[ContractionCall]]
WAYS: dict[str, Way] = {
    "swapped": lambda call: iter([swapped(call)]),
    "swapped and expanded": lambda call: expansions(swapped(call)),
    "flattened": flattenings,
}
TEXT = ConvParams(32, 1, 100, (60, 200), (5, 200))
"""Windows of words: its input gradient has one channel, and a kernel as wide as its output."""
CONVS = {
    "padded": ConvParams(2, 3, 5, (5, 6), (3, 3), padding_lower=(1, 2), padding_upper=(1, 2)),
    "window as wide as the field": ConvParams(2, 1, 8, (7, 12), (3, 12)),
    "longer than the field": ConvParams(1, 2, 3, (5,), (7,), padding_lower=(4,), padding_upper=(4,)),
    "groups": ConvParams(2, 4, 8, (3, 4), (3, 4), padding_lower=(2, 3), padding_upper=(2, 3), groups=2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_way__computed_by_its_vertices__is_what_pytorch_computes(
    name: str, way: str, backward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    params, taken = CONVS[name], []

    def last(calls: list[ContractionCall]) -> ContractionCall:
        taken.extend(WAYS[way](calls[0]))
        return taken[-1] if taken else calls[0]

    monkeypatch.setattr(convolution, "cheapest", last)
    graph, prog = Graph(system(16)), Sequence()
    x_shape = params.output_shape if backward else params.input_shape
    x = graph.variable(f32, x_shape, "x").map_linear()
    w = graph.variable(f32, params.weights_shape, "w").map_linear()
    made = poplin.convolution_backward_data if backward else poplin.convolution
    out = made(graph, x, w, params, prog)
    rng = np.random.default_rng(0)
    values, weights = (rng.normal(size=t.shape).astype(np.float32) for t in (x, w))
    with Engine(graph, prog, mode="tiles", keep=[x, w, out]) as engine:
        engine[x], engine[w] = values, weights
        engine.run()
        found = np.array(engine[out])
    np.testing.assert_allclose(found, _expected(params, values, weights, backward=backward), rtol=1e-4, atol=1e-4)


def _expected(params: ConvParams, values: np.ndarray, weights: np.ndarray, *, backward: bool) -> np.ndarray:
    conv = {1: torch.nn.functional.conv1d, 2: torch.nn.functional.conv2d}[len(params.field)]
    x = torch.zeros(params.input_shape, dtype=torch.float64, requires_grad=True)
    if not backward:
        x = torch.tensor(values, dtype=torch.float64)
    out = conv(x, torch.tensor(weights, dtype=torch.float64), padding=params.padding_lower, groups=params.groups)
    if not backward:
        return out.numpy()
    out.backward(torch.tensor(values, dtype=torch.float64))
    assert x.grad is not None
    return x.grad.numpy()


def test_input_gradient__one_channel__is_not_left_to_one_unit() -> None:
    graph, prog = Graph("gc200"), Sequence()
    weights = poplin.create_weights(graph, TEXT, f16)
    deltas = poplin.create_input(graph, TEXT.gradient_params(), f16, name="deltas")
    poplin.convolution_backward_data(graph, deltas, weights, TEXT, prog)
    plan = prog.steps[-1].attributes["plan"].plans[0]  # type: ignore[attr-defined]
    assert plan.method.family == "amp"
    # With one out-channel in the units, the products alone would take as long if they were at their fastest.
    gradient = problems.input_gradient(TEXT, f16, f32, f16)
    assert plan.cycles < 1.2 * least_cycles(gradient, target_of(graph.system))


@pytest.mark.parametrize(
    "axis", [Axis(9, 7, 3), Axis(9, 9, 3, offset=-1), Axis(5, 9, 3, 2, 1, -1, 1), Axis(9, 4, 3, 1, 2, 2, -1)]
)
def test_axis__swapped__meets_the_same(axis: Axis) -> None:
    turned = axis.swapped()
    assert (turned.inputs, turned.kernel) == (axis.kernel, axis.inputs)
    met = {(o, axis.out_step * o + axis.kernel_step * k + axis.offset, k) for o, k in np.argwhere(axis.meets())}
    met = {(o, i // axis.in_step, k) for o, i, k in met}
    back = {
        (o, i, turned.out_step * o + turned.kernel_step * i + turned.offset) for o, i in np.argwhere(turned.meets())
    }
    assert met == {(o, i, k // turned.in_step) for o, i, k in back}
    assert turned.swapped() == axis


def test_cheapest__ways_that_cannot_be_better__are_not_planned() -> None:
    graph, planned = Graph("gc200"), []
    params = ConvParams(4, 64, 64, (28, 28), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1))
    weights, x = poplin.create_weights(graph, params, f16), poplin.create_input(graph, params, f16)
    types = Types(f16, f32, f16)
    best = convolution.forward_call(graph, x, weights, params=params, types=types, planning=DEFAULT, name="c")

    class Watched:
        least_cycles = best.cycles

        @property
        def cycles_beside(self) -> int:
            planned.append(self)
            return 0

    assert cheapest([best, Watched()]) is best  # type: ignore[list-item]
    assert not planned


def test_explain__flattened_convolution__says_so() -> None:
    params = ConvParams(32, 100, 1, (1, 1), (5, 40), padding_lower=(4, 39), padding_upper=(4, 39))
    graph = Graph("gc200")
    found = poplin.explain_convolution(graph, params, f16)
    assert isinstance(found.call.widening, OutputWindows) or is_turned(found.call)
    assert any("flattened into the channels" in line or "operands swap" in line for line in found.before)
