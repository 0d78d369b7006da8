"""Steps of a model as networks: what Keras does with a batch is traced by JAX and read.

A training step is a hybrid of three traces. Forward pass, loss and metrics of a micro-batch become a network, which our
own passes differentiate, so that accumulation, pipelines and recomputation apply. The optimiser is a second trace, of
``stateless_apply`` on the accumulated gradients: a :class:`~abele.network.CapturedUpdate` update. Every variable is a
parameter (trainable) or a buffer (moving statistics, seeds, metrics, the optimiser's own), by its path.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from abele.arrays import Array
from abele.frontends.jaxpr import element_type, read_into
from abele.frontends.keras import private
from abele.frontends.keras.model.variables import cell_of
from abele.network import CapturedUpdate, Network, NetworkBuilder, NetworkFunction, OpBlock, Value
from abele.network.passes import inference_pipeline
from abele.session import SharedArray

LARGEST_CONSTANT = 1024
"""Elements above which an array closed over, such as a table of positions, is a buffer."""


@dataclass(frozen=True)
class BatchType:
    """Structure of a batch, and shape and type of each of its arrays.

    Attributes:
        tree: The batch with a ``ShapeDtypeStruct`` in place of each array.
    """

    tree: Any

    @staticmethod
    def of(batch: Any) -> BatchType:
        """The type of a batch of NumPy arrays."""
        return BatchType(jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), batch))

    @property
    def key(self) -> tuple[Any, ...]:
        """Key by which batches of one type are the same."""
        leaves, structure = jax.tree.flatten(self.tree)
        return (str(structure), *((leaf.shape, leaf.dtype.name) for leaf in leaves))

    @property
    def names(self) -> list[str]:
        """A name for each array: ``x``, ``y``, ``sample_weight``, and below them the place in their structure."""
        found = []
        for path, _ in jax.tree_util.tree_flatten_with_path(self.tree)[0]:
            first = ("x", "y", "sample_weight")[path[0].idx] if isinstance(self.tree, tuple) else "x"
            rest = path[1:] if isinstance(self.tree, tuple) else path
            found.append("/".join([first, *(str(getattr(p, "key", getattr(p, "idx", p))) for p in rest)]))
        return found


@dataclass(frozen=True)
class StepNetwork:
    """A step as a network, with the arrays of its parameters and buffers.

    Attributes:
        network: The network; its inputs are the arrays of a batch, its outputs the leaves of ``results``.
        weights: The cell of each parameter and buffer by name.
        results: Structure of the outputs: of predictions, or of each log by name in Keras' order.
        update: The update of the parameters; None where nothing is trained.
    """

    network: Network
    weights: Mapping[str, SharedArray]
    results: Any
    update: CapturedUpdate | None = None


class _Reading:
    """A network in the making from traces over a model's variables."""

    def __init__(self) -> None:
        self.net = NetworkBuilder()
        self.weights: dict[str, SharedArray] = {}
        self.values: dict[int, Value] = {}
        self._taken: set[str] = set()

    def enter(self, variables: Iterable[Any], *, trained: bool = False) -> list[Value]:
        """Values of variables, each of which enters once."""
        return [self._entered(v, trained=trained) for v in variables]

    def _entered(self, variable: Any, *, trained: bool) -> Value:
        if id(variable) not in self.values:
            name, count = variable.path, 1
            while name in self._taken:
                count += 1
                name = f"{variable.path}_{count}"
            self._taken.add(name)
            cell = self.weights[name] = cell_of(variable)
            array = variable.__dict__["_value"]
            make = self.net.parameter if trained else self.net.buffer
            self.values[id(variable)] = make(cell.shape, element_type(array.dtype), name)
        return self.values[id(variable)]

    def read(self, jaxpr: Any, arguments: Sequence[Value]) -> list[Value]:
        """Results of a trace, appended; large arrays that it closes over become buffers."""
        consts = [self._closed_over(c) for c in jaxpr.consts]
        opened = jaxpr.replace(
            jaxpr=jaxpr.jaxpr.replace(
                constvars=[v for v, c in zip(jaxpr.jaxpr.constvars, consts, strict=True) if c is None],
                invars=[*(v for v, c in zip(jaxpr.jaxpr.constvars, consts, strict=True) if c), *jaxpr.jaxpr.invars],
            ),
            consts=[c for c, value in zip(jaxpr.consts, consts, strict=True) if value is None],
        )
        return read_into(self.net, opened, [*(c for c in consts if c is not None), *arguments], differentiated=True)

    def _closed_over(self, array: Any) -> Value | None:
        if np.size(array) <= LARGEST_CONSTANT or not jax.numpy.issubdtype(array.dtype, jax.numpy.floating):
            return None
        name = f"closed_over{len(self.weights)}"
        self.weights[name] = SharedArray(np.asarray(array))
        return self.net.buffer(array.shape, element_type(array.dtype), name)

    def take(self, variables: Iterable[Any], results: Iterable[Value]) -> None:
        """Let variables become results after each micro-batch."""
        for variable, result in zip(variables, results, strict=True):
            value = self.values[id(variable)]
            if result is not value:
                self.net.updates[value] = result


def training_step(model: Any, batch: BatchType, *, factor: float, gradients: Any = None) -> StepNetwork:
    """The training step of a model, whose variables are all made.

    Args:
        model: A compiled Keras model.
        batch: Type of a micro-batch.
        factor: Number that the optimiser multiplies the sums of gradients by.
        gradients: Type in which gradients arrive; by default each in its variable's.
    """
    reading, order = _Reading(), dict[str, dict[str, Any]]()
    trained, others = model.trainable_variables, model.non_trainable_variables
    rules, metrics = model.optimizer.variables, model.metrics_variables
    groups = (trained, others, rules, metrics)

    def micro_batch(*given: Any) -> Any:
        loss, logs, new_others, new_metrics = private.micro_batch(model, *given)
        order["logs"] = {name: jax.tree.structure(value) for name, value in logs.items()}
        return loss, logs, new_others, new_metrics

    entering = [reading.enter(group, trained=group is trained) for group in groups]
    inputs = _inputs(reading.net, batch)
    types = [[_type(v) for v in group] for group in groups]
    jaxpr, shape = jax.make_jaxpr(micro_batch, return_shape=True)(*types, batch.tree)
    results = reading.read(jaxpr, [*(v for group in entering for v in group), *inputs])
    loss, logs, new_others, new_metrics = jax.tree.unflatten(jax.tree.structure(shape), results)
    reading.net.loss = loss
    names = order["logs"]
    for value in jax.tree.leaves([logs[name] for name in names]):
        reading.net.output(value)
    reading.take(others, new_others)
    reading.take(metrics, new_metrics)
    update = _update(model, [v.name for v in entering[2]], factor=factor, gradients=gradients)
    return StepNetwork(reading.net.finish(), reading.weights, names, update)


def _update(model: Any, buffers: Sequence[str], *, factor: float, gradients: Any = None) -> CapturedUpdate:
    """``stateless_apply`` of the model's optimiser as an update of the network's parameters."""
    trained, rules = model.trainable_variables, model.optimizer.variables

    def update(parameters: Any, sums: Any, state: Any) -> Any:
        scaled = sums if factor == 1 else [g * factor for g in sums]
        return model.optimizer.stateless_apply(state, scaled, parameters)

    parameters, state = [_type(v) for v in trained], [_type(v) for v in rules]
    arriving = [jax.ShapeDtypeStruct(p.shape, gradients or p.dtype) for p in parameters]
    jaxpr = jax.make_jaxpr(update)(parameters, arriving, state)
    net = NetworkBuilder()
    entering = [
        net.buffer(t.shape, element_type(t.dtype), f"{kind}{n}")
        for kind, types in (("parameter", parameters), ("gradient", arriving), ("state", state))
        for n, t in enumerate(types)
    ]
    net.outputs = read_into(net, jaxpr, entering)
    plain = inference_pipeline().until("dead-code").run(net.finish())
    body = OpBlock(plain.buffers, plain.ops, plain.outputs)
    return CapturedUpdate(function=NetworkFunction("update", body), buffers=tuple(buffers))


def forward_step(model: Any, batch: BatchType, *, with_metrics: bool) -> StepNetwork:
    """A step of evaluation or prediction, as the model's own ``test_step`` and ``predict_step`` say.

    Args:
        model: The Keras model.
        batch: Type of a batch.
        with_metrics: True to evaluate: metrics are part of the state, and the results are logs.
    """
    reading, order = _Reading(), dict[str, dict[str, Any]]()
    groups = [model.trainable_variables, model.non_trainable_variables]
    groups += [model.metrics_variables] if with_metrics else []

    def forward(state: Any, data: Any) -> Any:
        if not with_metrics:
            results, others = model.predict_step(state, data)
            return results, (state[0], others)
        results, state = model.test_step(state, data)
        order["logs"] = {name: jax.tree.structure(value) for name, value in results.items()}
        return results, tuple(state)

    entering = [reading.enter(group) for group in groups]
    inputs = _inputs(reading.net, batch)
    types = tuple([_type(v) for v in group] for group in groups)
    jaxpr, shape = jax.make_jaxpr(forward, return_shape=True)(types, batch.tree)
    results = reading.read(jaxpr, [*(v for group in entering for v in group), *inputs])
    made, state = jax.tree.unflatten(jax.tree.structure(shape), results)
    listed = [made[name] for name in order["logs"]] if with_metrics else made
    for value in jax.tree.leaves(listed):
        reading.net.output(value)
    for variables, new in zip(groups, state, strict=True):
        reading.take(variables, new)
    structure = order["logs"] if with_metrics else jax.tree.structure(shape[0])
    return StepNetwork(reading.net.finish(), reading.weights, structure)


def _inputs(net: NetworkBuilder, batch: BatchType) -> list[Value]:
    leaves = jax.tree.leaves(batch.tree)
    return [net.input(t.shape, element_type(t.dtype), name) for t, name in zip(leaves, batch.names, strict=True)]


def _type(variable: Any) -> jax.ShapeDtypeStruct:
    """Shape and type of a variable, without a look at the device."""
    array = variable.__dict__["_value"]
    return jax.ShapeDtypeStruct(np.shape(array), array.dtype)


def leaves_of(batch: Any) -> list[Array]:
    """The arrays of a batch in the order of the network's inputs."""
    return [np.asarray(a) for a in jax.tree.leaves(batch)]
