"""Replicas: training and inference on several copies of a network, against NumPy over the global batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_front_end import mlp, mlp_batch, mlp_trained, mlp_weights, trace

from abele.errors import BatchSizeError, GraphReplicationError, InvalidOptionError
from abele.network import Adam, Group, Sgd
from abele.poplibs.gcl import CommGroup
from abele.session import Schedule, Session, Settings, SharedArrays, Signature
from abele.session.feeds import dealt, gathered, host_shape, micro_batch_shape

RATE = 0.1


def session(schedule: Schedule, optimiser: Sgd | Adam | None = None, **more: Any) -> Session:
    """A session of two layers, four samples in a micro-batch; one that trains if there is an optimiser."""
    weights = SharedArrays(more.pop("weights", None) or mlp_weights())
    net = trace(mlp, weights, Signature.of(mlp_batch(4 * schedule.micro_batches)), schedule)
    groups = None if optimiser is None else [Group(optimiser, tuple(net.parameters))]
    return Session.of(net, schedule, groups=groups, weights=weights, **more)


@pytest.mark.parametrize("mode", ["native", "tiles"])
@pytest.mark.parametrize("mean", [True, False])
@pytest.mark.parametrize(("iterations", "accumulation", "replicas"), [(1, 1, 2), (2, 3, 2), (3, 1, 4)])
def test_training__on_replicas__is_what_numpy_computes_over_the_global_batch(
    iterations: int, accumulation: int, replicas: int, mean: bool, mode: str
) -> None:
    schedule = Schedule(iterations, accumulation, mean, replicas=replicas)
    x, target = mlp_batch(4 * schedule.micro_batches)
    training = session(schedule, Sgd(lr=RATE, momentum=0.9), settings=Settings(mode=mode))
    losses, scores = training(x, target)
    together = Schedule(iterations, accumulation * replicas, mean)
    expected, expected_losses = mlp_trained(mlp_weights(), x, target, together, lr=RATE, momentum=0.9)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert scores.shape == (len(x), 2)
    for name, weight in expected.items():
        np.testing.assert_allclose(training.weights[name], weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "group", [CommGroup.none(), CommGroup.consecutive(2), CommGroup.orthogonal(2), CommGroup.all()]
)
@pytest.mark.parametrize("as_iterables", [False, True])
def test_inputs__of_groups_of_replicas__reach_each_of_them(group: CommGroup, as_iterables: bool) -> None:
    schedule = Schedule(2, replicas=4, input_groups=group)
    groups = group.members(4)
    x, target = mlp_batch(4 * 2 * len(groups))
    made = session(schedule)
    inputs = [iter(np.split(a, 2 * len(groups))) for a in (x, target)] if as_iterables else [x, target]
    losses = made.run(inputs).outputs[0].reshape(2, 4)
    alone = session(Schedule(2 * len(groups)))(x, target)[0].reshape(2, len(groups))
    for number, members in enumerate(groups):
        np.testing.assert_array_equal(losses[:, members], np.repeat(alone[:, [number]], len(members), 1))


@given(
    replicas=st.sampled_from([1, 2, 4, 6]),
    rounds=st.integers(1, 3),
    shape=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    data=st.data(),
)
def test_dealing__any_groups__is_undone_by_gathering(
    replicas: int, rounds: int, shape: tuple[int, ...], data: st.DataObject
) -> None:
    size = data.draw(st.sampled_from([n for n in range(1, replicas + 1) if replicas % n == 0]))
    group = data.draw(st.sampled_from([CommGroup.consecutive(size), CommGroup.orthogonal(size)]))
    schedule = Schedule(rounds, replicas=replicas, input_groups=group)
    batch = np.arange(np.prod(host_shape(shape, schedule), dtype=int)).reshape(host_shape(shape, schedule))
    dealt_out = dealt(batch, schedule, shape)
    assert dealt_out.size == rounds * replicas * int(np.prod(shape, dtype=int))
    np.testing.assert_array_equal(gathered(dealt_out, schedule, shape), batch)


def test_outfeed__on_replicas__has_the_outputs_of_each() -> None:
    schedule, seen = Schedule(2, replicas=2), []
    x, target = mlp_batch(16)
    made = session(schedule)
    whole = made(x, target)[0]
    made.run([x, target], outfeed=lambda number, outputs: seen.append((number, float(outputs[0]))))
    assert seen == list(enumerate(whole.tolist()))


def test_batch__that_does_not_divide__says_how_many_replicas_there_are() -> None:
    with pytest.raises(BatchSizeError) as caught:
        micro_batch_shape((6, 3), Schedule(2, replicas=4))
    assert caught.value.because == "2 device iterations, 1 micro-batches each, on 4 replicas"


@pytest.mark.parametrize(
    "wrong", [{"replicas": 0}, {"replicas": True}, {"replicas": 4, "input_groups": CommGroup.consecutive(3)}]
)
def test_schedule__replicas_that_make_no_sense__are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((InvalidOptionError, GraphReplicationError)):
        Schedule(**wrong)


def test_report__on_replicas__has_collectives_and_the_samples_of_all() -> None:
    reports = {}
    for replicas in (1, 2, 4):
        made = session(Schedule(1, 2, replicas=replicas), Sgd(lr=RATE))
        report = reports[replicas] = made.report
        assert report.meta["samples_per_run"] == 8 * replicas
        assert report.target["num_replicas"] == replicas
        crossing = [s for s in made.executable.steps if s.kind == "cross_replica"]
        # Small sums are swapped two by two, for each bit of the replicas' numbers.
        assert len(crossing) == replicas.bit_length() - 1
    assert reports[1].total_cycles < reports[2].total_cycles < reports[4].total_cycles


def test_compiled_network__of_replicas__is_found_again_in_a_folder(tmp_path: Any) -> None:
    own = (("in.weight", CommGroup.none()),)
    schedule = Schedule(replicas=2, own_values=own)
    weights = mlp_weights()
    weights["in.weight"] = np.stack([weights["in.weight"], 2 * weights["in.weight"]])
    x, target = mlp_batch(8)

    def trained() -> tuple[Session, Any]:
        shared = SharedArrays(weights)
        net = trace(mlp, SharedArrays(mlp_weights()), Signature.of((x, target)), schedule)
        groups = [Group(Sgd(lr=RATE, momentum=0.9), tuple(net.parameters))]
        made = Session.of(net, schedule, groups=groups, weights=shared, settings=Settings(cache=str(tmp_path)))
        return made, made(x, target)

    first, losses = trained()
    again, same = trained()
    np.testing.assert_array_equal(losses[0], same[0])
    assert again.compiled.ends.weights["in.weight"].group == CommGroup.none()
    assert again.state["in.weight/momentum"].shape == (2, 5, 3)
    for name in weights:
        np.testing.assert_array_equal(first.weights[name], again.weights[name])
