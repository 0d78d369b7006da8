"""Inputs that are written out: what is computed from them, and in how many pieces their readers find them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from abele.compiler import compile_program
from abele.graph import Execute, Graph, Sequence
from abele.numerics import f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.lowering.call import ContractionCall
from abele.poplibs.poplin.rewrites import weight_gradient
from abele.runtime import Engine
from poplibs.poplin.support import system

CONVS = {
    "samples and one kernel position in groups": ConvParams(
        4, 16, 8, (6, 6), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1)
    ),
    "samples and both in groups": ConvParams(3, 4, 8, (4, 6), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1)),
    "samples in groups": ConvParams(16, 3, 5, (5, 6), (2, 2), stride=(2, 1)),
    "no groups": ConvParams(3, 5, 2, (5, 7), (3, 3)),
    "strided": ConvParams(2, 16, 32, (7, 8), (1, 1), stride=(2, 2)),
    "groups": ConvParams(4, 8, 8, (6, 4), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1), groups=2),
}
WAYS = 6
"""Ways of a weight gradient whose kernel has two dimensions: both operands slide, along one of them, or neither."""


@pytest.mark.parametrize("name", CONVS)
@pytest.mark.parametrize("way", range(WAYS))
def test_weight_gradient__kernel_written_out__is_what_pytorch_computes(
    name: str, way: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(calls: list[ContractionCall]) -> ContractionCall:
        wide = [call for call in calls if call.expansion is not None]
        return wide[way % len(wide)]

    monkeypatch.setattr(weight_gradient, "cheapest", taken)
    params = CONVS[name]
    graph, prog = Graph(system(16)), Sequence()
    x = poplin.create_input(graph, params, f32, "x")
    deltas = graph.variable(f32, params.output_shape, "deltas").map_linear()
    out = poplin.calculate_weight_deltas(graph, deltas, x, params, prog)
    rng = np.random.default_rng(way)
    values, gradients = (rng.normal(size=t.shape).astype(np.float32) for t in (x, deltas))
    with Engine(graph, prog, mode="tiles", keep=[x, deltas, out]) as engine:
        engine[x], engine[deltas] = values, gradients
        engine.run()
        found = np.array(engine[out])
    weights = torch.zeros(params.weights_shape, dtype=torch.float64, requires_grad=True)
    made = torch.nn.functional.conv2d(
        torch.tensor(values, dtype=torch.float64),
        weights,
        stride=params.stride,
        padding=params.padding_lower,
        groups=params.groups,
    )
    made.backward(torch.tensor(gradients, dtype=torch.float64))  # type: ignore[no-untyped-call]
    assert weights.grad is not None
    np.testing.assert_allclose(found, weights.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_shortcut__of_many_channels__is_read_in_long_pieces() -> None:
    # A tile reads 5,632 positions and channels of it, of 22,528 B. In pieces of a group of 16 at one position these
    # would be 32 B each.
    params = ConvParams(20, 256, 512, (56, 56), (1, 1), stride=(2, 2))
    graph, prog = Graph("gc200"), Sequence()
    options = {"partialsType": "half", "availableMemoryProportion": "0.15"}
    x, weights = (make(graph, params, f16, options=options) for make in (poplin.create_input, poplin.create_weights))
    poplin.convolution(graph, x, weights, params, prog, options=options)
    steps = compile_program(graph, prog).plan
    (products,) = (s for s in steps if isinstance(s.node, Execute) and "partials" in s.node.compute_set.name)
    assert products.before is not None
    assert products.before.bytes / products.before.fragments > 8 * 32
