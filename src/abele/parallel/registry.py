"""The table of op rules: for each kind, its meaning in NumPy, its lowering to libraries and its derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import UnsupportedOpError, nearest
from abele.parallel.network import Network, Op, Value

if TYPE_CHECKING:
    from abele.graph import Tensor
    from abele.parallel.lowering import Lowering

Array = npt.NDArray[Any]
Gradients = Sequence[Value | None]


class OpRule:
    """What the ops of one kind mean. Subclasses are registered with :func:`rule` and have no state."""

    def evaluate(self, op: Op, *args: Any, **kwargs: Any) -> Any:
        """The outputs, from the inputs as NumPy arrays: the definition of the kind."""
        raise NotImplementedError

    def lower(self, to: Lowering, op: Op) -> Tensor | tuple[Tensor, ...]:
        """Append the library calls that compute ``op``; returns its outputs."""
        raise NotImplementedError

    def layout(self, to: Lowering, op: Op, operand: int) -> Tensor | None:
        """A new variable for input ``operand`` in the layout that the op wants, or None when it does not care."""
        return None

    def backward(self, net: Network, op: Op, grad: Value, wanted: Sequence[bool]) -> Gradients:
        """Append ops for the gradients of the inputs, given that of the output.

        Args:
            net: The network to extend.
            op: The op to differentiate.
            grad: Gradient of the loss by the first output.
            wanted: For each input, whether its gradient is needed.

        Returns:
            One value per input; None where the input has no gradient or it is not wanted.
        """
        raise UnsupportedOpError(
            f"{op.kind} has no derivative",
            at=str(op.debug),
            remedy="detach() its result, or freeze the parameters that it depends on",
        )


RULES: dict[str, OpRule] = {}


def rule(*kinds: str) -> Callable[[type[OpRule]], type[OpRule]]:
    """Register a rule class for the given kinds of op."""

    def register(cls: type[OpRule]) -> type[OpRule]:
        for kind in kinds:
            assert kind not in RULES, f"{kind} is registered twice"
            RULES[kind] = cls()
        return cls

    return register


def rule_of(op: Op) -> OpRule:
    """The rule of an op's kind.

    Raises:
        UnsupportedOpError: There is none.
    """
    if op.kind not in RULES:
        close = nearest(op.kind, RULES)
        raise UnsupportedOpError(
            f"no rule for an op of kind {op.kind!r}", at=str(op.debug), remedy=f"{close!r} exists" if close else None
        )
    return RULES[op.kind]


def evaluate(net: Network, feeds: dict[Value, npt.ArrayLike], *, precise: bool = True) -> dict[Value, Array]:
    """Every value of a network in NumPy: the slow, plain meaning that lowerings are held against.

    Args:
        net: The network.
        feeds: Inputs, parameters, buffers and the random state.
        precise: Compute floating-point values in 64 bits; otherwise in the type of each value.

    Returns:
        The array of every value.
    """
    values: dict[Value, Array] = {}

    def put(value: Value, array: npt.ArrayLike) -> None:
        wide = precise and value.dtype.is_float
        values[value] = np.asarray(array).astype(np.float64 if wide else value.dtype.np)
        assert values[value].shape == value.shape, f"{value} got shape {values[value].shape}"

    for value, array in (*net.constants.items(), *feeds.items()):
        put(value, array)
    for op in net.ops:
        results = rule_of(op).evaluate(op, *(values[v] for v in op.inputs))
        for value, array in zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=True):
            put(value, array)
    return values
