"""One call for a module on the machine: inputs and weights as arrays, results as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends import popxl
from abele.frontends.popxl import Tensor, ops, transforms
from abele.frontends.popxl.dtypes import as_dtype, narrowed
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl_addons.module import Module
from abele.frontends.popxl_addons.named_tensors import NamedTensors
from abele.frontends.popxl_addons.utils import to_numpy

Weights = Mapping[str, Any] | Callable[[NamedTensors], Mapping[Tensor, Any]]
"""Weights by name, or a function that gives them by variable."""


@dataclass(frozen=True)
class TensorInput:
    """An array that enters a module as a tensor.

    Attributes:
        data: The array; [replicas, …] where each replica has its own.
        dtype: Type of the tensor; by default the array's, with 32 bits at most.
        per_replica: True if each replica has its own.
    """

    data: Any
    dtype: Any = None
    per_replica: bool = False

    @property
    def array(self) -> Array:
        """The array in the type of the tensor."""
        return to_numpy(self.data, self.kind)

    @property
    def kind(self) -> Any:
        """Type of the tensor."""
        return narrowed(as_dtype(self.data)) if self.dtype is None else as_dtype(self.dtype)

    @property
    def spec(self) -> popxl.TensorSpec:
        """Shape and type of the tensor on a replica."""
        shape = np.shape(self.array)
        return popxl.TensorSpec(shape[1:] if self.per_replica else shape, self.kind)


@dataclass(frozen=True)
class ModuleRun:
    """Results of a module.

    Attributes:
        outputs: Arrays of its outputs, [replicas, …] if there are several.
        gradients: Of inputs, by number, and of variables, by name; empty without gradients of outputs.
        weights: Data of the variables afterwards, by name.
    """

    outputs: tuple[Array, ...]
    gradients: Mapping[int | str, Array]
    weights: Mapping[str, Array]


def run_module(
    module: Callable[[popxl.Ir], Module] | Module,
    *inputs: Any,
    weights: Weights | None = None,
    grads: Sequence[Any] | None = None,
    replicas: int = 1,
    **kwargs: Any,
) -> ModuleRun:
    """Build a module, run it once and give what it makes.

    Args:
        module: The module; or a function that makes it for an Ir, where it asks that for groups of replicas.
        *inputs: Its arguments: :class:`TensorInput` or arrays become tensors, other things are handed on.
        weights: Weights in place of those that variables begin with.
        grads: Gradients of its outputs; None for no gradients.
        replicas: Replicas of the Ir.
        **kwargs: Further arguments of ``build``.
    """
    ir = popxl.Ir(replicas) if replicas > 1 else popxl.Ir()
    given = [TensorInput(i) if isinstance(i, np.ndarray | np.generic) or hasattr(i, "detach") else i for i in inputs]
    tensors = [i for i in given if isinstance(i, TensorInput)]
    with ir.main_graph, popxl.in_sequence():
        built = module if isinstance(module, Module) else module(ir)
        factories, graph = built.create_graph(*(i.spec if isinstance(i, TensorInput) else i for i in given), **kwargs)
        outputs = len(graph.graph.outputs)
        backward = transforms.autodiff(graph.graph) if grads is not None else None
        variables = factories.init()
        feed: dict[Any, Array] = {}
        loaded = [_loaded(t, replicas, feed) for t in tensors]
        call = graph.bind(variables).call_with_info(*loaded)
        stored = [_stored(t) for t in call.outputs[:outputs]]
        found: dict[int | str, Any] = {}
        if backward is not None:
            handed = [_loaded(_of(g), replicas, feed) for g in grads or ()]
            made = ops.call(backward.graph, *handed, inputs_dict=backward.inputs_dict(call))
            names: dict[Tensor, int | str] = {t: n for n, t in enumerate(graph.graph.inputs)}
            names |= {t: name for name, t in graph.args.to_dict().items()}
            found = {names[c.fwd_tensor]: _stored(t) for c, t in zip(backward.expected_outputs, made, strict=True)}
    by_name = variables.to_dict()
    with popxl.Session(ir, "ipu_model") as session:
        session.write_variables_data(_arrays(weights, variables))
        results = session.run(feed)
        after = {name: session.get_tensor_data(t) for name, t in by_name.items()}
    return ModuleRun(tuple(results[s] for s in stored), {name: results[s] for name, s in found.items()}, after)


def _of(given: Any) -> TensorInput:
    return given if isinstance(given, TensorInput) else TensorInput(given)


def _loaded(given: TensorInput, replicas: int, feed: dict[Any, Array]) -> Tensor:
    stream = popxl.h2d_stream(given.spec.shape, given.kind)
    each = given.array
    feed[stream] = each if given.per_replica or replicas == 1 else np.stack([each] * replicas)
    return ops.host_load(stream)


def _stored(tensor: Tensor) -> Any:
    stream = popxl.d2h_stream(tensor.shape, tensor.dtype)
    ops.host_store(stream, tensor)
    return stream


def _arrays(weights: Weights | None, variables: NamedTensors) -> Mapping[Tensor, Any]:
    if weights is None:
        return {}
    if callable(weights):
        return weights(variables)
    by_name = variables.to_dict()
    unknown = [name for name in weights if name not in by_name]
    if unknown:
        raise GraphArgumentError(f"no variable is named {unknown[0]!r}", remedy=", ".join(by_name))
    return {by_name[name]: to_numpy(array, by_name[name].dtype) for name, array in weights.items()}


__all__ = ["ModuleRun", "TensorInput", "run_module"]
