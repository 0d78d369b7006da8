"""Calls of functions on the host in the middle of a network: the device waits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from abele.arrays import Array
from abele.errors import NetworkError
from abele.graph import HostCall, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.value import Shape
from abele.network.registry import Gradients, Stateful, Types, no_derivative, rule
from abele.numerics import ElementType

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering

HostBody = Callable[..., Any]
"""Takes an array for each operand; gives an array, or a tuple of them."""

HOST_BODIES: dict[str, HostBody] = {}
"""Functions that networks call, by name."""


_CALL = "#call"
"""Between a function's name and the number of a call of it."""


def body_of_host_function(name: str) -> HostBody | None:
    """The function behind a host function of a graph; None where no network's call declared it."""
    start, mark, _ = name.rpartition(_CALL)
    return HOST_BODIES.get(start.rpartition("/")[2]) if mark else None


def host_call(
    net: BlockBuilder, name: str, operands: Sequence[Value], results: Sequence[tuple[Shape, ElementType]]
) -> tuple[Value, ...]:
    """Results of a function of :data:`HOST_BODIES`.

    Args:
        net: Network or block to extend.
        name: The function's name.
        operands: Its arguments.
        results: Shape and element type of each array that it gives.
    """
    return net.emit_many("host_call", operands, list(results), function=name)


@rule("host_call")
class HostCallRule(Stateful):
    """A function on the host. Two calls are never taken for one: the function may count them."""

    operands = (0, None)
    attributes: ClassVar = {"function": str}

    def types(self, op: NetworkOp) -> Types:
        """Types that it was given."""
        return [v.type for v in op.outputs]

    def evaluate(self, op: NetworkOp, *args: Array) -> tuple[Array, ...]:
        """A call here and now."""
        name = op.attrs["function"]
        if name not in HOST_BODIES:
            raise NetworkError(f"no host function {name!r} is registered", at=str(op.debug))
        made = HOST_BODIES[name](*args)
        return made if isinstance(made, tuple) else (made,)

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """Copies to the host, and back; every call declares a function of its own."""
        name = f"{op.attrs['function']}{_CALL}{len(to.graph.host_functions)}"
        takes, gives = ([(v.dtype, v.shape) for v in values] for values in (op.inputs, op.outputs))
        function = to.graph.host_function(name, takes, gives)
        made = tuple(to.graph.map_linear(to.graph.variable(v.dtype, v.shape, name="from_host")) for v in op.outputs)
        to.prog.add(HostCall(function, tuple(to[v] for v in op.inputs), made))
        return made

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradients: the function's meaning is not known."""
        raise no_derivative(op, f"the host function {op.attrs['function']!r}", "detach() its result")
