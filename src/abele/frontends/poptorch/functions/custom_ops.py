"""Operations that users write: a function that builds graph and program, with its shapes and its gradient.

An operation is a class with static methods (:class:`CustomOp`), registered under a name. In a model it is called
through the class, or by name as in PopTorch (:func:`custom_op`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch

from abele.errors import AbeleError, nearest
from abele.frontends.poptorch.capture.registry import element_type
from abele.frontends.poptorch.errors import ArgumentError, Error
from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.network.ops.own_op import OWN_OPS, OwnLowering, OwnOp, OwnTypes, key_of


class CustomOp:
    """An operation; subclass it, write :meth:`shapes` and :meth:`lower`, and register it with :func:`register_op`."""

    op_name: ClassVar[str] = ""

    @staticmethod
    def shapes(*inputs: torch.Tensor, **attributes: Any) -> Any:
        """The results of inputs without data: tensors without data of the right shape and type, one or a tuple."""
        raise NotImplementedError

    @staticmethod
    def lower(call: OwnLowering, *inputs: Any, **attributes: Any) -> Any:
        """Append to ``call.prog`` what computes the results of tensors of ``call.graph``; returns their tensors."""
        raise NotImplementedError

    gradient: ClassVar[Callable[..., Any] | None] = None
    """Takes the inputs, the results and the gradients of the results, each a tuple, and the attributes as keywords.
    Gives a gradient (or None) for each input, by PyTorch's functions or other operations."""

    host: ClassVar[Callable[..., Any] | None] = None
    """Meaning of the operation in PyTorch, for calls outside of a model on the device."""

    @classmethod
    def call(cls, *inputs: torch.Tensor, **attributes: Any) -> Any:
        """The operation's result, or a tuple of its results.

        Args:
            *inputs: Tensors.
            **attributes: Numbers, texts and lists of them.

        Raises:
            Error: It is not registered, its shapes do not fit, or it is called where no device is and has no ``host``.
            ArgumentError: An input is no tensor, or an attribute cannot be passed.
        """
        results = _called(cls, inputs, attributes)
        return results[0] if len(results) == 1 else tuple(results)


Registered = TypeVar("Registered", bound=type[CustomOp])

_OPS: dict[str, type[CustomOp]] = {}


def register_op(name: str, domain: str = "custom.ops", domain_version: int = 1) -> Callable[[Registered], Registered]:
    """Register an operation under a name; it replaces an earlier one of the same name.

    Args:
        name: Of the operation.
        domain: A name before it, so that two authors may use one name.
        domain_version: Version of the domain.

    Raises:
        ArgumentError: The registered class is no subclass of :class:`CustomOp`, or lacks ``shapes`` or ``lower``.
    """

    def register(operation: Registered) -> Registered:
        if not isinstance(operation, type) or not issubclass(operation, CustomOp):
            raise ArgumentError(f"{operation!r} is no subclass of poptorch.CustomOp")
        for method in ("shapes", "lower"):
            if getattr(operation, method) is getattr(CustomOp, method):
                raise ArgumentError(f"the operation {name!r} has no {method}()", remedy=f"write a static {method}()")
        key = key_of(name, domain, domain_version)
        operation.op_name = key
        _OPS[key] = operation
        OWN_OPS[key] = OwnOp(key, operation.lower, _evaluation(operation), types=_types(operation))
        return operation

    return register


def custom_op(
    inputs: Sequence[torch.Tensor],
    name: str,
    domain: str,
    domain_version: int,
    example_outputs: Sequence[torch.Tensor],
    attributes: dict[str, Any] | None = None,
) -> list[torch.Tensor]:
    """The results of a registered operation.

    Args:
        inputs: Tensors.
        name: As it was registered.
        domain: As it was registered.
        domain_version: As it was registered.
        example_outputs: Tensors of the shapes and types of the results.
        attributes: Numbers, texts and lists of them, by name.

    Raises:
        Error: No such operation; results of other shapes than the examples.
        ArgumentError: Arguments of other types.
    """
    if isinstance(inputs, torch.Tensor) or not isinstance(inputs, Sequence):
        raise ArgumentError("the inputs of poptorch.custom_op are a list of tensors")
    key = key_of(name, domain, domain_version)
    if key not in _OPS:
        close = nearest(key, _OPS)
        raise Error(
            f"no operation {name!r} of domain {domain!r}, version {domain_version}, is registered",
            remedy=f"{close!r} is" if close else "write a poptorch.CustomOp and poptorch.register_op it",
        )
    results = _called(_OPS[key], inputs, _checked_attributes(attributes))
    wanted = list(example_outputs)
    if len(wanted) != len(results):
        raise Error(f"{key} has {len(results)} results, {len(wanted)} example outputs were given")
    for number, (result, example) in enumerate(zip(results, wanted, strict=True)):
        if (result.shape, result.dtype) != (example.shape, example.dtype):
            raise Error(
                f"result {number} of {key} is {result.dtype} of {list(result.shape)}, its example output is "
                f"{example.dtype} of {list(example.shape)}"
            )
    return results


def _checked_attributes(attributes: Any) -> dict[str, Any]:
    """Attributes as PopTorch checks them."""
    if attributes is None:
        return {}
    if not isinstance(attributes, dict):
        raise ArgumentError("poptorch.custom_op: attributes must be a dictionary.")
    for key, value in attributes.items():
        if not isinstance(key, str):
            raise ArgumentError(f"poptorch.custom_op: attributes key {key!r} is not a string.")
        kinds = {type(v) for v in value} if isinstance(value, (list, tuple)) else {type(value)}
        if not kinds <= {int, float, str, bool}:
            raise ArgumentError(
                f"poptorch.custom_op: attribute {key!r} is {value!r}; it has to be a number, a text or a list of them."
            )
        if len(kinds) > 1:
            raise ArgumentError(f"poptorch.custom_op: the elements of attribute {key!r} are of different types.")
    return attributes


def _called(operation: type[CustomOp], inputs: Sequence[Any], attributes: dict[str, Any]) -> list[torch.Tensor]:
    if not operation.op_name:
        raise Error(f"the operation {operation.__name__} is not registered", remedy="poptorch.register_op(name)")
    for number, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise ArgumentError(f"input {number} of {operation.op_name} is {value!r}, not a tensor")
    try:
        written = json.dumps(attributes, sort_keys=True)
    except TypeError as error:
        raise ArgumentError(f"an attribute of {operation.op_name} is no number, text or list: {error}") from error
    if not isRunningOnIpu():
        return _on_host(operation, inputs, attributes)
    if not torch.is_grad_enabled() or operation.gradient is None:
        made: list[torch.Tensor] = torch.ops.abele.own_op(operation.op_name, list(inputs), written)
        return made
    apply: Any = _Differentiated.apply
    return list(apply(operation, written, *inputs))


def _on_host(operation: type[CustomOp], inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> list[Any]:
    if operation.host is None:
        raise Error(
            f"{operation.op_name} runs on the device",
            remedy="call it in a model's forward, or give it a host() function",
        )
    made = operation.host(*inputs, **attributes)
    return list(made) if isinstance(made, (tuple, list)) else [made]


class _Differentiated(torch.autograd.Function):
    """An operation whose gradient its author wrote."""

    @staticmethod
    def forward(ctx: Any, operation: type[CustomOp], written: str, *inputs: torch.Tensor) -> Any:
        results = torch.ops.abele.own_op(operation.op_name, list(inputs), written)
        ctx.operation, ctx.written, ctx.num_inputs = operation, written, len(inputs)
        ctx.save_for_backward(*inputs, *results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        inputs, results = ctx.saved_tensors[: ctx.num_inputs], ctx.saved_tensors[ctx.num_inputs :]
        made = ctx.operation.gradient(inputs, results, grads, **json.loads(ctx.written))
        made = tuple(made) if isinstance(made, (tuple, list)) else (made,)
        name = ctx.operation.op_name
        if len(made) != len(inputs):
            raise Error(f"the gradient of {name} gave {len(made)} results for its {len(inputs)} inputs")
        for number, (gradient, value) in enumerate(zip(made, inputs, strict=True)):
            if gradient is not None and (not isinstance(gradient, torch.Tensor) or gradient.shape != value.shape):
                shown = list(gradient.shape) if isinstance(gradient, torch.Tensor) else repr(gradient)
                raise Error(
                    f"gradient {number} of {name} is {shown}", because=f"its input is of shape {list(value.shape)}"
                )
        return (None, None, *made)


# --- what PyTorch records ---------------------------------------------------------------------------------------------


@torch.library.custom_op("abele::own_op", mutates_args=())
def _own_op(name: str, inputs: Sequence[torch.Tensor], attributes: str) -> list[torch.Tensor]:
    return [t.clone() for t in _on_host(_OPS[name], inputs, json.loads(attributes))]


@_own_op.register_fake
def _(name: str, inputs: Sequence[torch.Tensor], attributes: str) -> list[torch.Tensor]:
    operation = _OPS[name]
    try:
        made = operation.shapes(*inputs, **json.loads(attributes))
    except AbeleError:
        raise
    except Exception as error:  # Whatever the author's function raises.
        shapes = ", ".join(f"{t.dtype} {list(t.shape)}" for t in inputs)
        raise Error(f"the shapes of {name} cannot be told for {shapes}: {error}") from error
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    if not results or not all(isinstance(t, torch.Tensor) for t in results):
        raise Error(
            f"the shapes of {name} are {made!r}", remedy="give a tensor for each result, as torch.empty_like does"
        )
    return [torch.empty(t.shape, dtype=t.dtype, device=inputs[0].device if inputs else "cpu") for t in results]


def _types(operation: type[CustomOp]) -> Callable[[OwnTypes, dict[str, Any]], OwnTypes]:
    """Types of an operation's results in models of other front ends, by its PyTorch code."""

    def types(given: OwnTypes, attributes: dict[str, Any]) -> OwnTypes:
        inputs = [from_array(np.empty(shape, dtype.np)) for shape, dtype in given]
        made = operation.shapes(*inputs, **attributes)
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        return [(tuple(t.shape), element_type(t.dtype)) for t in results]

    return types


def _evaluation(operation: type[CustomOp]) -> Any:
    """The operation's meaning on arrays, by its PyTorch code; None without any."""
    if operation.host is None:
        return None

    def evaluate(arrays: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
        return [to_array(t) for t in _on_host(operation, [from_array(a) for a in arrays], attributes)]

    return evaluate
