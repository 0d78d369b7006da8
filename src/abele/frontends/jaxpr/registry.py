"""The table of JAX primitives: for each, a function that appends its meaning to the network.

A handler takes a :class:`PrimitiveCall`, the operands of the equation as values, and its parameters by name::

    @primitive("neg")
    def negate(call: PrimitiveCall, value: Value) -> Value:
        return call.map(-x, value)

It gives a value, or a tuple of them where the equation has several results. Parameters that it does not name, such as
shardings, are not passed to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from abele.errors import UnsupportedOpError
from abele.frontends.jaxpr.types import element_type, type_of
from abele.graph.debug import DebugRecord
from abele.kernels.nest.ir import Const, Expr
from abele.network import BlockBuilder, Value
from abele.network.ir import Shape
from abele.network.ops import build
from abele.numerics import ElementType, bool_, i32

if TYPE_CHECKING:
    from abele.frontends.jaxpr.reader import JaxprReader

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}
"""Handlers of primitives by name."""

_NAMED: dict[Handler, frozenset[str] | None] = {}
"""Parameters that each handler takes; None for all."""


def primitive(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for primitives by their names."""

    def register(handler: Handler) -> Handler:
        parameters = inspect.signature(handler).parameters.values()
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        _NAMED[handler] = None if takes_all else named
        for name in names:
            assert name not in HANDLERS, f"{name} is registered twice"
            HANDLERS[name] = handler
        return handler

    return register


@dataclass(frozen=True)
class PrimitiveCall:
    """One equation that is being read.

    Attributes:
        reader: Reader of the block that the equation is in; it reads nested jaxprs.
        net: The block to append to.
        eqn: The equation.
    """

    reader: JaxprReader
    net: BlockBuilder
    eqn: Any

    @property
    def name(self) -> str:
        """Name of the primitive."""
        return str(self.eqn.primitive.name)

    @property
    def params(self) -> Mapping[str, Any]:
        """Every parameter of the equation."""
        return {name: _plain(parameter) for name, parameter in self.eqn.params.items()}

    @property
    def shape(self) -> Shape:
        """Shape of the result; of the first one if there are several."""
        return type_of(self.eqn.outvars[0].aval)[0]

    @property
    def dtype(self) -> ElementType:
        """Element type of the result; of the first one if there are several."""
        return element_type(self.eqn.outvars[0].aval.dtype)

    @property
    def results(self) -> list[tuple[Shape, ElementType]]:
        """Shape and element type of every result."""
        return [type_of(v.aval) for v in self.eqn.outvars]

    @property
    def avals(self) -> list[Any]:
        """Abstract values of the operands."""
        return [v.aval for v in self.eqn.invars]

    def maker(self, number: int) -> Any:
        """The equation of the same jaxpr that made an operand; None for what enters, or is a literal."""
        var = self.eqn.invars[number]
        return None if hasattr(var, "val") else self.reader.made_by.get(var)

    def traced(self, function: Callable[..., Any], *operands: Value) -> tuple[Value, ...]:
        """Results of a function that is written in JAX, traced on operands and read in the place of the equation."""
        specs = [jax.ShapeDtypeStruct(v.shape, v.dtype.np) for v in operands]
        return tuple(self.reader.closed(jax.make_jaxpr(function)(*specs), operands))

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
            dtype: Type of the result; by default that of the equation.
            masks: Numbers of the operands that are conditions: they stay bools.
        """
        common = common or self.dtype
        whole = i32 if common == bool_ else common
        return build.map_of(
            self.net,
            expression,
            operands,
            common,
            dtype or self.dtype,
            number=lambda value: _number(value, common),
            whole=whole,
            masks=masks,
        )

    def refuse(self, what: str, remedy: str | None = None, because: str | None = None) -> UnsupportedOpError:
        """The error that the equation has no lowering as it is."""
        return unsupported(self.name, self.net.origin, what, remedy, because)


def _number(value: float, dtype: ElementType) -> Const:
    if dtype.is_float:
        return Const(float(value))
    return Const(bool(value), bool_) if dtype == bool_ else Const(int(value), dtype)


def call_handler(call: PrimitiveCall, handler: Handler, operands: Sequence[Any]) -> Any:
    """Results of a handler on operands and on the parameters that it names."""
    named = _NAMED[handler]
    return handler(call, *operands, **{n: v for n, v in call.params.items() if named is None or n in named})


def _plain(parameter: Any) -> Any:
    """A parameter with numbers of Python for those of NumPy, which users' shapes may have."""
    if isinstance(parameter, np.integer):
        return int(parameter)
    if isinstance(parameter, tuple):
        items = map(_plain, parameter)
        return type(parameter)(*items) if hasattr(parameter, "_fields") else tuple(items)
    return parameter


def unsupported(
    name: str, origin: DebugRecord, what: str, remedy: str | None = None, because: str | None = None
) -> UnsupportedOpError:
    """The error for a primitive that cannot be lowered, with its place in the program."""
    return UnsupportedOpError(
        f"{name} in {origin.text or 'the function'} {what}", at=origin.location or None, because=because, remedy=remedy
    )


def all_missing(missing: Sequence[UnsupportedOpError]) -> UnsupportedOpError:
    """One error for all equations of a function that have no lowering."""
    lines = dict.fromkeys(f"{e.message}, {e.at}" if e.at else e.message for e in missing)
    if len(lines) == 1:
        return missing[0]
    return UnsupportedOpError(
        f"{len(lines)} equations of the function have no lowering",
        at=missing[0].at,
        because="\n".join(lines),
        remedy="express them with primitives that have one (docs/primitives.md)",
    )
