"""Weight updates whose samples and positions make no whole groups: zeros beside them, and pieces that get long."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from abele.compiler import compile_program
from abele.graph import Execute, Graph, LibraryCall, Sequence, Tensor
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.lowering.call import ContractionCall
from abele.poplibs.poplin.planner.schedule import PlanSeries
from abele.poplibs.poplin.rewrites import expand_kernel, weight_gradient
from abele.runtime import Engine
from poplibs.poplin.support import reference_conv, system


def padded(samples: int, ins: int, outs: int, field: tuple[int, int], stride: int = 1) -> ConvParams:
    """A 3 x 3 convolution that keeps the field, but for its stride."""
    around = (1, 1)
    return ConvParams(
        samples, ins, outs, field, (3, 3), stride=(stride, stride), padding_lower=around, padding_upper=around
    )


def updates(
    params: ConvParams, tiles: int | str, dtype: ElementType = f32, **options: str
) -> tuple[Graph, Sequence, list[Tensor]]:
    """A graph and program of a weight update, whose operands lie as convolutions leave them, and its tensors."""
    graph, prog = Graph(system(tiles) if isinstance(tiles, int) else tiles), Sequence()
    x = poplin.create_input(graph, params, dtype, "x", options=options)
    # The gradient of the output lies as the output does.
    weights = poplin.create_weights(graph, params, dtype, "weights", options=options)
    deltas = poplin.convolution(graph, x, weights, params, Sequence(), options=options)
    out = poplin.calculate_weight_deltas(graph, deltas, x, params, prog, options=options)
    return graph, prog, [x, deltas, out]


def planned_channels(prog: Sequence) -> int:
    call = prog.steps[-1]
    assert isinstance(call, LibraryCall)
    series = call.attributes["plan"]
    assert isinstance(series, PlanSeries)
    return sum(plan.problem.in_channels for plan in series.plans)


@settings(max_examples=8)
@given(
    st.integers(3, 6),
    st.sampled_from([(5, 7), (7, 7), (3, 9)]),
    st.sampled_from([((1, 1), (1, 1)), ((3, 3), (1, 1)), ((3, 3), (2, 2)), ((1, 1), (2, 2))]),
    st.sampled_from([f16, f32]),
)
def test_weight_gradient__samples_and_field_in_no_whole_groups__is_what_pytorch_computes(
    samples: int, out: tuple[int, int], kind: tuple[tuple[int, int], tuple[int, int]], dtype: ElementType
) -> None:
    kernel, stride = kind
    field = (out[0] * stride[0], out[1] * stride[1])
    plain = ConvParams(samples, 32, 32, field, kernel, stride=stride)
    params = padded(samples, 32, 32, field, stride[0]) if kernel == (3, 3) else plain
    with pytest.MonkeyPatch.context() as patch:
        # The last way has both dimensions together: the cheapest may be another on so few tiles.
        patch.setattr(weight_gradient, "cheapest", lambda calls: calls[-1])
        patch.setattr(weight_gradient, "MOST_SLOWER", 100)
        graph, prog, (x, deltas, made) = updates(params, 32, dtype)
    rng = np.random.default_rng(samples)
    values, gradients = (rng.integers(-4, 5, t.shape).astype(dtype.np) for t in (x, deltas))
    # Zeros are written: memory holds no numbers before, and a read of such an element ends the run.
    with Engine(graph, prog, mode="tiles", keep=[x, deltas, made], checks="uninitialised") as engine:
        engine[x], engine[deltas] = values, gradients
        engine.run()
        found = np.array(engine[made])
    weights = torch.zeros(params.weights_shape, dtype=torch.float64, requires_grad=True)
    reference_conv(params, torch.tensor(values.astype(np.float64)), weights).backward(  # type: ignore[no-untyped-call]
        torch.tensor(gradients.astype(np.float64))
    )
    assert weights.grad is not None
    # Sums of small whole numbers are exact in f32, and rounded once in f16.
    wanted = weights.grad.numpy()
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if dtype is f16 else 0)


UPDATES = {
    "1 x 1": ConvParams(20, 512, 2048, (7, 7), (1, 1)),
    "3 x 3": padded(20, 512, 512, (7, 7)),
    "3 x 3, strided": padded(20, 512, 512, (14, 14), 2),
    "1 x 1, strided": ConvParams(20, 1024, 2048, (14, 14), (1, 1), stride=(2, 2)),
}
"""Convolutions of the last size of ResNet-50: sums over 20 x 7 x 7 = 980 samples and positions."""


@pytest.mark.slow
@pytest.mark.parametrize("name", UPDATES)
def test_weight_gradient__980_samples_and_positions__are_read_in_long_pieces(name: str) -> None:
    options = {"partialsType": "half", "availableMemoryProportion": "0.15"}
    graph, prog, _ = updates(UPDATES[name], "gc200", f16, **options)
    assert planned_channels(prog) % 16 == 0
    for step in compile_program(graph, prog).plan:
        if isinstance(step.node, Execute) and step.node.compute_set.name.endswith("partials"):
            assert step.before is not None
            # Pieces were of 7 groups of 16 at most, in f16; they are rows of one group now, as long as one tile has.
            assert step.before.bytes / step.before.fragments > 2 * 7 * 32


def test_weight_gradient__whole_groups__has_no_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[ContractionCall] = []
    append = ContractionCall.append

    def noted(call: ContractionCall, prog: Sequence) -> Tensor:
        taken.append(call)
        return append(call, prog)

    monkeypatch.setattr(ContractionCall, "append", noted)
    for samples, zeros in ((16, 0), (15, 1)):
        updates(ConvParams(samples, 32, 32, (7, 7), (1, 1)), 32, f16)
        assert taken[-1].zeros == zeros


@pytest.mark.slow
def test_weight_gradient__serial_parts_of_sums__are_as_long_as_what_they_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    # With samples in the field, no part would be of the sums.
    monkeypatch.setattr(expand_kernel, "flat_samples", lambda wide, expansion, *, field_first: wide)
    graph, prog, (_, deltas, _) = updates(padded(4, 128, 128, (112, 112)), "gc2", f16)
    assert planned_channels(prog) == deltas.size // 128
    rewritten = [v.size for v in graph.variables if v.name.endswith("weight_deltas/weights")]
    assert len(rewritten) > 1
    assert sum(rewritten) == deltas.size
