"""Identities with an effect beside their value: printing, and values that are kept as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, ClassVar

from abele.arrays import Array
from abele.graph import PrintTensor, PrintTensorFmt, Tensor
from abele.network.ir import BlockBuilder, NetworkOp, Value
from abele.network.registry import Gradients, OpRule, Types, only, rule

if TYPE_CHECKING:
    from abele.distribution.lowering import Lowering


def print_value(
    net: BlockBuilder, value: Value, title: str, *, gradient: bool, layout: PrintTensorFmt | None = None
) -> Value:
    """``value``, which the host prints whenever it was computed.

    Args:
        net: Network or block to extend.
        value: Value to print.
        title: Before the elements.
        gradient: True to print its gradient as well.
        layout: Format of numbers.
    """
    form = asdict(layout or PrintTensorFmt())
    return net.emit_like("print", [value], value, title=title, gradient=gradient, **form)


def keep(net: BlockBuilder, value: Value) -> Value:
    """``value`` as it is: no pass looks through it, and it is not computed again where others are."""
    return net.emit_like("keep", [value], value)


class Identity(OpRule):
    """A kind that gives its operand."""

    folds = False
    depends_on_operands_alone = False

    def types(self, op: NetworkOp) -> Types:
        """Type of the operand."""
        return [op.inputs[0].type]

    def evaluate(self, op: NetworkOp, value: Array) -> Array:
        """The operand."""
        return value

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The operand's tensor."""
        return to[op.inputs[0]]

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient."""
        return [only(grads)]


@rule("keep")
class KeptValue(Identity):
    """A value that is kept as it is."""


@rule("print")
class PrintValue(Identity):
    """A value that is printed."""

    attributes: ClassVar = {
        "title": str,
        "gradient": bool,
        **{name: type(value) for name, value in asdict(PrintTensorFmt()).items()},
    }
    repeats = False

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """A step that prints."""
        value = to[op.inputs[0]]
        form = PrintTensorFmt(**{name: op.attrs[name] for name in asdict(PrintTensorFmt())})
        to.prog.add(PrintTensor(value, op.attrs["title"], form))
        return value

    def backward(self, net: BlockBuilder, op: NetworkOp, grads: Gradients, wanted: Sequence[bool]) -> Gradients:
        """The gradient, printed if that was asked for."""
        gradient = only(grads)
        if not op.attrs["gradient"]:
            return [gradient]
        attrs = {**op.attrs, "title": f"Gradient___{op.attrs['title'] or op.debug.path}", "gradient": False}
        return [net.emit_like("print", [gradient], gradient, **attrs)]
