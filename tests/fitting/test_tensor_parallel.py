"""Groups of replicas that compute one model: estimates beside compiled plans, and what is refused."""

from __future__ import annotations

import pytest
from spread_models import finished

from abele.distribution.tensor_parallel import SplitParameters, column_linear, row_linear
from abele.errors import InvalidOptionError
from abele.fitting import (
    FitSpace,
    Model,
    Recomputation,
    StatePlace,
    chain_of,
    compiled_plan,
    fit_network,
    fitted_dict,
    fitted_text,
)
from abele.fitting.measure import measured
from abele.fitting.segment import segment_network
from abele.fitting.traffic import StageWork, all_reduce_cycles, collective_costs, tick_cycles
from abele.machine import systems
from abele.network import NetworkBuilder
from abele.network.ops import build
from abele.poplibs.gcl import CommGroup
from abele.session import Settings

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
            weight = net.parameter((width, 4 * width), "f16", down)
            made = build.linear(net, build.nonlinearity(net, "relu", hidden), weight)
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


def test_fit__groups_beside_none__answers_without_groups_are_as_before():
    usual = fit_network(blocks, space("bow-2000"), check=0)
    both = fit_network(blocks, space("bow-2000", group_sizes=(1, 2)), check=0)
    alone = [(r.plan, r.estimate) for r in both.ranking if r.plan.group == 1]
    assert alone == [(r.plan, r.estimate) for r in usual.ranking]
    assert any(r.plan.group == 2 for r in both.ranking)


def test_fit__layer_too_large_for_an_ipu__fits_on_four_that_compute_it_together():
    few = systems.bow_2000().evolve(ipu={"num_tiles": 32})
    searched = space(few, group_sizes=(1, 4), batch=None, phases=False, states=(StatePlace.ON_CHIP,))
    found = fit_network(lambda batch, group=1: blocks(batch, group, width=832, layers=1), searched, check=1)
    assert found.smallest == 4
    assert {r.plan.group for r in found.ranking} == {4}
    assert found.best.compiled.fits
    assert found.best.plan.ipus == 1
    assert {m.plan.group for m in found.misses} == {1}


def test_fit__groups__are_named_in_text_and_data():
    found = fit_network(blocks, space("bow-2000", group_sizes=(2,)), check=0)
    text = fitted_text(found)
    assert "of which 2 compute a model together" in text
    assert "1 x 4 by 2" in text
    assert {plan["replicas_per_model"] for plan in fitted_dict(found)["ranking"]} == {2}


def test_fit__pipelines_of_groups__lose_where_stages_wait_for_each_other():
    found = fit_network(blocks, space("bow-2000", group_sizes=(2,), batch=4096), check=0)
    slower = [r for r in found.ranking if r.plan.ipus == 2]
    assert all("wait where replicas of a group exchange" in r.reason for r in slower)


def _segment(number, group):
    model = blocks(16, group, layers=2)
    chain = chain_of(model.net, model.groups)
    return segment_network(chain, number, model.groups, group=group, splits=model.splits)


def test_measured__replicas_of_a_group__exchange_in_the_pass_that_asks_for_it():
    pod = systems.resolve("pod16")
    row, column, whole = (measured(_segment(*which), Settings(), pod) for which in ((1, 2), (2, 2), (2, 1)))
    before, after = row.forward_apart
    assert 0 < before < row.forward_cycles - after
    # The sum of what the next block's replicas send back begins the backward pass, and nothing else is sent there.
    before, after = row.backward_apart
    assert 0 == before < after < row.backward_cycles
    assert column.forward_apart is column.backward_apart is None
    assert whole.forward_apart is whole.backward_apart is None
    # Each has half of the weights, and of what belongs to them.
    assert 2 * column.gradient_bytes == whole.gradient_bytes
    assert 2 * column.state_bytes == whole.state_bytes


def test_measured__ipus_between_those_of_a_group__make_its_exchanges_longer():
    segment, pod = _segment(1, 4), systems.resolve("pod16")
    near, far = (measured(segment, Settings(), pod, ipus) for ipus in (1, 4))
    assert far.forward_cycles > near.forward_cycles
    assert len(far.peak) == len(near.peak) == pod.ipu.num_tiles


def test_collective_costs__replicas_of_the_same_rank__swap_and_make_no_ring():
    pod = systems.resolve("pod16")
    ranks, every = (collective_costs(1, 8, pod, group=group) for group in (4, 1))
    assert ranks.code_bytes < every.code_bytes
    assert all_reduce_cycles([1 << 20], 4, pod, group=4) == 0


@pytest.mark.parametrize(
    ("works", "cycles"),
    [
        # The last stage runs first: until it last meets the others, they wait.
        ([(0, 10, (2, 3)), (1, 20, (5, 4))], 16 + 5 + 4 + 3),
        ([(0, 10, None), (1, 20, (5, 4))], 26),
        ([(0, 10, (2, 3)), (1, 20, None)], 25 + 3),
        ([(0, 10, None), (1, 20, None)], 20),
    ],
)
def test_tick_cycles__replicas_meet_inside_of_stages__all_ipus_wait(works, cycles):
    made = [StageWork(ipu, (0, 0), total, (0, 0), apart) for ipu, total, apart in works]
    assert tick_cycles(made, 0) == cycles


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((3,), "groups of 1, 2, 4"),
        ((8,), "the machine has 4 IPUs"),
        ((0,), "groups of 0"),
        ((), "group_sizes is empty"),
    ],
)
def test_space__groups_that_the_machine_has_no_ipus_for__are_refused(sizes, text):
    with pytest.raises(InvalidOptionError, match=text):
        space("bow-2000", group_sizes=sizes)
