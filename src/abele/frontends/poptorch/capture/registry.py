"""The table of ATen operators: for each, a function that appends its meaning to the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from abele.errors import UnsupportedOpError
from abele.frontends.poptorch.capture import torch_export
from abele.frontends.poptorch.capture.types import element_type
from abele.graph.debug import DebugInfo
from abele.kernels.ir import Const, Expr
from abele.numerics import ElementType, bool_, i32
from abele.parallel import Network, Value
from abele.parallel.derivative import arg, substitute
from abele.parallel.ops import build

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def aten(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for operators: its arguments are a :class:`Call`, then those of the operator."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name not in HANDLERS, f"{name} is registered twice"
            HANDLERS[name] = handler
        return handler

    return register


@dataclass(frozen=True)
class Call:
    """One operator call that is being converted.

    Attributes:
        net: The network to append to.
        node: The call.
        result: Shape and type of the result (of the first one, if there are several).
    """

    net: Network
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
    ) -> Value:
        """An expression of every element.

        Args:
            expression: Over ``derivative.arg(i)`` for operand i.
            *operands: Values and numbers; numbers become part of the expression.
            common: Type that the operands are converted to; by default that of the result. Bools stay.
            dtype: Type of the result; by default that of the call.
        """
        common = common or self.dtype
        values: list[Value] = []
        places: list[Expr] = []
        for operand in operands:
            if isinstance(operand, Value):
                places.append(arg(len(values)))
                values.append(operand if operand.dtype == bool_ else self.operand(operand, common))
            else:
                places.append(_number(operand, common))
        return build.map_(self.net, substitute(expression, places.__getitem__), values, dtype or self.dtype)

    def common_type(self, first: int = 0, second: int = 1) -> ElementType:
        """The type to which PyTorch promotes two arguments of the call, given by position."""
        pair: list[Any] = [torch_export.fake(a) if isinstance(a, torch.fx.Node) else a for a in self.node.args]
        return element_type(torch.result_type(pair[first], pair[second]))

    def refuse(self, what: str, remedy: str | None = None) -> UnsupportedOpError:
        """The error that an argument of the operator has no lowering."""
        return unsupported(torch_export.op_name(self.node), torch_export.origin(self.node), what, remedy)


def _number(value: float, dtype: ElementType) -> Const:
    """A number beside operands of ``dtype``."""
    if dtype.is_float:
        return Const(float(value))
    return Const(bool(value), bool_) if dtype == bool_ else Const(int(value), i32)


def convert(net: Network, node: torch.fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Append what a call means; returns its value or values.

    Raises:
        UnsupportedOpError: The operator has no lowering; the message names the module and the user's line.
    """
    name, origin = torch_export.op_name(node), torch_export.origin(node)
    if name not in HANDLERS:
        raise unsupported(name, origin, "has no lowering", "express it with operators that have one")
    with net.at(origin):
        return HANDLERS[name](Call(net, node), *args, **kwargs)


def unsupported(name: str, origin: DebugInfo, what: str, remedy: str | None) -> UnsupportedOpError:
    """The error for an operator that cannot be lowered, with its place in the model."""
    module = origin.text or "the model"
    return UnsupportedOpError(
        f"{name} in {module} {what}",
        at=origin.location or None,
        remedy=remedy,
    )
