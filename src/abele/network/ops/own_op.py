"""Ops that users write: a name in a table, with the function that builds the op's part of graph and program."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from abele.arrays import Array
from abele.errors import NetworkError, UnsupportedOpError, nearest
from abele.graph import Graph, Steps, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.ir.value import Shape
from abele.network.registry import Gradients, OpRule, Types, no_derivative, rule
from abele.numerics import ElementType

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


@dataclass(frozen=True)
class OwnLowering:
    """Context in which a user's function builds its op.

    Attributes:
        graph: Graph of its variables, vertices and compute sets.
        prog: The sequence to append steps to.
        name: The op's name in this place of the model.
        results: Shape and element type of each result that is wanted.
    """

    graph: Graph
    prog: Steps
    name: str
    results: tuple[tuple[Shape, ElementType], ...]


OwnTypes = Sequence[tuple[Shape, ElementType]]
"""Shapes and element types of operands or results."""


@dataclass(frozen=True)
class OwnOp:
    """An op that a user wrote.

    Attributes:
        name: Under which it is found.
        lower: Takes an :class:`OwnLowering`, a tensor for each operand and the attributes as keywords; gives the tensor
            of its result, or a tuple of them.
        evaluate: Its meaning in NumPy on lists of arrays, for those who ask for it; None where nobody wrote it down.
        types: Shape and element type of its results, of those of its operands and the attributes; None where front
            ends know them from elsewhere.
        gradient: Takes the builder of a backward pass, operands, results, gradients of the results and the attributes;
            gives a gradient for each operand. None where front ends have it, or nobody wrote one.
    """

    name: str
    lower: Callable[..., Tensor | Sequence[Tensor]]
    evaluate: Callable[[Sequence[Array], dict[str, Any]], Sequence[Array]] | None = field(default=None)
    types: Callable[[OwnTypes, dict[str, Any]], OwnTypes] | None = field(default=None)
    gradient: Callable[..., Sequence[Value]] | None = field(default=None)


OWN_OPS: dict[str, OwnOp] = {}
"""Ops that users wrote, by name."""


def key_of(name: str, domain: str, version: int) -> str:
    """Name of an op in the table: its domain, its own name, and the domain's version."""
    return f"{domain}:{name}:{version}"


def own_op(
    net: BlockBuilder,
    name: str,
    operands: Sequence[Value],
    results: Sequence[tuple[Shape, ElementType]],
    attributes: dict[str, Any],
) -> tuple[Value, ...]:
    """The results of an op of :data:`OWN_OPS`.

    Args:
        net: Network or block to extend.
        name: The op's name.
        operands: Values that it reads.
        results: Shape and element type of each result.
        attributes: Numbers, texts and lists of them, which its function takes as keywords.
    """
    written = json.dumps(attributes, sort_keys=True)
    return net.emit_many("own_op", operands, list(results), function=name, settings=written)


@rule("own_op")
class OwnOpRule(OpRule):
    """An op whose lowering is a function of the user's."""

    operands = (0, None)
    attributes: ClassVar = {"function": str, "settings": str}
    folds = False

    def types(self, op: NetworkOp) -> Types:
        """Those that it was given: only its author knows better."""
        _found(op)
        return [v.type for v in op.outputs]

    def evaluate(self, op: NetworkOp, *args: Array) -> tuple[Array, ...]:
        """Results by the author's definition of the op."""
        own = _found(op)
        if own.evaluate is None:
            raise UnsupportedOpError(
                f"{own.name} has no meaning outside of the device", at=str(op.debug), remedy="give it a host function"
            )
        return tuple(own.evaluate(args, json.loads(op.attrs["settings"])))

    def lower(self, to: Lowering, op: NetworkOp) -> tuple[Tensor, ...]:
        """Tensors that the user's function builds."""
        own, wanted = _found(op), tuple(v.type for v in op.outputs)
        call = OwnLowering(to.graph, to.prog, op.debug.name or own.name, wanted)
        made = own.lower(call, *(to[v] for v in op.inputs), **json.loads(op.attrs["settings"]))
        results = (made,) if isinstance(made, Tensor) else tuple(made) if isinstance(made, (tuple, list)) else ()
        if len(results) != len(wanted) or not all(isinstance(t, Tensor) for t in results):
            raise NetworkError(
                f"the function of {own.name} gave {made!r}",
                at=str(op.debug),
                remedy=f"give a tensor for each of its {len(wanted)} results",
            )
        for number, (tensor, (shape, dtype)) in enumerate(zip(results, wanted, strict=True)):
            if (tensor.shape, tensor.dtype) != (shape, dtype):
                raise NetworkError(
                    f"result {number} of {own.name} is {tensor.dtype}{list(tensor.shape)}",
                    at=str(op.debug),
                    because=f"its shapes say {dtype}{list(shape)}",
                )
        return results

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """No gradients of its own: front ends put an op around it."""
        raise no_derivative(op, op.attrs["function"], "give it a gradient function, or detach() its result")


def _found(op: NetworkOp) -> OwnOp:
    name = op.attrs["function"]
    if name not in OWN_OPS:
        close = nearest(name, OWN_OPS)
        raise NetworkError(
            f"no op {name!r} is registered", at=str(op.debug), remedy=f"{close!r} is" if close else "register it"
        )
    return OWN_OPS[name]
