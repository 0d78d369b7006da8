"""Operators that users write, for ``builder.customOp``: a class of shapes, lowering and gradient under a name.

PopART takes such operators as C++ that is compiled against it. Here one is a class::

    @popart.register_op("Cube", domain="example", version=1)
    class Cube(popart.CustomOp):
        @staticmethod
        def shapes(x, *, scale=1.0):
            return x

        @staticmethod
        def lower(call, x, *, scale=1.0):
            return popops.map(call.graph, _1 * _1 * _1 * scale, [x], call.prog)

        @staticmethod
        def gradient(builder, inputs, outputs, grads, *, scale=1.0):
            square = builder.aiOnnx.mul([inputs[0], inputs[0]])
            return [builder.aiGraphcore.scale([builder.aiOnnx.mul([square, grads[0]])], 3 * scale)]

Operators that were registered for PyTorch models have their shapes too, and run in models without training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from abele.arrays import Array
from abele.frontends.onnx.model import functions_of
from abele.frontends.onnx.reader import GraphReader, ModelParts
from abele.frontends.onnx.registry import Item
from abele.frontends.popart.builder import Builder, versions_of
from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.tensor_info import TensorInfo
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.own_op import OWN_OPS, OwnLowering, OwnOp, OwnTypes, key_of
from abele.numerics import as_element_type


class CustomOp:
    """Base of operators that users write."""

    @staticmethod
    def shapes(*inputs: TensorInfo, **attributes: Any) -> TensorInfo | Sequence[TensorInfo]:
        """Type and shape of the result, or of each of several."""
        raise NotImplementedError

    @staticmethod
    def lower(call: OwnLowering, *inputs: Any, **attributes: Any) -> Any:
        """Append to ``call.prog`` what computes the results of tensors of ``call.graph``; returns their tensors."""
        raise NotImplementedError

    gradient: ClassVar[Callable[..., Sequence[str]] | None] = None
    """Takes a builder, names of the inputs, of the results and of the results' gradients, and the attributes as
    keywords. Gives the name of a gradient for each input; an empty name for none."""

    host: ClassVar[Callable[..., Any] | None] = None
    """Meaning of the operator on NumPy's arrays, for those who ask for it."""


Registered = TypeVar("Registered", bound=type[CustomOp])


def register_op(name: str, domain: str = "custom.ops", version: int = 1) -> Callable[[Registered], Registered]:
    """Register an operator under a name; it replaces an earlier one of the same name.

    Args:
        name: Of the operator, the ``opName`` of ``customOp``.
        domain: A name before it, so that two authors may use one name.
        version: Version of the domain.

    Raises:
        popart_exception: The class is no subclass of :class:`CustomOp`, or lacks ``shapes`` or ``lower``.
    """

    def register(operation: Registered) -> Registered:
        if not isinstance(operation, type) or not issubclass(operation, CustomOp):
            raise popart_exception(f"{operation!r} is no subclass of popart.CustomOp")
        for method in ("shapes", "lower"):
            if getattr(operation, method) is getattr(CustomOp, method):
                raise popart_exception(f"the operator {name!r} has no {method}()", remedy=f"write a static {method}()")
        key = key_of(name, domain, version)
        OWN_OPS[key] = OwnOp(
            key,
            operation.lower,
            _evaluation(operation),
            types=_types(operation),
            gradient=None if operation.gradient is None else _gradient(operation, key),
        )
        return operation

    return register


def _types(operation: type[CustomOp]) -> Callable[..., OwnTypes]:
    def types(given: OwnTypes, attributes: dict[str, Any]) -> OwnTypes:
        made = operation.shapes(*(TensorInfo(dtype.np, shape) for shape, dtype in given), **attributes)
        several = [made] if isinstance(made, TensorInfo) else list(made)
        return [(tuple(info.shape()), as_element_type(info.dtype)) for info in several]

    return types


def _evaluation(operation: type[CustomOp]) -> Callable[..., Sequence[Array]] | None:
    host = operation.host
    if host is None:
        return None

    def evaluate(arrays: Sequence[Array], attributes: dict[str, Any]) -> Sequence[Array]:
        made = host(*arrays, **attributes)
        return list(made) if isinstance(made, (tuple, list)) else [made]

    return evaluate


def _gradient(operation: type[CustomOp], key: str) -> Callable[..., list[Value]]:
    """The gradient as a function of the network: the user's nodes, read into the backward pass."""

    def gradient(
        net: BlockBuilder,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        grads: Sequence[Value],
        attributes: dict[str, Any],
    ) -> list[Value]:
        builder = Builder()
        held: dict[str, Value] = {}
        several: list[list[str]] = []
        for values in (inputs, outputs, grads):
            names = [builder.addInputTensor(TensorInfo(v.dtype.np, v.shape)) for v in values]
            held |= dict(zip(names, values, strict=True))
            several.append(names)
        assert operation.gradient is not None
        made = operation.gradient(builder, *several, **attributes)
        if len(made) != len(inputs):
            raise popart_exception(f"the gradient of {key} gave {len(made)} results for its {len(inputs)} inputs")
        proto = builder.proto
        parts = ModelParts(None, versions_of(proto), functions_of(proto), training=True)
        items = {n: Item(n, v.shape, v.dtype.np, value=v) for n, v in held.items()}
        reader = GraphReader(net, parts, parts.opsets, items)
        reader.nodes(proto.graph.node)
        if parts.missing:
            raise parts.missing[0]
        found = []
        for name, value in zip(made, inputs, strict=True):
            found.append(reader.value(reader.item(name)) if name else build.full(net, 0.0, value.shape, value.dtype))
            if found[-1].type != value.type:
                raise popart_exception(
                    f"a gradient of {key} is {found[-1].dtype}{list(found[-1].shape)}",
                    because=f"its input is {value.dtype}{list(value.shape)}",
                )
        return found

    return gradient
