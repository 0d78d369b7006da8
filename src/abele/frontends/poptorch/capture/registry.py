"""The table of ATen operators: for each, a function that appends its meaning to the network.

A handler is registered for one overload (``aten.max.dim``), or for an operator (``aten.relu``), which stands for the
overloads whose arguments it takes. PyTorch decomposes calls that have no handler; what is left is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from abele.errors import TypeMismatchError, UnsupportedOpError
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.call_errors import FOR_EXPERTS
from abele.graph.debug import DebugRecord
from abele.kernels.nest.ir import Const, Expr
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.numerics import ElementType, bf16, bool_, f8_143, f8_152, f16, f32, i8, i16, i32, u8, u16

# PyTorch's element types on the device: 64-bit ones are narrowed.

_TYPES = {
    torch.float32: f32,
    torch.float64: f32,
    torch.float16: f16,
    torch.bfloat16: bf16,
    torch.float8_e4m3fnuz: f8_143,
    torch.float8_e5m2fnuz: f8_152,
    torch.int64: i32,
    torch.int32: i32,
    torch.int16: i16,
    torch.int8: i8,
    torch.uint16: u16,
    torch.uint8: u8,
    torch.bool: bool_,
}
_NARROWED = {torch.float64: torch.float32, torch.int64: torch.int32}


def element_type(dtype: torch.dtype) -> ElementType:
    """The device type of a PyTorch type: float64 becomes f32, int64 i32.

    Raises:
        TypeMismatchError: The device has nothing like it.
    """
    if dtype not in _TYPES:
        raise TypeMismatchError(f"{dtype} does not exist on the device", remedy="use float32, float16, int32 or bool")
    return _TYPES[dtype]


def host_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which tensors of ``dtype`` come back from the device."""
    return _NARROWED.get(dtype, dtype)


Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def aten(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for operators: its arguments are a :class:`OperatorCall`, then those of the operator."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name not in HANDLERS, f"{name} is registered twice"
            HANDLERS[name] = handler
        return handler

    return register


@dataclass(frozen=True)
class OperatorCall:
    """One operator call that is being converted.

    Attributes:
        net: The network to append to.
        node: The call.
        result: Shape and type of the result (of the first one, if there are several).
    """

    net: BlockBuilder
    node: torch.fx.Node

    @property
    def result(self) -> Any:
        """The result as a tensor without data; the first one if there are several."""
        value = torch_export.fake(self.node)
        return value[0] if isinstance(value, (tuple, list)) else value

    @property
    def dtype(self) -> ElementType:
        """Element type of the result."""
        return element_type(self.result.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple(self.result.shape)

    def operand(self, value: Value, dtype: ElementType) -> Value:
        """``value`` as an operand of type ``dtype``."""
        return build.cast(self.net, value, dtype)

    def map(
        self,
        expression: Expr,
        *operands: Value | float,
        common: ElementType | None = None,
        dtype: ElementType | None = None,
        masks: Collection[int] = (),
    ) -> Value:
        """An expression of every element.

        Args:
            expression: Over ``derivative.arg(i)`` for operand i.
            *operands: Values and numbers; numbers become part of the expression.
            common: Type that the operands are converted to; by default that of the result.
            dtype: Type of the result; by default that of the call.
            masks: Numbers of the operands that are conditions: they stay bools.
        """
        common = common or self.dtype
        return build.map_of(
            self.net,
            expression,
            operands,
            common,
            dtype or self.dtype,
            number=lambda value: self._number(value, common),
            whole=i32,
            masks=masks,
        )

    def common_type(self, first: int = 0, second: int = 1) -> ElementType:
        """The type to which PyTorch promotes two arguments of the call, given by position."""
        pair: list[Any] = [torch_export.fake(a) if isinstance(a, torch.fx.Node) else a for a in self.node.args]
        return element_type(torch.result_type(pair[first], pair[second]))

    def refuse(self, what: str, remedy: str | None = None) -> UnsupportedOpError:
        """The error that an argument of the operator has no lowering."""
        return unsupported(torch_export.written_name(self.node), torch_export.origin(self.node), what, remedy)

    def _number(self, value: float, dtype: ElementType) -> Const:
        """A number beside operands of ``dtype``."""
        if dtype.is_float:
            return Const(float(value))
        if dtype == bool_:
            return Const(bool(value), bool_)
        if not -(2**31) <= value < 2**31:
            raise self.refuse(f"with the number {value}, which does not fit in 32 bits, has no lowering")
        return Const(int(value), i32)


def handler_of(node: torch.fx.Node) -> Handler | None:
    """The handler of a call: its overload's, or else its operator's if that takes these arguments."""
    if torch_export.is_mutable(node):
        return None
    exact = HANDLERS.get(torch_export.overload_name(node))
    handler = exact or HANDLERS.get(torch_export.op_name(node))
    if handler is None:
        return None
    try:
        inspect.signature(handler).bind(None, *node.args, **node.kwargs)
    except TypeError:
        return None
    return handler


def takes_values(node: torch.fx.Node) -> frozenset[int]:
    """Positions of arguments for which the handler of a call takes numbers from the device."""
    handler = handler_of(node)
    parameters = list(inspect.signature(handler).parameters.values())[1:] if handler is not None else []
    return frozenset(n for n, p in enumerate(parameters) if "Value" in str(p.annotation))


def convert(net: BlockBuilder, node: torch.fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Append what a call with a handler means; returns its value or values.

    Raises:
        UnsupportedOpError: These arguments have no lowering; the message names the module and the user's line.
    """
    handler = handler_of(node)
    assert handler is not None
    with net.at(torch_export.origin(node)):
        result = handler(OperatorCall(net, node), *args, **kwargs)
    _mark_wide(net, torch_export.fake(node), result)
    return result


def no_handler(node: torch.fx.Node) -> UnsupportedOpError:
    """The error that a call has neither a handler nor a rule of PyTorch."""
    name, overload = torch_export.written_name(node), torch_export.written_overload(node)
    if torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ()):
        return unsupported(
            name,
            torch_export.origin(node),
            "has a result whose size depends on the values of a tensor",
            _OF_SIZE.get(name, "work on all elements with a mask, as torch.where(mask, x, 0) does"),
        )
    has_others = any(key == name or key.startswith(f"{name}.") for key in HANDLERS)
    shown = overload if has_others else name
    return unsupported(
        shown,
        torch_export.origin(node),
        "has no lowering",
        "express it with operators that have one (docs/operators.md)",
    )


_OF_SIZE = {
    "aten.nonzero": "torch.nonzero_static(x, size=n), or torch.where(mask, x, 0) in place of x[mask.nonzero()]"
    f"; {FOR_EXPERTS}",
    "aten.where": f"torch.nonzero_static(mask, size=n), or torch.where(mask, x, y) with three arguments; {FOR_EXPERTS}",
    "aten.bincount": "give minlength, larger than every number that there is",
    "aten.unique_dim": "pass the number of groups as a plain number (num_graphs=, num_nodes=, dim_size=)",
    "aten._unique2": "pass the number of groups as a plain number (num_graphs=, num_nodes=, dim_size=)",
}
"""Remedies where the number of results depends on values."""


def all_missing(missing: Sequence[UnsupportedOpError]) -> UnsupportedOpError:
    """One error for all calls of a model that have no lowering."""
    lines = dict.fromkeys(f"{e.message}, {e.at}" if e.at else e.message for e in missing)
    if len(lines) == 1:
        return missing[0]
    return UnsupportedOpError(
        f"{len(lines)} calls of the model have no lowering",
        at=missing[0].at,
        because="\n".join(lines),
        remedy="express them with operators that have one (docs/operators.md)",
    )


def _mark_wide(net: BlockBuilder, fake: Any, result: Any) -> None:
    """Remember which integers have 64 bits in the model and 32 on the device."""
    if isinstance(fake, (tuple, list)) and isinstance(result, (tuple, list)):
        for part, value in zip(fake, result, strict=False):
            _mark_wide(net, part, value)
    elif isinstance(result, Value) and isinstance(fake, torch.Tensor) and fake.dtype == torch.int64:
        net.root.wide.add(result)


def unsupported(name: str, origin: DebugRecord, what: str, remedy: str | None) -> UnsupportedOpError:
    """The error for an operator that cannot be lowered, with its place in the model."""
    module = origin.text or "the model"
    return UnsupportedOpError(
        f"{name} in {module} {what}",
        at=origin.location or None,
        remedy=remedy,
    )
