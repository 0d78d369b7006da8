"""Training beside the network itself: sums of gradients over micro-batches, and updates of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from abele.graph import Tensor
from abele.numerics import f32
from abele.parallel.network import BlockBuilder, NetworkOp, Value
from abele.parallel.optimisers import Optimiser
from abele.parallel.registry import Array, OpRule, Types, require, rule
from abele.poplibs import popops

if TYPE_CHECKING:
    from abele.parallel.lowering import Lowering


def accumulate(net: BlockBuilder, total: Value, gradient: Value, scale: float) -> Value:
    """``total`` plus ``scale`` times ``gradient``."""
    return net.emit_like("accumulate", [total, gradient], total, scale=scale)


def update(net: BlockBuilder, parameter: Value, gradient: Value, optimiser: Optimiser, group: int) -> Value:
    """``parameter`` after one step of an optimiser, whose state is that of its ``group``."""
    return net.emit_like("update", [parameter, gradient], parameter, group=group, optimiser=optimiser)


@rule("accumulate")
class AccumulateRule(OpRule):
    """A sum over micro-batches, in f32, that grows in place."""

    operands = 2
    attributes: ClassVar = {"scale": (float, int)}
    folds = False
    repeats = False

    def types(self, op: NetworkOp) -> Types:
        """The sum's."""
        total, gradient = op.inputs
        require(total.dtype == f32 and total.shape == gradient.shape, f"{total} is no f32 sum of {gradient}")
        return [total.type]

    def evaluate(self, op: NetworkOp, total: Array, gradient: Array) -> Array:
        """The sum in NumPy."""
        return np.asarray(total + op.attrs["scale"] * gradient)

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """One scaled addition in place."""
        total, gradient = to[op.inputs[0]], to[op.inputs[1]]
        popops.scaled_add_to(to.graph, total, gradient, op.attrs["scale"], to.prog)
        return total


@rule("update")
class Update(OpRule):
    """A parameter after one step of an optimiser; it changes in place, as does what the optimiser remembers."""

    operands = 2
    attributes: ClassVar = {"optimiser": Optimiser, "group": int}
    folds = False
    repeats = False
    depends_on_operands_alone = False

    def types(self, op: NetworkOp) -> Types:
        """The parameter's."""
        parameter, gradient = op.inputs
        require(parameter.shape == gradient.shape, f"{gradient} is no gradient of {parameter}")
        return [parameter.type]

    def evaluate(self, op: NetworkOp, parameter: Array, gradient: Array) -> Array:
        """The first step of the optimiser, when it remembers nothing yet."""
        return np.asarray(op.attrs["optimiser"].first_step(parameter, gradient))

    def lower(self, to: Lowering, op: NetworkOp) -> Tensor:
        """The fused update of the group that the program has for the optimiser."""
        parameter, gradient = to[op.inputs[0]], to[op.inputs[1]]
        to.updates[op.attrs["group"]].update(parameter, gradient, to.prog)
        return parameter
