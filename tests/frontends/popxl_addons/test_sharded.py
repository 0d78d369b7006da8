"""Variables of which replicas have parts: gathered, changed and reduced under their names."""

from __future__ import annotations

import numpy as np
import pytest

from abele import popxl
from abele import popxl_addons as addons
from abele.frontends.popxl_addons.remote import NamedRemoteBuffers
from abele.popxl import ops
from abele.popxl_addons import NamedReplicaGrouping, NamedTensors

X = np.arange(4, dtype=np.float32)[:, None] * np.ones((4, 3), np.float32)


class Scale(addons.Module):
    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        by = self.add_variable_input("by", lambda: np.arange(1.0, 4.0), x.dtype)
        return x * by + self.add_variable_input("add", lambda: np.float32(5), x.dtype)


@pytest.mark.parametrize("group_size", [4, 2])
def test_layers_in_parts_are_gathered_and_their_gradients_reduced(group_size: int) -> None:
    ir = popxl.Ir(replication=4)
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((3,), popxl.float32), popxl.d2h_stream((3,), popxl.float32)
        facts, forward = Scale().create_graph(popxl.TensorSpec((3,), popxl.float32))
        grad = addons.autodiff(forward)
        buffers = addons.named_variable_buffers(facts, entries=2, shard_over_dict={"by": group_size})
        assert buffers.by.tensor_shape == (-(-3 // group_size),)
        assert buffers.by.meta_shape == (3,)
        assert buffers.add.meta_shape == ()
        layers = NamedTensors()
        for n in range(2):
            layers.insert(f"{n}", facts.init_remote(buffers, n, f"layer{n}"))
        load, names = addons.load_remote_graph(buffers)
        groups = NamedReplicaGrouping(by=ir.replica_grouping(group_size=group_size))
        gather, names = addons.all_gather_replica_sharded_graph(
            NamedTensors.pack(names, load.graph.outputs), replica_groups=groups
        )
        reduce, _ = addons.reduce_replica_sharded_graph(forward.args, "mean", shard_groups=groups)
        parts = NamedTensors.pack(names, load.call(1))
        whole = NamedTensors.pack(names, gather.bind(parts).call())
        call = forward.bind(whole).call_with_info(ops.host_load(source))
        ops.host_store(sink, call.outputs[0])
        one = popxl.constant(np.ones(3, np.float32))
        grads = grad.call(one, args=grad.grad_graph_info.inputs_dict(call))
        by_input = dict(zip(grad.grad_graph_info.expected_outputs, grads, strict=True))
        found = {e.fwd_tensor: t for e, t in by_input.items()}
        reduced = NamedTensors.pack(names, reduce.bind(forward.args.remap(found)).call())
        for name, part in parts.named_tensors.items():
            ops.scaled_add_(part, reduced[name], b=-1.0)
        addons.store_remote_graph(buffers).bind(parts).call(1)
    with addons.TaskSession(state=layers, ir=ir) as session:
        made = session.run({source: X})[sink]
        after = session.get_named_tensors_data()
    np.testing.assert_allclose(made, X * np.arange(1, 4) + 5)
    np.testing.assert_allclose(after["0.by"], [1, 2, 3])
    np.testing.assert_allclose(after["1.by"], np.arange(1, 4) - X.mean(0))
    np.testing.assert_allclose(after["1.add"], 5 - 3)


def test_all_variables_are_sharded_where_nothing_else_is_said() -> None:
    ir = popxl.Ir(replication=2)
    with ir.main_graph:
        facts, _ = Scale().create_graph(popxl.TensorSpec((3,), popxl.float32))
        buffers = addons.named_variable_buffers(facts)
        assert buffers.by.tensor_shape == (2,)
        assert buffers.add.tensor_shape == ()
        assert addons.named_variable_buffers(facts, shard_over_dict=False).by.tensor_shape == (3,)
        spec = addons.replica_sharded_spec(facts.by, ir.replica_grouping())
        assert (spec.shape, spec.meta_shape) == ((2,), (3,))
        assert addons.replica_sharded_spec(facts.by, 1).shape == (3,)
        assert addons.get_ild_replica_grouping() == ir.replica_grouping()
        with pytest.raises(TypeError, match="takes NamedRemoteBuffers"):
            addons.load_remote_graph(facts.by)
        assert isinstance(buffers, NamedRemoteBuffers)


def test_a_module_may_take_a_part_of_a_variable() -> None:
    class Part(addons.Module):
        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            part = self.add_replica_sharded_variable_input("w", lambda: np.arange(3.0), popxl.float32, by_ref=True)
            ops.add_(part, popxl.constant(1.0))
            return x + ops.collectives.replicated_all_gather(part)

    ir = popxl.Ir(replication=2)
    with ir.main_graph, popxl.in_sequence():
        facts, graph = Part().create_graph(popxl.TensorSpec((3,), popxl.float32))
        assert graph.args.w.meta_shape == (3,)
        state = facts.init()
        (y,) = graph.bind(state).call(popxl.constant(np.zeros(3), popxl.float32))
        (z,) = graph.bind(facts.init_zero()).call(y)
        sinks = addons.host_store(y), addons.host_store(z)
    with popxl.Session(ir) as session:
        made = session.run()
    np.testing.assert_allclose(made[sinks[0]], [[1, 2, 3]] * 2)
    np.testing.assert_allclose(made[sinks[1]], [[2, 3, 4]] * 2)
