"""Training of ONNX models: a loss, an update rule, and steps.

The loss is a tensor of the model, or a loss that is put after one of its outputs, as ONNX's own operators. Initialisers
of floats are trained, but for running statistics of norms and what quantisers hold; updated weights are the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
from onnx import TensorProto, helper

from abele.arrays import Array
from abele.frontends.onnx.errors import ModelError
from abele.frontends.onnx.model import Model, ModelPort, by_name, converted, received
from abele.frontends.onnx.registry import STANDARD, domain_of
from abele.frontends.onnx.types import type_code
from abele.network import Group, Network, Optimiser, Schedule, Sgd
from abele.report import Report
from abele.session import Session, Settings, compile_network

_HELD_INPUTS = {
    "DequantizeLinear": (1, 2),
    "QuantizeLinear": (1, 2),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
}
"""Inputs of operators that are no weights to train, although they are floats."""


@dataclass(frozen=True)
class Loss:
    """A loss after an output of a model, with a target beside it.

    Attributes:
        kind: ``cross_entropy`` of scores [batch, classes, …] and labels [batch, …], ``mse``, or ``l1``.
        output: Name of the output; the model's first if it is left out.
        target: Name of the new input that holds labels or values.
    """

    kind: str
    output: str = ""
    target: str = "target"


class ModelTraining:
    """A model that is trained.

    Args:
        model: The model, whose weights change.
        loss: Name of a tensor of one element, or a :class:`Loss`; the model's first output if it has one element.
        optimizer: Update rule; stochastic gradient descent if left out.
        schedule: Micro-batches, replicas and what comes back of a call; one micro-batch if left out.
        parameters: Names of the initialisers to train; all of floats if left out.
        settings: Settings of the session; the model's if left out.

    Attributes:
        inputs: Inputs of a step, targets included.
        outputs: Results of a step: the loss, then the model's own.
        session: The session that runs steps.

    Raises:
        ModelError: The loss is no tensor of the model, or has more than one element; or there is no such parameter.
    """

    def __init__(
        self,
        model: Model,
        loss: str | Loss | None,
        optimizer: Optimiser | None,
        *,
        schedule: Schedule | None = None,
        parameters: Sequence[str] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.model = model
        self.inputs, ports, network, weights = trained(model, loss, parameters)
        value = network.outputs[0]
        self.outputs = (ModelPort("loss", value.shape, value.dtype.np), *ports)
        for held, array in weights.items():
            if held not in model.weights:
                model.weights[held] = array
        groups = [Group(optimizer or Sgd(lr=0.01), network.parameters)]
        compiled = compile_network(
            network,
            schedule or Schedule(),
            groups=groups,
            settings=settings or model.settings,
        )
        self.session = Session(compiled, weights=model.weights)

    def __call__(self, *arrays: Any, **named: Any) -> dict[str, Array]:
        """The loss and the model's outputs of a step, by name; weights change.

        Raises:
            SignatureError: Arrays that differ in number, name, shape or type from the inputs of a step.
        """
        feeds = by_name(self.model.name, self.inputs, arrays, named)
        made = self.session.run(converted(self.model.name, self._ports(), feeds)).outputs
        return received(self.outputs, made)

    def _ports(self) -> tuple[ModelPort, ...]:
        """Inputs of a call, which holds all micro-batches of the schedule one after the other."""
        schedule = self.session.schedule
        count = schedule.device_iterations * schedule.accumulation * schedule.replicas
        if count == 1:
            return self.inputs
        return tuple(replace(p, shape=(p.shape[0] * count, *p.shape[1:])) if p.shape else p for p in self.inputs)

    @property
    def report(self) -> Report:
        """Cost of a step on the machine, and of those that ran on the host."""
        return self.session.report


def trained(
    model: Model,
    loss: str | Loss | None,
    parameters: Sequence[str] | None = None,
    begins: list[tuple[int, str]] | None = None,
) -> tuple[tuple[ModelPort, ...], tuple[ModelPort, ...], Network, dict[str, Array]]:
    """Inputs of a model that is trained, its own results, its network with the loss as the first result, its weights.

    Args:
        model: The model.
        loss: As :class:`ModelTraining` takes it.
        parameters: Names of the initialisers to train; all of floats if left out.
        begins: As :meth:`~abele.frontends.onnx.model.Model.read` takes it.

    Raises:
        ModelError: As of :class:`ModelTraining`.
    """
    proto, name = _with_loss(model, loss)
    held = _held(proto, parameters)
    inputs, ports, network, weights = model.read(proto, training=True, untrained=held, extra=(name,), begins=begins)
    value = network.outputs[-1]
    if value.size != 1:
        raise ModelError(
            f"the loss {name!r} has the shape {list(value.shape)}, not one element",
            remedy='a tensor that a reduction makes, or loss=Loss("cross_entropy")',
        )
    return inputs, ports, replace(network, outputs=(value, *network.outputs[:-1]), loss=value), weights


def _held(proto: onnx.ModelProto, parameters: Sequence[str] | None) -> frozenset[str]:
    """Initialisers that are not trained."""
    names = {t.name for t in proto.graph.initializer}
    held = {
        node.input[place]
        for node in proto.graph.node
        for place in _HELD_INPUTS.get(node.op_type, ())
        if place < len(node.input)
    }
    if parameters is not None:
        unknown = [name for name in parameters if name not in names]
        if unknown:
            raise ModelError(f"parameters= names {unknown[0]!r}, which is no initialiser of the model")
        held |= names - set(parameters)
    return frozenset(held & names)


def _with_loss(model: Model, loss: str | Loss | None) -> tuple[onnx.ModelProto, str]:
    """A model with a loss, and the name of this."""
    if isinstance(loss, str):
        return model.proto, loss
    if loss is None:
        return model.proto, model.outputs[0].name
    ports = {p.name: p for p in model.outputs}
    output = loss.output or model.outputs[0].name
    if output not in ports:
        raise ModelError(f"the loss is of {output!r}, the model's outputs are {', '.join(map(repr, ports))}")
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    graph, port = proto.graph, ports[output]
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {v.name for v in graph.input}
    if loss.target in taken:
        raise ModelError(f"the target of the loss is called {loss.target!r}, as a tensor of the model is")
    made = f"{output}/loss"
    if loss.kind == "cross_entropy":
        shape, code = (port.shape[0], *port.shape[2:]), TensorProto.INT64
        graph.node.append(helper.make_node("SoftmaxCrossEntropyLoss", [output, loss.target], [made]))
    elif loss.kind in ("mse", "l1"):
        shape, code = port.shape, type_code(port.dtype)
        size = "Mul" if loss.kind == "mse" else "Abs"
        difference, each = f"{made}/difference", f"{made}/each"
        graph.node.append(helper.make_node("Sub", [output, loss.target], [difference]))
        graph.node.append(helper.make_node(size, [difference] * (2 if size == "Mul" else 1), [each]))
        graph.node.append(helper.make_node("ReduceMean", [each], [made], keepdims=0))
    else:
        raise ModelError(f"there is no loss {loss.kind!r}", remedy="cross_entropy, mse or l1, or a tensor of the model")
    graph.input.append(helper.make_tensor_value_info(loss.target, code, shape))
    version = next((o for o in proto.opset_import if domain_of(o.domain) == STANDARD), None)
    if loss.kind == "cross_entropy" and version is not None and version.version < 12:
        # Operators of losses came with 12; the others mean what they did.
        version.version = 12
    return proto, made
