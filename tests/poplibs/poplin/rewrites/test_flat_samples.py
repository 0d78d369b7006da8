"""Samples joined to a field dimension that has no kernel left."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d

from abele.graph import Graph, Sequence
from abele.machine import systems
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.lowering.call import ContractionCall
from abele.poplibs.poplin.rewrites import weight_gradient
from abele.poplibs.poplin.rewrites.flatten_field import FlatRewriting, samples_in_field
from abele.runtime import Engine

LAYERS = {
    "7 x 1": ConvParams(2, 8, 16, (9, 5), (7, 1), padding_lower=(3, 0), padding_upper=(3, 0)),
    "1 x 7": ConvParams(2, 8, 16, (5, 9), (1, 7), padding_lower=(0, 3), padding_upper=(0, 3)),
    "3 x 3": ConvParams(2, 8, 8, (6, 7), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1)),
    "stride": ConvParams(2, 4, 8, (9, 8), (3, 2), stride=(2, 1)),
    "dilation": ConvParams(1, 4, 8, (9, 9), (3, 3), dilation=(2, 2)),
    "groups": ConvParams(2, 8, 8, (6, 6), (3, 3), padding_lower=(1, 1), padding_upper=(1, 1), groups=2),
}


def gradient_of(params: ConvParams, deltas: np.ndarray, x: np.ndarray) -> np.ndarray:
    """PyTorch's gradient of the weights."""
    weights = torch.zeros(params.weights_shape, requires_grad=True)
    out = conv2d(
        torch.from_numpy(x.astype(np.float32)),
        weights,
        stride=params.stride,
        padding=params.padding_lower,
        dilation=params.dilation,
        groups=params.groups,
    )
    out.backward(torch.from_numpy(deltas.astype(np.float32)))
    assert weights.grad is not None
    return weights.grad.numpy()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dims", [(0,), (1,)], ids=["rows", "columns"])
def test_weight_gradient__samples_joined_to_a_dimension__is_pytorchs(
    name: str, dims: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = LAYERS[name]
    taken: list[ContractionCall] = []

    def choose(calls: Iterable[ContractionCall]) -> ContractionCall:
        for call in calls:
            expansion = call.expansion
            if isinstance(expansion, FlatRewriting) and expansion.written.dims == dims:  # type: ignore[attr-defined]
                taken.append(call)
                return call
        pytest.skip("nothing is written out along these dimensions alone")

    monkeypatch.setattr(weight_gradient, "cheapest", choose)
    graph, prog = Graph(systems.get("gc200").evolve(ipu={"num_tiles": 24})), Sequence()
    deltas = poplin.create_input(graph, params.gradient_params(), "half", name="deltas")
    x = poplin.create_input(graph, params, "half", name="x")
    out = poplin.calculate_weight_deltas(graph, deltas, x, params, prog)
    assert taken[0].problem.batch == 1
    rng = np.random.default_rng(1)
    given = [rng.integers(-2, 3, t.shape).astype(np.float16) for t in (deltas, x)]
    with Engine(graph, prog, keep=[deltas, x, out], mode="tiles") as engine:
        engine[deltas], engine[x] = given
        engine.run()
        np.testing.assert_array_equal(engine[out], gradient_of(params, *given).astype(np.float16))


@pytest.mark.parametrize("flat", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1)])
@pytest.mark.parametrize("field_first", [False, True])
def test_samples_in_field__any_dimensions__are_numpys(flat: tuple[int, ...], field_first: bool) -> None:
    graph = Graph(systems.get("gc200"))
    shape = (2, 3, 4, 5, 6, 7)
    tensor = graph.variable("f32", shape, "x").map(0)
    view = samples_in_field(tensor, flat, field_first=field_first)
    values = np.arange(np.prod(shape)).reshape(shape)
    kept = [d for d in range(3) if d not in flat]
    places = [3 + d for d in flat]
    turned = values.transpose([0, 2, *(3 + d for d in kept), *([*places, 1] if field_first else [1, *places])])
    rows = 3 * int(np.prod([shape[3 + d] for d in flat]))
    joined = np.moveaxis(
        turned.reshape(2, 4, *(shape[3 + d] for d in kept), rows), -1, 2 + sum(d < flat[-1] for d in kept)
    )
    assert view.shape[:3] == (2, 1, 4)
    assert [n for d, n in enumerate(view.shape[3:]) if d in flat] == [1] * (len(flat) - 1) + [rows]
    order = (
        np.concatenate([np.arange(b, b + n) for b, n in zip(*view.intervals(), strict=True)]) - tensor.intervals()[0][0]
    )
    np.testing.assert_array_equal(order, joined.ravel())


def test_weight_gradient__kernel_along_one_dimension__has_long_rows_and_no_copies_of_inputs() -> None:
    graph, prog = Graph(systems.get("gc200")), Sequence()
    params = ConvParams(4, 192, 192, (17, 17), (7, 1), padding_lower=(3, 0), padding_upper=(3, 0))
    deltas = poplin.create_input(graph, params.gradient_params(), "half", name="deltas")
    x = poplin.create_input(graph, params, "half", name="x")
    poplin.calculate_weight_deltas(graph, deltas, x, params, prog, like=poplin.create_weights(graph, params, "half"))
    (plan,) = prog.steps[-1].attributes["plan"].plans  # type: ignore[attr-defined]
    assert [axis.outputs for axis in plan.problem.axes] == [7, 192]
    assert plan.problem.in_channels == 4 * 17
