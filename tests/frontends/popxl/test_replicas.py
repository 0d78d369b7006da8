"""Programs of PopXL on several replicas: groups, variables by group, streams, collectives and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch

from abele import popxl
from abele.errors import AbeleError, ControlProgramError
from abele.popxl import ops

collectives = ops.collectives
RNG = np.random.default_rng(5)


def strided(replicas: int) -> list[tuple[int, int]]:
    """Strides and sizes of all groups of several replicas."""
    powers = [n for n in range(1, replicas + 1) if replicas % n == 0]
    return [(s, g) for s in powers for g in powers if g > 1 and replicas % (s * g) == 0]


def run_on_each(
    replicas: int, build: Callable[..., Sequence[Any]], *arrays: np.ndarray, **settings: Any
) -> list[np.ndarray]:
    """Results of ops on all replicas, of an array [replicas, …] for each tensor."""
    ir = popxl.Ir(replication=replicas)
    with ir.main_graph:
        entered = [popxl.h2d_stream(a.shape[1:], a.dtype) for a in arrays]
        made = build(ir, *[ops.host_load(s) for s in entered])
        left = [popxl.d2h_stream(t.shape, t.dtype) for t in made]
        for stream, tensor in zip(left, made, strict=True):
            ops.host_store(stream, tensor)
    with popxl.Session(ir, **settings) as session:
        results = session.run(dict(zip(entered, arrays, strict=True)))
    return [results[s] for s in left]


# --- collectives ------------------------------------------------------------------------------------------------------

X = RNG.integers(-4, 5, (8, 2, 3)).astype(np.float32)
B = RNG.random((8, 5)) < 0.7
REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "add": lambda a: a.sum(0),
    "mean": lambda a: a.mean(0),
    "mul": lambda a: a.prod(0),
    "min": lambda a: a.min(0),
    "max": lambda a: a.max(0),
    "square_add": lambda a: (a * a).sum(0),
}


def parts(array: np.ndarray, count: int) -> np.ndarray:
    """Equal parts of an array, filled up with zeros."""
    flat = array.reshape(-1)
    return np.pad(flat, (0, -flat.size % count)).reshape(count, -1)


def expected_of(own: np.ndarray, bools: np.ndarray) -> list[list[np.ndarray]]:
    """For each collective the results on the replicas of a group, of what they have."""
    size = len(own)
    every = [[f(own)] * size for f in REDUCTIONS.values()]
    every += [[np.asarray(f(bools, axis=0))] * size for f in (np.all, np.any)] + [list(own)]
    every += [[np.concatenate(list(own), 1)] * size, [own] * size, [np.stack(list(own), 2)] * size]
    every += [list(parts(f(own), size)) for f in (REDUCTIONS["add"], REDUCTIONS["mean"], REDUCTIONS["max"])]
    every += [[parts(own[n], size)[n] for n in range(size)], list(own)]
    return every


def all_of(ir: popxl.Ir, group: Any, x: Any, b: Any) -> list[Any]:
    """All collectives in one group."""
    made = [collectives.replicated_all_reduce(x, op, group) for op in REDUCTIONS]
    made += [collectives.replicated_all_reduce(b, op, group) for op in ("and", "or")]
    made += [collectives.replicated_all_reduce(x, "local", group)]
    made += [collectives.replicated_all_gather(x, 1, group)]
    made += [collectives.replicated_all_gather(x, n, group, output_shape="new_axis") for n in (0, 2)]
    made += [collectives.replicated_reduce_scatter(x, op, group) for op in ("add", "mean", "max")]
    made += [collectives.replica_sharded_slice(x, group)]
    whole = collectives.replicated_all_gather(x, 0, group, output_shape="concat")
    made += [collectives.replicated_slice(whole, 0, group)]
    return made


@pytest.mark.parametrize("replicas", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_collectives__in_groups_of_every_stride__are_numpys(replicas: int) -> None:
    x, b = X[:replicas], B[:replicas]

    def build(ir: popxl.Ir, *tensors: Any) -> list[Any]:
        groups = [ir.replica_grouping(*g) for g in strided(replicas)]
        return [t for group in groups for t in all_of(ir, group, *tensors)]

    made = iter(run_on_each(replicas, build, x, b))
    for stride, size in strided(replicas):
        ir = popxl.Ir(replication=replicas)
        members = ir.replica_grouping(stride, size).members
        results = [expected_of(x[m], b[m]) for m in members]
        for number in range(len(results[0])):
            found = next(made)
            for group, of_group in zip(members, results, strict=True):
                for replica, value in zip(group, of_group[number], strict=True):
                    np.testing.assert_allclose(found[replica], value, rtol=1e-6, err_msg=f"{stride} {size} {number}")


# --- gradients --------------------------------------------------------------------------------------------------------


def _padded(t: Any, size: int) -> Any:
    flat = t.reshape(-1)
    return torch.nn.functional.pad(flat, (0, -len(flat) % size)).reshape(size, -1)


def _own_gradient_alone(rows: Any) -> list[Any]:
    """Every row for each replica, whose gradient reaches it alone."""
    return [torch.stack([r if n == k else r.detach() for k, r in enumerate(rows)]) for n in range(len(rows))]


GRADIENTS: dict[str, tuple[Callable[..., Any], Callable[[Any], list[Any]]]] = {
    "add": (lambda t, g: collectives.replicated_all_reduce(t, "add", g), lambda r: [r.sum(0)] * len(r)),
    "mean": (lambda t, g: collectives.replicated_all_reduce(t, "mean", g), lambda r: [r.mean(0)] * len(r)),
    "mul": (lambda t, g: collectives.replicated_all_reduce(t, "mul", g), lambda r: [r.prod(0)] * len(r)),
    "max": (lambda t, g: collectives.replicated_all_reduce(t, "max", g), lambda r: [r.amax(0)] * len(r)),
    "min": (lambda t, g: collectives.replicated_all_reduce(t, "min", g), lambda r: [r.amin(0)] * len(r)),
    "square_add": (
        lambda t, g: collectives.replicated_all_reduce(t, "square_add", g),
        lambda r: [(r * r).sum(0)] * len(r),
    ),
    "reduce_scatter": (
        lambda t, g: collectives.replicated_reduce_scatter(t, "add", g),
        lambda r: list(_padded(r.sum(0), len(r))),
    ),
    "reduce_scatter_mean": (
        lambda t, g: collectives.replicated_reduce_scatter(t, "mean", g),
        lambda r: list(_padded(r.mean(0), len(r))),
    ),
    "gather": (
        lambda t, g: collectives.replicated_all_gather(t, 1, g),
        lambda r: [torch.cat(list(rows), 1) for rows in _own_gradient_alone(r)],
    ),
    "new_axis": (
        lambda t, g: collectives.replicated_all_gather(t, 0, g, output_shape="new_axis"),
        _own_gradient_alone,
    ),
}


def test_gradients_through_collectives_are_pytorchs() -> None:
    replicas, ir = 4, popxl.Ir(replication=4)
    group = ir.replica_grouping(2, 2)
    x = RNG.integers(-2, 3, (replicas, 2, 3)).astype(np.float32)  # Zeros, and equal extremes.
    factors, sinks = {}, {}
    with ir.main_graph:
        source = popxl.h2d_stream((2, 3), popxl.float32)
        t = ops.host_load(source)
        for name, (make, _) in GRADIENTS.items():
            forward = ir.create_graph(make, t, group)
            back = popxl.transforms.autodiff(forward)
            shape = forward.outputs[0].shape
            factors[name] = popxl.h2d_stream(shape, popxl.float32)
            call = ops.call_with_info(forward, t)
            (grad,) = ops.call(back.graph, ops.host_load(factors[name]), inputs_dict=back.inputs_dict(call))
            sinks[name] = popxl.d2h_stream((2, 3), popxl.float32)
            ops.host_store(sinks[name], grad)
    given = {name: RNG.standard_normal((replicas, *s.shape)).astype(np.float32) for name, s in factors.items()}
    with popxl.Session(ir) as session:
        made = session.run({source: x} | {factors[n]: a for n, a in given.items()})
    for name, (_, expected) in GRADIENTS.items():
        leaf = torch.tensor(x, requires_grad=True)
        for members in group.members:
            results = expected(leaf[members])
            terms = [(y * torch.tensor(given[name][n])).sum() for y, n in zip(results, members, strict=True)]
            torch.stack(terms).sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        np.testing.assert_allclose(made[sinks[name]], leaf.grad.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_gradient_of_a_slice_is_gathered() -> None:
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        source, sink = popxl.h2d_stream((2,), popxl.float32), popxl.d2h_stream((4,), popxl.float32)
        forward = ir.create_graph(lambda t: collectives.replicated_slice(t), popxl.TensorSpec((4,), popxl.float32))
        back = popxl.transforms.autodiff(forward)
        (grad,) = ops.call(back.graph, ops.host_load(source))
        ops.host_store(sink, grad)
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(
            session.run({source: np.array([[1, 2], [3, 4]], np.float32)})[sink], [[1, 2, 3, 4]] * 2
        )


# --- training ---------------------------------------------------------------------------------------------------------


def _loss(x: Any, y: Any, w: Any, b: Any) -> Any:
    return ops.nll_loss(ops.softmax(x @ w + b, -1), y)


def _trained(replicas: int, data: np.ndarray, labels: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Weights and losses after steps on replicas that share batches."""
    steps, batch = labels.shape
    each = batch // replicas
    ir = popxl.Ir(replication=replicas)
    ir.num_host_transfers = steps
    with ir.main_graph, popxl.in_sequence():
        xs, ys = popxl.h2d_stream((each, 5), popxl.float32), popxl.h2d_stream((each,), popxl.int32)
        losses = popxl.d2h_stream((), popxl.float32)
        w = popxl.variable(np.linspace(-1, 1, 15).reshape(5, 3), popxl.float32)
        b = popxl.variable(np.zeros(3), popxl.float32)
        specs = popxl.TensorSpec((each, 5), popxl.float32), popxl.TensorSpec((each,), popxl.int32)
        forward = ir.create_graph(_loss, *specs, w, b)
        back = popxl.transforms.autodiff(forward, grads_required=forward.inputs[2:])

        def step(w: popxl.TensorByRef, b: popxl.TensorByRef) -> None:
            call = ops.call_with_info(forward, ops.host_load(xs), ops.host_load(ys), w, b)
            ops.host_store(losses, collectives.replicated_all_reduce(call.outputs[0], "mean"))
            grads = ops.call(back.graph, popxl.constant(1.0), inputs_dict=back.inputs_dict(call))
            for tensor, grad in zip((w, b), grads, strict=True):
                ops.scaled_add_(tensor, collectives.replicated_all_reduce_(grad, "mean"), b=-0.5)

        ops.repeat(ir.create_graph(step, w, b), steps, w, b)
    shape = (steps, replicas, each) if replicas > 1 else (steps, each)
    with popxl.Session(ir, "ipu_hw") as session:
        found = session.run({xs: data.reshape(*shape, 5), ys: labels.reshape(shape)})[losses]
    return [w.data, b.data], found


def test_data_parallel_training_is_that_of_one_replica_on_whole_batches() -> None:
    data = RNG.standard_normal((5, 12, 5)).astype(np.float32)
    labels = data[..., :3].argmax(-1).astype(np.int32)
    one, several = _trained(1, data, labels), _trained(3, data, labels)
    np.testing.assert_allclose(several[1], np.repeat(one[1][:, None], 3, 1), rtol=1e-5)
    for a, b in zip(one[0], several[0], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)


def test_tensor_and_data_parallel_layers_follow_pytorch() -> None:
    """Two parts of an MLP, on two replicas each: gradients of parts are summed over replicas with the same part."""
    ir = popxl.Ir(replication=4)
    model = ir.replica_grouping(group_size=2)
    same = model.transpose()
    up, down = (RNG.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 2)))
    x, y = RNG.standard_normal((2, 3, 4)).astype(np.float32), RNG.standard_normal((2, 3, 2)).astype(np.float32)
    with ir.main_graph, popxl.in_sequence():
        xs, ys = popxl.h2d_stream((3, 4), popxl.float32), popxl.h2d_stream((3, 2), popxl.float32)
        ups = popxl.variable(np.stack(np.split(up, 2, 1)), name="up", replica_grouping=same)
        downs = popxl.variable(np.stack(np.split(down, 2, 0)), name="down", replica_grouping=same)

        def half(x: Any, up: Any, down: Any) -> Any:
            return ops.tanh(x @ up) @ down

        inner = ir.create_graph(half, popxl.TensorSpec((3, 4), popxl.float32), ups, downs)
        back = popxl.transforms.autodiff(inner, grads_required=inner.inputs[1:])
        call = ops.call_with_info(inner, ops.host_load(xs), ups, downs)
        out = collectives.replicated_all_reduce(call.outputs[0], group=model)
        grads = ops.call(back.graph, (out - ops.host_load(ys)) * 2, inputs_dict=back.inputs_dict(call))
        for tensor, grad in zip((ups, downs), grads, strict=True):
            ops.scaled_add_(tensor, collectives.replicated_all_reduce(grad, "mean", same), b=-0.1)
    with popxl.Session(ir) as session:
        session.run({xs: np.repeat(x, 2, 0), ys: np.repeat(y, 2, 0)})
    leaves = [torch.tensor(w, requires_grad=True) for w in (up, down)]
    error = torch.tanh(torch.tensor(x) @ leaves[0]) @ leaves[1] - torch.tensor(y)
    (error**2).sum((1, 2)).mean().backward()  # type: ignore[no-untyped-call]
    for variable, leaf, dim in ((ups, leaves[0], 1), (downs, leaves[1], 0)):
        assert leaf.grad is not None
        expected = (leaf - 0.1 * leaf.grad).detach().numpy()
        np.testing.assert_allclose(np.concatenate(list(variable.data), dim), expected, rtol=1e-5, atol=1e-6)


# --- groups and variables ---------------------------------------------------------------------------------------------


def test_groups_have_stride_size_and_transpose() -> None:
    ir = popxl.Ir(replication=8)
    grouping = ir.replica_grouping(stride=2, group_size=2)
    assert grouping.assignment == [0, 1, 0, 1, 2, 3, 2, 3]
    assert (grouping.stride, grouping.group_size, grouping.num_groups, grouping.is_const) == (2, 2, 4, True)
    assert ir.replica_grouping() == ir.replica_grouping(1, 8) == ir.replica_grouping_from_assignments([0] * 8)
    assert ir.replica_grouping(stride=4).group_size == 2
    assert ir.replica_grouping(group_size=2).transpose() == ir.replica_grouping(stride=2, group_size=4)
    assert ir.replica_grouping(group_size=1).transpose() == ir.replica_grouping()
    turned = grouping.transpose()
    assert turned.assignment == [0, 0, 1, 1, 0, 0, 1, 1]
    assert not turned.is_const
    assert turned.transpose().assignment == [0, 1, 0, 1, 2, 3, 2, 3]
    assert len({grouping, ir.replica_grouping(2, 2), turned}) == 2
    assert grouping != popxl.Ir(replication=8).replica_grouping(2, 2)
    assert grouping != "a group"
    for name in ("stride", "group_size"):
        with pytest.raises(ValueError, match="no constant"):
            getattr(turned, name)


def _add(t: Any) -> list[Any]:
    """A variable changed by its replicas: 1 more in the first, 2 in the second and so on."""
    ir = t.ir
    number = popxl.variable(np.arange(1, ir.replication_factor + 1), popxl.float32, replica_grouping=_each(ir))
    ops.add_(t, number)
    return [number]


def _each(ir: popxl.Ir) -> popxl.ReplicaGrouping:
    return ir.replica_grouping(group_size=1)


ASSIGNMENTS = {
    "one": [0, 0, 0, 0],
    "each": [0, 1, 2, 3],
    "neighbours": [0, 0, 1, 1],
    "apart": [0, 1, 0, 1],
    "crossed": [0, 1, 1, 0],
    "unequal": [1, 0, 0, 0],
    "turned": [3, 2, 1, 0],
}


@pytest.mark.parametrize("mode", [None, "all_replicas"])
@pytest.mark.parametrize("kind", ASSIGNMENTS)
def test_variables_of_groups_live_on_their_replicas(kind: str, mode: str | None) -> None:
    ir, groups = popxl.Ir(replication=4), np.array(ASSIGNMENTS[kind])
    count = groups.max() + 1
    data = RNG.integers(-9, 9, (count, 2, 3)).astype(np.float32)
    whole = data if count > 1 else data[0]
    with ir.main_graph:
        grouping = ir.replica_grouping_from_assignments(groups.tolist())
        v = popxl.variable(whole, replica_grouping=grouping, retrieval_mode=mode)
        sink = popxl.d2h_stream((2, 3), popxl.float32)
        ops.host_store(sink, v)
        _add(v)
    assert (v.shape, v.shape_on_host) == ((2, 3), whole.shape)
    session = popxl.Session(ir)
    each, more = data[groups], np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)
    first = [groups.tolist().index(n) for n in range(count)]

    def seen(rows: np.ndarray) -> np.ndarray:
        kept = rows if mode else rows[first]
        return kept[0] if len(kept) == 1 else kept

    np.testing.assert_array_equal(session.get_tensor_data(v), seen(each))
    with session:
        np.testing.assert_array_equal(session.run()[sink], each)
        np.testing.assert_array_equal(session.get_tensor_data(v), seen(each + more))
        session.write_variable_data(v, whole + 1)
        np.testing.assert_array_equal(session.run()[sink], each + 1)
    np.testing.assert_array_equal(session.get_tensor_data(v), seen(each + 1 + more))
    if mode:
        session.write_variable_data(v, v.data * 2)
        np.testing.assert_array_equal(session.get_tensor_data(v), (each + 1 + more) * 2)
    with pytest.raises(ValueError, match="has shape"), session:
        session.write_variable_data(v, np.zeros((count + 5, 2, 3), np.float32))


def test_integers_and_halves_of_groups_keep_their_types() -> None:
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        values = [np.array([[1, 2], [3, 4]], t) for t in (np.int32, np.uint8, np.float16, np.bool_)]
        variables = [popxl.variable(v, replica_grouping=_each(ir)) for v in values]
        sinks = [popxl.d2h_stream((4,), t.dtype) for t in variables]
        for sink, v in zip(sinks, variables, strict=True):
            ops.host_store(sink, collectives.replicated_all_gather(v))
    with popxl.Session(ir) as session:
        results = session.run()
        for sink, v, value in zip(sinks, variables, values, strict=True):
            np.testing.assert_array_equal(results[sink], np.stack([value.reshape(-1)] * 2))
            assert session.get_tensor_data(v).dtype == results[sink].dtype == value.dtype


@pytest.mark.parametrize("transfers", [1, 3])
@pytest.mark.parametrize("shape", [(), (1,), (2, 1)])
def test_streams_have_a_dimension_of_replicas(transfers: int, shape: tuple[int, ...]) -> None:
    ir = popxl.Ir(replication=2)
    ir.num_host_transfers = transfers
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream(shape, popxl.float32), popxl.d2h_stream(shape, popxl.float32)

        def echo() -> None:
            ops.host_store(sink, ops.host_load(source) * 2)

        ops.repeat(ir.create_graph(echo), transfers)
    x = RNG.standard_normal((transfers, 2, *shape)).astype(np.float32)
    whole = x if transfers > 1 else x[0]
    with popxl.Session(ir) as session:
        outputs = session.create_host_outputs()
        assert outputs[sink].shape == whole.shape
        session.run_with_outputs({source: whole}, outputs)
        np.testing.assert_array_equal(outputs[sink], 2 * whole)
        np.testing.assert_array_equal(session.run({source: x})[sink], 2 * whole)
        with pytest.raises(ValueError, match=f"{transfers} transfers, 2 replicas"):
            session.run({source: np.zeros((transfers, *shape), np.float32)})


# --- between IPUs -----------------------------------------------------------------------------------------------------


def test_ipus_of_a_replica_reduce_among_themselves() -> None:
    ir = popxl.Ir(replication=2)
    x = RNG.standard_normal((2, 2, 3)).astype(np.float32)
    g = RNG.standard_normal((2, 2, 3)).astype(np.float32)
    kinds = ("all_reduce", "all_reduce_identical_inputs", "all_reduce_identical_grad_inputs")
    sinks: dict[str, list[Any]] = {}
    with ir.main_graph:
        source, grad_source = popxl.h2d_stream((2, 3), popxl.float32), popxl.h2d_stream((2, 3), popxl.float32)
        t, g0 = ops.host_load(source), ops.host_load(grad_source)
        for kind in kinds:

            def both(t: Any, kind: str = kind) -> list[Any]:
                there = [t[0], t[1].copy_to_ipu(1)]
                made = getattr(collectives, kind)(there, [0, 1])
                assert [m.ipu for m in made] == [0, 1]
                return [made[0], made[1].copy_to_ipu(0)]

            forward = ir.create_graph(both, t)
            back = popxl.transforms.autodiff(forward)
            call = ops.call_with_info(forward, t)
            (grad,) = ops.call(back.graph, g0[0], g0[1], inputs_dict=back.inputs_dict(call))
            sinks[kind] = []
            for value in (*call.outputs[:2], grad):
                sinks[kind].append(popxl.d2h_stream(value.shape, value.dtype))
                ops.host_store(sinks[kind][-1], value)
    with popxl.Session(ir) as session:
        assert session.num_ipus == 4
        results = session.run({source: x, grad_source: g})
    xs, gs = (np.repeat(v.sum(1, keepdims=True), 2, 1) for v in (x, g))
    for kind, forward_of, grad_of in zip(kinds, (xs, x, xs), (gs, gs, g), strict=True):
        a, b, slope = (results[s] for s in sinks[kind])
        np.testing.assert_allclose(np.stack([a, b], 1), forward_of, rtol=1e-6, err_msg=kind)
        np.testing.assert_allclose(slope, grad_of, rtol=1e-6, err_msg=kind)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def _in_main(program: Callable[[popxl.Ir, Any], Any]) -> Callable[[], Any]:
    def run() -> Any:
        ir = popxl.Ir(replication=4)
        with ir.main_graph:
            return program(ir, popxl.variable(np.ones((3, 2), np.float32)))

    return run


def _late(ir: popxl.Ir, value: int) -> None:
    popxl.Session(ir)
    ir.replication_factor = value


def _regrouped(ir: popxl.Ir, _: Any) -> None:
    ir.replica_grouping()
    ir.replication_factor = 2


def _branch(ir: popxl.Ir, t: Any) -> popxl.Session:
    source, sink = popxl.h2d_stream((), popxl.float32), popxl.d2h_stream((), popxl.float32)
    x = ops.host_load(source)
    one, other = ir.create_graph(lambda x: x * 2, x), ir.create_graph(lambda x: x - 1, x)
    ops.host_store(sink, ops.conditional(x > 0, one, other, [x], [x])[0])
    return popxl.Session(ir)


class _Device:
    numIpus = 2  # noqa: N815


WRONG: list[tuple[str, type[Exception], str, Callable[[], Any]]] = [
    ("none", ValueError, "positive whole", lambda: popxl.Ir(replication=0)),
    ("word", ValueError, "positive whole", lambda: popxl.Ir(replication="popd")),
    ("late", RuntimeError, "after a session", _in_main(lambda ir, t: _late(ir, 4))),
    ("groups", RuntimeError, "groups of 4 replicas", _in_main(_regrouped)),
    ("stride", ValueError, "do not divide", _in_main(lambda ir, t: ir.replica_grouping(stride=3))),
    ("size", ValueError, "do not divide", _in_main(lambda ir, t: ir.replica_grouping(group_size=3))),
    ("product", ValueError, "do not divide", _in_main(lambda ir, t: ir.replica_grouping(2, 4))),
    ("zero", ValueError, "do not divide", _in_main(lambda ir, t: ir.replica_grouping(group_size=0))),
    ("part", ValueError, "whole number", _in_main(lambda ir, t: ir.replica_grouping(group_size=cast("int", 0.5)))),
    ("short", ValueError, "3 entries", _in_main(lambda ir, t: ir.replica_grouping_from_assignments([0, 1, 0]))),
    ("gap", ValueError, "leaves groups out", _in_main(
        lambda ir, t: ir.replica_grouping_from_assignments([0, 2, 0, 2]))),
    ("rows", ValueError, "2 groups", _in_main(
        lambda ir, t: popxl.variable(np.ones((3, 2)), replica_grouping=ir.replica_grouping(group_size=2)))),
    ("mode", ValueError, "retrieval_mode", _in_main(lambda ir, t: popxl.variable(1.0, retrieval_mode="all"))),
    ("type", TypeError, "ReplicaGrouping", _in_main(
        lambda ir, t: collectives.replicated_all_reduce(t, "add", cast("popxl.ReplicaGrouping", 2)))),
    ("foreign", ValueError, "is not of", _in_main(
        lambda ir, t: collectives.replicated_all_reduce(t, "add", popxl.Ir(replication=4).replica_grouping()))),
    ("uneven", ValueError, "no constant", _in_main(
        lambda ir, t: collectives.replicated_all_reduce(
            t, "add", ir.replica_grouping_from_assignments([0, 1, 1, 0])))),
    ("op", ValueError, "did you mean", _in_main(lambda ir, t: collectives.replicated_all_reduce(t, "ad"))),
    ("bools", ValueError, "does not take float32", _in_main(lambda ir, t: collectives.replicated_all_reduce(t, "and"))),
    ("whole mean", ValueError, "does not take int32", _in_main(
        lambda ir, t: collectives.replicated_all_reduce(popxl.constant([1]), "mean"))),
    ("slice", ValueError, "replicated_slice", _in_main(lambda ir, t: collectives.replicated_slice(t))),
    ("axis", ValueError, "axis 2", _in_main(lambda ir, t: collectives.replicated_all_gather(t, 2))),
    ("shape", ValueError, "output_shape", _in_main(
        lambda ir, t: collectives.replicated_all_gather(t, output_shape="stack"))),
    ("no part", ValueError, "no meta_shape", _in_main(
        lambda ir, t: collectives.replicated_all_gather(t, output_shape="meta_shape"))),
    ("other group", ValueError, "not one of 2 parts", _in_main(
        lambda ir, t: collectives.replicated_all_gather(
            collectives.replica_sharded_slice(t), group=ir.replica_grouping(group_size=2)))),
    ("constant", ValueError, "is a constant", _in_main(
        lambda ir, t: collectives.replicated_all_reduce_(popxl.constant(1.0)))),
    ("one tensor", TypeError, "one per IPU", _in_main(lambda ir, t: collectives.all_reduce(t))),
    ("IPUs", ValueError, "an IPU per tensor", _in_main(lambda ir, t: collectives.all_reduce([t, t]))),
    ("branch", ControlProgramError, "could diverge", _in_main(_branch)),
    ("device", ValueError, "the device has 2 IPUs", _in_main(lambda ir, t: popxl.Session(ir, _Device()))),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG, ids=lambda c: c[0])
def test_what_is_wrong_is_said(case: Any) -> None:
    _, kind, words, program = case
    with pytest.raises(kind, match=words) as caught:
        program()
    assert isinstance(caught.value, AbeleError)


# --- shards -----------------------------------------------------------------------------------------------------------


def _adam(step: int, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    m[...], v[...] = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.99**step)) + 1e-7)


@pytest.mark.parametrize("shape", [(3, 3), (1,), pytest.param((2, 2, 5), marks=pytest.mark.slow)])
def test_an_adam_step_on_shards_is_that_on_whole_tensors(shape: tuple[int, ...]) -> None:
    """Parts of a weight and of its moments in streaming memory; gradients differ by replica."""
    replicas, ir = 4, popxl.Ir(replication=4)
    weight = RNG.standard_normal(shape).astype(np.float32)
    grads = RNG.standard_normal((3, replicas, *shape)).astype(np.float32)
    ir.num_host_transfers = 3
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream(shape, popxl.float32), popxl.d2h_stream(shape, popxl.float32)
        buffer = popxl.replica_sharded_buffer(shape, popxl.float32, entries=3)
        kept = [
            popxl.remote_replica_sharded_variable(data, buffer, n)
            for n, data in enumerate((weight, np.zeros_like(weight), np.zeros_like(weight)))
        ]
        time_step = popxl.variable(np.float32(0))

        def step(time_step: popxl.TensorByRef) -> None:
            w, m, v = (ops.remote_load(buffer, n) for n in range(3))
            grad = collectives.replicated_reduce_scatter(
                ops.host_load(source), "mean", configure_output_for_replicated_tensor_sharding=True
            )
            ops.var_updates.accumulate_moving_average_(m, grad, 0.9)
            ops.var_updates.accumulate_moving_average_square_(v, grad, 0.99)
            x = ops.var_updates.adam_updater(m, v, time_step=time_step, beta1=0.9, beta2=0.99)
            ops.scaled_add_(w, x, b=-0.1)
            ops.host_store(sink, collectives.replicated_all_gather(w))
            for n, part in enumerate((w, m, v)):
                ops.remote_store(buffer, n, part)

        ops.repeat(ir.create_graph(step, time_step), 3, time_step)
    size = -(-int(np.prod(shape)) // replicas)
    assert (buffer.tensor_shape, buffer.meta_shape) == ((size,), shape)
    with popxl.Session(ir) as session:
        stored = session.run({source: grads})[sink]
        np.testing.assert_array_equal(session.get_tensor_data(kept[0]), stored[-1, 0])
    m, v = np.zeros_like(weight), np.zeros_like(weight)
    expected: np.ndarray = weight.copy()
    for n, g in enumerate(grads.mean(1), start=1):
        expected = expected - 0.1 * _adam(n, g, m, v)
        np.testing.assert_allclose(stored[n - 1], np.stack([expected] * replicas), rtol=1e-5, atol=1e-6)
    for variable, value in zip(kept, (expected, m, v), strict=True):
        np.testing.assert_allclose(variable.data, value, rtol=1e-5, atol=1e-6)


SHARDINGS = {
    "all": (1, 4, None),
    "halves of groups": (1, 4, 2),
    "pairs": (1, 2, None),
    "apart": (2, 2, None),
    "alone": (1, 2, 1),
    "each": (1, 1, None),
}


@pytest.mark.parametrize("kind", SHARDINGS)
def test_sharded_variables_of_groups_are_whole_on_the_host(kind: str) -> None:
    stride, size, shard_over = SHARDINGS[kind]
    ir = popxl.Ir(replication=4)
    with ir.main_graph, popxl.in_sequence():
        grouping = ir.replica_grouping(stride, size)
        count = grouping.num_groups
        data = RNG.standard_normal((count, 3, 3)).astype(np.float32)
        whole = data if count > 1 else data[0]
        v, part = popxl.replica_sharded_variable(whole, replica_grouping=grouping, shard_over=shard_over)
        group = ir.replica_grouping(stride, shard_over or size)
        gathered = collectives.replicated_all_gather(part, group=group)
        sink, parts_sink = (popxl.d2h_stream(t.shape, popxl.float32) for t in (gathered, part))
        ops.host_store(sink, gathered)
        ops.host_store(parts_sink, part)
        cut = collectives.replica_sharded_slice(gathered * 2, group)
        assert cut.spec == part.spec
        ops.remote_store(v.buffer, 0, cut)
    assert (part.meta_shape, gathered.shape, gathered.meta_shape) == ((3, 3), (3, 3), ())
    assert v.location_info == popxl.TensorLocation(
        popxl.TensorStorage.OffChip, popxl.ReplicatedTensorSharding.On, group
    )
    with popxl.Session(ir) as session:
        results = session.run()
        np.testing.assert_array_equal(results[sink], data[grouping.assignment])
        for members in group.members:
            own = data[grouping.assignment[members[0]]]
            np.testing.assert_array_equal(results[parts_sink][members], parts(own, len(members)))
        np.testing.assert_array_equal(session.get_tensor_data(v), whole * 2)
        session.write_variable_data(v, whole + 1)
        np.testing.assert_array_equal(session.run()[sink], (data + 1)[grouping.assignment])
    np.testing.assert_array_equal(v.data, (whole + 1) * 2)


def test_remote_variables_of_groups_are_rows_of_their_replicas() -> None:
    ir = popxl.Ir(replication=4)
    data = RNG.standard_normal((2, 3)).astype(np.float32)
    with ir.main_graph, popxl.in_sequence():
        buffer = popxl.remote_buffer((3,), popxl.float32, entries=3)
        apart = ir.replica_grouping(stride=2)
        v = popxl.remote_variable(data, buffer, 1, replica_grouping=apart)
        every = popxl.remote_variable(data[0], buffer, 2, retrieval_mode="all_replicas")
        number = popxl.variable(np.arange(4, dtype=np.float32), replica_grouping=_each(ir))
        sink, later = popxl.d2h_stream((3,), popxl.float32), popxl.d2h_stream((3,), popxl.float32)
        row = ops.remote_load(buffer, 1)
        ops.host_store(sink, row)
        ops.remote_store(buffer, 2, row + number)
        ops.host_store(later, ops.remote_load(buffer, 0))
        ops.remote_store(buffer, 0, row * number)
    rows, more = data[apart.assignment], np.arange(4, dtype=np.float32)[:, None]
    session = popxl.Session(ir)
    np.testing.assert_array_equal(session.get_tensor_data(every), np.stack([data[0]] * 4))
    with session:
        results = session.run()
        np.testing.assert_array_equal(results[sink], rows)
        np.testing.assert_array_equal(results[later], np.zeros((4, 3)))
    np.testing.assert_array_equal(v.data, data)
    np.testing.assert_array_equal(every.data, rows + more)
    session.write_variable_data(v, data * 3)
    with session:  # What each replica has stored is still there.
        np.testing.assert_array_equal(session.get_tensor_data(every), rows + more)
        results = session.run()
        np.testing.assert_array_equal(results[sink], rows * 3)
        np.testing.assert_array_equal(results[later], rows * more)


def _shared(ir: popxl.Ir, t: Any) -> Any:
    buffer = popxl.replica_sharded_buffer((3, 3), popxl.float32, ir.replica_grouping(group_size=2))
    return popxl.remote_replica_sharded_variable(np.ones((4, 3, 3)), buffer, replica_grouping=_each(ir))


def _alone() -> None:
    with popxl.Ir().main_graph:
        popxl.replica_sharded_variable(np.ones(3))


WRONG_SHARDS: list[tuple[str, str, Callable[[], Any]]] = [
    ("one replica", "greater than 1", _alone),
    ("scalar", "no parts", _in_main(lambda ir, t: popxl.replica_sharded_variable(1.0))),
    ("over", "sharded over 3", _in_main(lambda ir, t: popxl.replica_sharded_variable(np.ones(3), shard_over=3))),
    ("rows", "does not match buffer", _in_main(lambda ir, t: popxl.remote_replica_sharded_variable(
        np.ones(9), popxl.remote_buffer((4,), popxl.float32)))),
    ("whole", "does not match buffer", _in_main(lambda ir, t: popxl.remote_replica_sharded_variable(
        np.ones(7), popxl.replica_sharded_buffer((8,), popxl.float32)))),
    ("values", "have different ones", _in_main(_shared)),
    ("mode", "no values of their own", _in_main(
        lambda ir, t: popxl.replica_sharded_variable(np.ones(3), retrieval_mode="all_replicas"))),
    ("read", "streaming memory", _in_main(lambda ir, t: popxl.replica_sharded_variable(np.ones(4))[0] + t)),
]  # fmt: skip


@pytest.mark.parametrize("case", WRONG_SHARDS, ids=lambda c: c[0])
def test_what_is_wrong_with_shards_is_said(case: Any) -> None:
    _, words, program = case
    with pytest.raises(ValueError, match=words) as caught:
        program()
    assert isinstance(caught.value, AbeleError)


def test_a_plain_buffer_of_parts_takes_a_sharded_variable() -> None:
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        buffer = popxl.remote_buffer((3,), popxl.float32)
        v = popxl.remote_replica_sharded_variable(np.arange(5), buffer, dtype=popxl.float32)
        sink = popxl.d2h_stream((5,), popxl.float32)
        ops.host_store(sink, collectives.replicated_all_gather(ops.remote_load(buffer, 0)))
    assert (buffer.meta_shape, v.shape, v.shape_on_host) == ((5,), (3,), (5,))
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run()[sink], np.stack([np.arange(5)] * 2))
