"""Groups of replicas that compute one model: estimates beside compiled plans, and what is refused."""

from __future__ import annotations

import pytest
from spread_models import finished, mlp

from abele.distribution.tensor_parallel import SplitParameters, column_linear, row_linear
from abele.errors import InvalidOptionError
from abele.fitting import FitSpace, Model, Recomputation, chain_of, compiled_plan, fit_network, fitted_dict, fitted_text
from abele.fitting.measure import measured
from abele.fitting.segment import segment_network
from abele.fitting.space import FitSpace as Space
from abele.machine import systems
from abele.network import Group, NetworkBuilder
from abele.network.ops import build
from abele.poplibs.gcl import CommGroup

BOUND = 0.1
"""Relative error that an estimate of cycles and of the fullest tile may have."""


def blocks(batch, group=1, width=512, layers=4, training=True):
    """Pairs of layers, of which the first makes four times as many features; those are split."""
    net = NetworkBuilder()
    parts, whole = SplitParameters(net, CommGroup.consecutive(group)), net.input((batch, width), "f16", "x")
    for number in range(layers):
        up, down = f"up{number}", f"down{number}"
        if group == 1:
            hidden = build.linear(net, whole, net.parameter((4 * width, width), "f16", up), None)
            made = build.linear(net, build.nonlinearity(net, "relu", hidden), net.parameter((width, 4 * width), "f16", down))
        else:
            hidden = column_linear(net, whole, parts.parameter((4 * width, width), "f16", up), None, parts.group)
            weight = parts.parameter((width, 4 * width), "f16", down, dim=1)
            made = row_linear(net, build.nonlinearity(net, "relu", hidden), weight, None, parts.group)
        whole = build.nonlinearity(net, "tanh", made)
    model = finished(net, whole, training)
    return Model(model.net, model.groups, tuple(parts.splits.items()))


def space(system, **more):
    return FitSpace(system=systems.resolve(system), **{"batch": 256, "micro_batches": (16,), **more})


@pytest.mark.parametrize(
    ("system", "group", "ipus"),
    [
        ("bow-2000:2", 2, 1),
        ("bow-2000", 2, 1),
        ("bow-2000", 2, 2),
        ("bow-2000", 4, 1),
        pytest.param("pod16:8", 4, 2, marks=pytest.mark.slow),
    ],
)
def test_fit__groups__estimates_are_near_what_compiling_gives(system, group, ipus):
    searched = space(system, group_sizes=(group,), recompute=(Recomputation.NOTHING,))
    found = fit_network(blocks, searched, check=0)
    ranked = next(r for r in found.ranking if r.plan.ipus == ipus)
    assert ranked.plan.batch == 256
    assert ranked.plan.num_ipus == searched.system.num_ipus
    made = compiled_plan(ranked.plan, blocks(16, group), found.chains[ranked.plan.model_size], searched)
    assert made.fits
    assert ranked.estimate.cycles == pytest.approx(made.cycles, rel=BOUND)
    # Code around stages, of ticks and rings, is not in the estimate.
    known = max(made.ipu_bytes) - (2_000 if ipus > 1 else 0)
    assert max(ranked.estimate.ipu_bytes) == pytest.approx(known, rel=BOUND)
    assert len(ranked.estimate.ipu_bytes) == len(made.ipu_bytes) == ipus
