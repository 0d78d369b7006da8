"""All-reduces: what the pass makes of updates, what the op means, and how many collectives it takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from abele.distribution import training_program
from abele.errors import NetworkError
from abele.expr.derivative import arg
from abele.graph import CrossReplicaCopy, Graph
from abele.graph.program import walk
from abele.network import (
    Group,
    Lamb,
    Locations,
    MeanStrategy,
    Network,
    NetworkBuilder,
    NetworkOp,
    Schedule,
    Sgd,
    TensorLocation,
    evaluate,
    parse,
    training_pipeline,
    verify,
)
from abele.network.ops import build
from abele.network.split import Split
from abele.poplibs.gcl import CommGroup

REPLICAS = 4
TYPES = {"a": "f32", "b": "f32", "c": "f16"}


def linear_loss(sizes: dict[str, int]) -> Network:
    """The sum of each parameter's product with an input of its own."""
    net = NetworkBuilder()
    terms = []
    for name, size in sizes.items():
        weight, x = net.parameter((size,), TYPES[name], name), net.input((size,), TYPES[name], f"x_{name}")
        product = build.reduce(net, build.map_(net, arg(0) * arg(1), [weight, x]), [0])
        terms.append(build.cast(net, product, "f32"))
    net.loss = build.total(net, terms)
    net.output(net.loss)
    return net.finish()


def optimised(schedule: Schedule, sizes: dict[str, int]) -> Network:
    net = linear_loss(sizes)
    return training_pipeline(schedule, [Group(Sgd(lr=0.5), tuple(net.parameters))]).run(net)


def reduces(net: Network) -> list[NetworkOp]:
    return [op for op in net.ops if op.kind == "all_reduce"]


@pytest.mark.parametrize(("accumulation", "together"), [(1, [["a"], ["b"], ["c"]]), (2, [["a", "c"], ["b"]])])
def test_all_reduce__groups_and_types__take_an_op_each(accumulation: int, together: list[list[str]]) -> None:
    own = (("b", CommGroup.orthogonal(2)),)
    schedule = Schedule(1, accumulation, replicas=REPLICAS, own_values=own)
    net = optimised(schedule, {"a": 3, "b": 3, "c": 3})
    names = {gradient: parameter.name for parameter, gradient in net.gradients.items()}
    assert [[names[v] for v in op.inputs] for op in reduces(net)] == together
    assert {(op.attrs["group"], op.attrs["size"]) for op in reduces(net)} == {("ALL", 4), ("ORTHOGONAL", 2)}
    assert {op.attrs["in_place"] for op in reduces(net)} == {accumulation > 1}
    made = {v for op in reduces(net) for v in op.outputs}
    assert {op.inputs[1] for op in net.ops if op.kind == "update"} == made
    assert parse(str(net)) == net


@pytest.mark.parametrize(("strategy", "scale"), [(MeanStrategy.POST, 1.0), (MeanStrategy.RUNNING, 0.25)])
def test_all_reduce__of_parts_that_replicas_exchange__does_not_make_up_for_smaller_groups(
    strategy: MeanStrategy, scale: float
) -> None:
    sizes, own = {"a": 3, "b": 3}, (("b", CommGroup.orthogonal(2)),)
    schedule = Schedule(1, 2, replicas=REPLICAS, own_values=own, strategy=strategy)
    shared = replace(schedule, expert_parallel=CommGroup.consecutive(2), splits=(("b", Split(0, 6)),))
    assert shared.exchanged == ("b",)
    assert shared.parts_group == CommGroup.consecutive(2)
    alone, exchanged = (reduces(optimised(s, sizes))[-1].attrs["scale"] for s in (schedule, shared))
    assert (alone, exchanged) == (2 * scale, scale)


def test_all_reduce__one_replica__is_none() -> None:
    assert reduces(optimised(Schedule(1, 2), {"a": 3})) == []


@pytest.mark.parametrize("strategy", MeanStrategy)
def test_all_reduce__in_numpy__is_the_sum_or_the_mean_of_equal_replicas(strategy: MeanStrategy) -> None:
    net = optimised(Schedule(replicas=REPLICAS, strategy=strategy), {"a": 3})
    x = np.array([1.0, 2.0, 3.0])
    feeds = {v: x if v.name.startswith("x_") else np.zeros(3) for v in (*net.inputs, *net.parameters)}
    (reduced,) = reduces(net)[0].outputs
    expected = x if strategy == MeanStrategy.RUNNING else REPLICAS * x
    np.testing.assert_allclose(evaluate(net, feeds)[reduced], expected)


@pytest.mark.parametrize(("sizes", "collectives"), [({"a": 30_000, "b": 10}, 1), ({"a": 13_000_000, "b": 10}, 2)])
def test_all_reduce__of_more_than_tiles_should_hold__is_cut_into_collectives(
    sizes: dict[str, int], collectives: int
) -> None:
    net = linear_loss(sizes)
    graph = Graph("bow-2000", replicas=4)
    program = training_program(net, graph, Schedule(replicas=4), [Group(Sgd(lr=0.5), tuple(net.parameters))])
    # Large ones go round a ring, small ones are swapped.
    first = ("reduce_scatter/to_ring/rows", "swap/step0")
    begun = [s for s in graph.compute_sets if s.name.endswith(first)]
    assert program.schedule.replicas == graph.replicas
    assert len(begun) == collectives


def test_pipeline__printed_with_a_running_mean_on_replicas__says_both() -> None:
    schedule = Schedule(1, 2, strategy=MeanStrategy.RUNNING, replicas=2, own_values=(("a", CommGroup.none()),))
    text = str(training_pipeline(schedule, []))
    assert "accumulate(micro_batches=2, strategy=running)" in text
    assert "all-reduce(replicas=2, strategy=running, own_values=[[a, [NONE, 1, 1]]])" in text


# --- shares -----------------------------------------------------------------------------------------------------------

SHARED = Locations(TensorLocation(sharded=True, min_elements_sharded=8))


def shared(schedule: Schedule, sizes: dict[str, int]) -> Network:
    groups = [Group(Lamb(lr=0.5), tuple(linear_loss(sizes).parameters))]
    return training_pipeline(replace(schedule, locations=SHARED), groups).run(linear_loss(sizes))


def test_shares__of_large_parameters_alone__are_reduce_scattered() -> None:
    net = shared(Schedule(replicas=REPLICAS), {"a": 9, "b": 7, "c": 8})
    (whole,) = reduces(net)
    scattered = [op for op in net.ops if op.kind == "reduce_scatter"]
    assert [[v.name for v in op.inputs[1:]] for op in scattered] == [["a"], ["c"]]
    names = {gradient: parameter.name for parameter, gradient in net.gradients.items()}
    assert [names[v] for v in whole.inputs] == ["b"]
    made = {v for op in (whole, *scattered) for v in op.outputs}
    assert {op.inputs[1] for op in net.ops if op.kind == "update"} == made
    assert parse(str(net)) == net


@pytest.mark.parametrize("strategy", MeanStrategy)
def test_reduce_scatter__in_numpy__is_the_sum_or_the_mean_of_equal_replicas(strategy: MeanStrategy) -> None:
    net = shared(Schedule(replicas=REPLICAS, strategy=strategy), {"a": 9})
    x = np.arange(9.0)
    feeds = {v: x if v.name.startswith("x_") else np.zeros(9) for v in (*net.inputs, *net.parameters)}
    (sums,) = [op.output for op in net.ops if op.kind == "reduce_scatter"]
    np.testing.assert_allclose(evaluate(net, feeds)[sums], x if strategy == MeanStrategy.RUNNING else REPLICAS * x)


def test_shares__in_copies_between_replicas__take_what_an_all_reduce_takes() -> None:
    net = linear_loss({"a": 4096, "b": 4096})
    groups = [Group(Sgd(lr=0.5, momentum=0.9), tuple(net.parameters))]
    sent = []
    for locations in (Locations(), SHARED):
        program = training_program(
            net, Graph("bow-2000", replicas=4), Schedule(replicas=4, locations=locations), groups
        )
        copies = [step for step in walk(program.program) if isinstance(step, CrossReplicaCopy)]
        sent.append([step.source.bytes for step in copies])
    # To sum and to gather, a quarter of both parameters in each step.
    assert sent[1] == sent[0]
    assert set(sent[1]) == {4 * 2 * 4096 // 4}


def test_reduce_scatter__of_something_that_is_cut_otherwise__is_no_network() -> None:
    net = NetworkBuilder()
    values = net.parameter((8,), "f32", "a"), net.parameter((4,), "f32", "b")
    build.reduce_scatter(net, [values[0]], [values[1]], 2, scale=1.0, in_place=False)
    with pytest.raises(NetworkError, match="is not cut like"):
        verify(net.finish())
