"""Phased execution: layers whose weights, states and activations are in streaming memory, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from abele.popxl_addons.layers import LayerNorm, Linear
from abele.popxl_addons.optimizers.adam import AdamOptimizerStep

from abele import popxl
from abele import popxl_addons as addons
from abele.popxl import ops
from abele.popxl_addons import (
    NamedTensors,
    RemoteHandle,
    batch_serial_buffer,
    batch_serialise,
    batch_serialise_fwd_and_grad,
)

LAYERS, STEPS, BATCH, LENGTH, HIDDEN, HEADS, CLASSES = 3, 2, 2, 4, 8, 2, 5


class Block(addons.Module):
    """One block of a transformer: attention and a product in between, with norms before them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.qkv, self.out = LayerNorm(), Linear(3 * HIDDEN), Linear(HIDDEN)
        self.norm2, self.wide, self.narrow = LayerNorm(), Linear(2 * HIDDEN), Linear(HIDDEN)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        shape = (BATCH, LENGTH, HEADS, HIDDEN // HEADS)
        q, k, v = (t.reshape(shape).transpose((0, 2, 1, 3)) for t in ops.split(self.qkv(self.norm1(x)), 3, axis=-1))
        scores = ops.softmax(q @ k.transpose((0, 1, 3, 2)) * (1 / math.sqrt(HIDDEN // HEADS)), axis=-1)
        x = x + self.out((scores @ v).transpose((0, 2, 1, 3)).reshape((BATCH, LENGTH, HIDDEN)))
        return x + self.narrow(ops.gelu(self.wide(self.norm2(x))))


class Product(addons.Module):
    """A product with a branch around it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = Linear(HIDDEN)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return x + ops.gelu(self.linear(x))


class Head(addons.Module):
    """Classes of every position, and their loss."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = Linear(CLASSES)

    def build(self, x: popxl.Tensor, labels: popxl.Tensor) -> popxl.Tensor:
        return ops.nll_loss(ops.softmax(self.classes(x), axis=-1), labels)


def torch_block(w: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (HIDDEN,), w[f"{name}.weight"], w[f"{name}.bias"])

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    q, k, v = (t.view(BATCH, LENGTH, HEADS, -1).transpose(1, 2) for t in linear("qkv", norm("norm1", x)).chunk(3, -1))
    mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(BATCH, LENGTH, HIDDEN)
    x = x + linear("out", mixed)
    return x + linear("narrow", F.gelu(linear("wide", norm("norm2", x)), approximate="tanh"))


def torch_product(w: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    return x + F.gelu(x @ w["linear.weight"] + w["linear.bias"], approximate="tanh")


class PhasedTraining:
    """One update of a model whose layers are loaded one after the other."""

    def __init__(self, layer: addons.Module, *, recompute: bool) -> None:
        self.ir = ir = popxl.Ir()
        ir.num_host_transfers = STEPS
        spec = popxl.TensorSpec((BATCH, LENGTH, HIDDEN), popxl.float32)
        with ir.main_graph, popxl.in_sequence():
            self.inputs = addons.InputStreams(x=(spec.shape, popxl.float32), labels=((BATCH, LENGTH), popxl.int32))
            self.outputs = addons.OutputStreams(loss=((), popxl.float32))
            xs, dxs = (batch_serial_buffer(spec, STEPS, rows=LAYERS + 1) for _ in range(2))
            self._layers(layer, spec, xs, dxs, recompute=recompute)
            self._head(spec, xs, dxs)
            enter = ir.create_graph(ops.identity, spec)
            embed = batch_serialise(
                addons.GraphWithNamedArgs(enter),
                STEPS,
                {enter.inputs[0]: self.inputs.x},
                store_buffers={enter.outputs[0]: RemoteHandle(xs, 0)},
            )
            embed.graph.call()
            ops.repeat(ir.create_graph(self._forward, popxl.TensorSpec((), popxl.int32)), LAYERS, popxl.constant(0))
            self.head.bind(self.head_vars).call()
            self.head_grad.bind(self.head_accum).bind(self.head_vars).call()
            ops.repeat(
                ir.create_graph(self._backward, popxl.TensorSpec((), popxl.int32)), LAYERS, popxl.constant(LAYERS - 1)
            )
        self.state = addons.NamedTensors(layers=NamedTensors(), head=self.head_vars, accum=self.head_accum)
        for n, tensors in enumerate(self.layer_vars):
            self.state.insert(f"layers.{n}", tensors)

    def _layers(self, layer: addons.Module, spec: popxl.TensorSpec, xs: Any, dxs: Any, *, recompute: bool) -> None:
        facts, forward = layer.create_graph(spec)
        self.grad_facts, grad = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_required=[forward.graph.inputs[0]]
        )
        if recompute:
            grad = addons.recompute_graph(grad)
        ahead, back = batch_serialise_fwd_and_grad(
            forward,
            grad,
            forward.args,
            STEPS,
            load_handles={
                forward.graph.inputs[0]: RemoteHandle(xs, 0),
                grad.graph.inputs[0]: RemoteHandle(dxs, 1),
            },
            store_buffers={forward.graph.outputs[0]: (xs, 1), grad.graph.outputs[0]: (dxs, 0)},
            rows=LAYERS,
        )
        self.forward, self.grad = ahead.graph, back.graph
        self.num_stored = len(ahead.stored_buffers)
        opts, self.optimizers = addons.NamedVariableFactories(), {}
        for name, tensor in forward.args.to_dict().items():
            opt_facts, self.optimizers[name] = AdamOptimizerStep().create_graph(
                tensor, tensor.spec, lr=1e-2, weight_decay=0.0, first_order_dtype=popxl.float32, eps=1e-8
            )
            opts.insert(name, opt_facts)
        every = addons.NamedVariableFactories(fwd=facts, opt=opts)
        buffers = addons.named_variable_buffers(every, entries=LAYERS)
        self.layer_vars = [every.init_remote(buffers, n, f"layer{n}") for n in range(LAYERS)]
        self.load, self.names = addons.load_remote_graph(buffers.filter_keys(["fwd"]))
        self.load_all, self.all_names = addons.load_remote_graph(buffers)
        self.store = addons.store_remote_graph(buffers)

    def _head(self, spec: popxl.TensorSpec, xs: Any, dxs: Any) -> None:
        facts, head = Head().create_graph(spec, popxl.TensorSpec((BATCH, LENGTH), popxl.int32))
        grad_facts, grad = addons.autodiff_with_accumulation(
            head, head.args.tensors, grads_required=[head.graph.inputs[0]]
        )
        one = self.ir.create_empty_graph("ones")
        with one:  # The loss is an output of the gradient's own, so its gradient is a constant.
            dx_in = [popxl.graph_input(t.shape, t.dtype, t.name, by_ref=t.by_ref) for t in grad.graph.inputs[1:]]
            made = ops.call(grad.graph, popxl.constant(np.float32(1)), *dx_in)
            one.outputs[:] = made
        again = dict(zip(grad.graph.inputs[1:], dx_in, strict=True))
        info = grad.grad_graph_info
        with_one = addons.GraphWithNamedArgs.from_grad_graph(
            popxl.transforms.GradGraphInfo(head.graph, one, info.expected_inputs[1:], info.expected_outputs),
            grad.args.remap(again),
        )
        ahead, back = batch_serialise_fwd_and_grad(
            head,
            with_one,
            head.args,
            STEPS,
            load_handles={head.graph.inputs[0]: RemoteHandle(xs, LAYERS), head.graph.inputs[1]: self.inputs.labels},
            store_streams={head.graph.outputs[0]: self.outputs.loss},
            store_buffers={one.outputs[0]: RemoteHandle(dxs, LAYERS)},
        )
        self.head, self.head_grad = ahead.graph, back.graph
        self.head_vars, self.head_accum = facts.init("head"), grad_facts.init("head_accum")

    def _forward(self, n: popxl.Tensor) -> popxl.Tensor:
        layer = NamedTensors.pack(self.names, self.load.call(n))
        self.forward.bind(layer.fwd).call(n)
        return n + 1

    def _backward(self, n: popxl.Tensor) -> popxl.Tensor:
        layer = NamedTensors.pack(self.all_names, self.load_all.call(n))
        totals = self.grad_facts.init_zero()
        self.grad.bind(layer.fwd).bind(totals).call(n)
        for name, tensor in layer.fwd.named_tensors.items():
            self.optimizers[name].bind(layer.opt[name]).call(tensor, totals.accum[name])
        self.store.bind(layer).call(n)
        return n - 1


@pytest.mark.parametrize(
    ("layer", "reference", "recompute"),
    [
        (Product, torch_product, True),
        pytest.param(Block, torch_block, False, marks=pytest.mark.slow),
        pytest.param(Block, torch_block, True, marks=pytest.mark.slow),
    ],
)
def test_layers_from_streaming_memory_train_as_torch(
    layer: type[addons.Module], reference: Callable[..., torch.Tensor], recompute: bool
) -> None:
    model = PhasedTraining(layer(), recompute=recompute)
    # Without recomputation all activations that gradients read are stored; with it the input alone.
    assert (model.num_stored == 1) == recompute
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS, BATCH, LENGTH, HIDDEN)).astype(np.float32)
    labels = rng.integers(0, CLASSES, (STEPS, BATCH, LENGTH)).astype(np.int32)
    with addons.TaskSession(model.inputs, model.outputs, model.state, ir=model.ir) as session:
        first = session.get_named_tensors_data()
        losses = session.run({model.inputs.x: x, model.inputs.labels: labels})[model.outputs.loss]
        after = session.get_named_tensors_data()

    weights = [
        {n: torch.tensor(a, requires_grad=True) for n, a in first.layers[str(i)].fwd.to_dict().items()}
        for i in range(LAYERS)
    ]
    head = {n: torch.tensor(a, requires_grad=True) for n, a in first.head.to_dict().items()}
    each = []
    for step in range(STEPS):
        h = torch.tensor(x[step])
        for w in weights:
            h = reference(w, h)
        scores = h @ head["classes.weight"] + head["classes.bias"]
        each.append(F.cross_entropy(scores.flatten(0, 1), torch.tensor(labels[step]).long().flatten()))
    np.testing.assert_allclose(losses, [loss.item() for loss in each], rtol=1e-5)
    torch.stack(each).mean().backward()
    for name, tensor in head.items():
        np.testing.assert_allclose(after.accum.accum[name], tensor.grad, atol=1e-6)
    leaves = [t for w in weights for t in w.values()]
    torch.optim.Adam(leaves, lr=1e-2).step()
    for i, w in enumerate(weights):
        for name, tensor in w.items():
            # The first step of Adam is the sign of the gradient but for gradients near its epsilon.
            far = tensor.grad.abs().numpy() > 1e-5
            found = after.layers[str(i)].fwd[name]
            np.testing.assert_allclose(found[far], tensor.detach().numpy()[far], atol=2e-5, err_msg=f"{i}.{name}")
