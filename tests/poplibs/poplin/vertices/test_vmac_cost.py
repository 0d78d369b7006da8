from __future__ import annotations

import numpy as np
import pytest
import torch

from abele.errors import InvalidOptionError
from abele.graph import Graph, Sequence
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.vertices.vmac_cost import vmac, vmac_takes
from abele.poplibs.poplin.vertices.work import Work
from poplibs.poplin.support import reference_conv, run_body, system

PINNED = {"planConstraints": '{"method": {"type": "VMAC"}}'}


@pytest.mark.parametrize("groups", [4, 8, 16, 48])
@pytest.mark.parametrize("partials", [f16, f32])
def test_convolution__depthwise_by_vertical_macs__is_pytorchs(groups: int, partials: ElementType) -> None:
    params = ConvParams(
        2, groups, groups, (6, 5), (3, 2), stride=(1, 2), padding_lower=1, padding_upper=1, groups=groups
    )
    graph, prog = Graph(system(16)), Sequence()
    x = graph.variable(f16, params.input_shape).map_linear()
    w = graph.variable(f16, params.weights_shape).map_linear()
    y = poplin.convolution(graph, x, w, params, prog, partials_type=partials, options=PINNED)
    (plan,) = prog.steps[0].attributes["plan"].plans  # type: ignore[attr-defined]
    assert plan.method.kind == "vmac"
    rng = np.random.default_rng(0)
    vx, vw = (rng.standard_normal(t.shape).astype(np.float16) for t in (x, w))
    (got,) = run_body(graph, prog, {x: vx, w: vw}, y)
    wanted = reference_conv(params, *(torch.tensor(v.astype(np.float64)) for v in (vx, vw))).numpy()
    np.testing.assert_allclose(got, wanted, rtol=4e-3, atol=8e-3)


def test_convolution__channels_that_mix__cannot_take_vertical_macs() -> None:
    params = ConvParams(1, 8, 8, (6,), (3,))
    graph, prog = Graph(system(16)), Sequence()
    x, w = (graph.variable(f16, s).map_linear() for s in (params.input_shape, params.weights_shape))
    with pytest.raises(InvalidOptionError, match="vmac vertices, which cannot do this work"):
        poplin.convolution(graph, x, w, params, prog, options=PINNED)


@pytest.mark.parametrize(
    ("channels", "dtype", "partials", "taken"),
    [(4, f16, f32, True), (8, f16, f32, False), (8, f16, f16, True), (16, f16, f16, True), (4, f32, f32, False)],
)
def test_vmac_takes__channels_and_types__are_those_of_the_vertices(
    channels: int, dtype: ElementType, partials: ElementType, taken: bool
) -> None:
    assert vmac_takes(channels, dtype, partials) is taken


def test_vmac__longer_rows__cost_the_slots_of_their_positions() -> None:
    one = np.ones(1, dtype=np.int64)

    def cycles(run: int) -> int:
        positions = run * 6 * one
        return int(vmac(Work(f16, f16, one, 8 * one, 8 * one, positions, positions, run * one, one, one))[0])

    longer = cycles(600) - cycles(300)
    sums = 300 * 6 * 8
    # Rows of 3 slots per position; zeroing of 4 sums a cycle; reducing at 12 slots for 4 sums of a worker.
    assert longer == 6 * 3 * 300 + sums // 4 + 6 * 12 * (sums // 4 // 6)
