"""The passes of a recurrent layer as a host runs them.

On tiles, a step multiplies its input and its state at once, and adds its share to the gradients of the weights: each
tile holds its part of all weights, and no step has anything to wait for. A host would read all weights from memory at
every step, for products of a few rows each. So the products that do not depend on the steps before are made for all
steps at once: those of the input before the forward loop, and the gradients of input and weights after the backward
loop, from the gradients of the gates. What is left in the loops is one product of the state, and what is done to its
elements; weights, one after the other in the order of its loops, are copied once before the first step.

Sums are made in another order than on tiles, so results agree within rounding.

Example: for 100 steps of 8 samples, one product of 800 rows before the loop takes the place of 100 products of 8 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from abele.graph import Copy, Tensor
from abele.graph.program import Sequence
from abele.numerics import u32
from abele.poplibs.popnn.recurrent.cell import Columns, HostedCell, Setting, Weights
from abele.poplibs.popnn.recurrent.host_loop import (
    HostProduct,
    HostSteps,
    HostUnits,
    NotSteppedError,
    RowOrder,
    clone_in_rows,
    host_map,
    host_product,
    in_rows,
)
from abele.poplibs.popops.expr import Const, _1, _2


@dataclass
class HostSetting(Setting):
    """Setting that the cells of a call share on the host."""

    units: HostUnits

    def product(self, columns: Columns, names: tuple[str, ...], gates: int, name: str) -> HostProduct:
        """A product of the columns ``names``."""
        return HostProduct(
            self.graph,
            units=self.units,
            operand=columns.of(*names),
            sizes=tuple(columns.sizes[n] for n in names),
            gates=gates,
            types=self.options.types,
            name=f"{self.name}/{name}",
        )

    @staticmethod
    def of(setting: Setting) -> HostSetting:
        """The host's form of a setting."""
        params = setting.params
        units = HostUnits(setting.graph, params.dtype, params.batch, params.hidden)
        return HostSetting(setting.graph, params, setting.options, units, setting.name)

    def steps(self, *, backwards: bool) -> HostSteps:
        """A loop over all steps."""
        # Kernels know no counter; a cell's loop has one.
        index = self.graph.variable(u32, (1,), name="step/host", map=0)
        return HostSteps(self.graph, index, Sequence(), Sequence(), steps=self.params.time_steps, backwards=backwards)


HostCell = Callable[[Setting], HostedCell]
"""Makes a cell that is given the products of its input."""


@dataclass(frozen=True)
class ForwardParts:
    """Tensors of a forward pass, as its steps on tiles have them.

    Attributes:
        before: States before the first step.
        input: The sequence.
        weights: Weights.
        given: Products of the input, [steps, gates, batch, units], or None.
        slots: Values that a step leaves.
        after: States after the last step.
        output: Tensor for the outputs of all steps, or None.
        kept: Tensor for the kept values of all steps, or None.
    """

    before: list[Tensor]
    input: Tensor
    weights: Weights
    given: Tensor | None
    slots: int
    after: list[Tensor]
    output: Tensor | None
    kept: Tensor | None


def host_forward(setting: Setting, make: HostCell, parts: ForwardParts) -> Sequence | None:
    """Program that a host runs in place of a forward pass; None where its steps cannot be read in place."""
    host = HostSetting.of(setting)
    units, prog = host.units, Sequence()
    cell = make(host)
    biases = in_rows(parts.weights.biases, prog, "biases")
    cell.arrange(Weights(None, parts.weights.output, biases), prog, forward=True)
    given = parts.given
    if given is None:
        assert parts.weights.input is not None
        gates = parts.weights.input.shape[0]
        given = units.stacks(setting.params.time_steps, gates, "input_products")
        # All gates side by side, so that they are one product.
        rows = in_rows(parts.input, prog, "input")
        columns = in_rows(parts.weights.input.transpose((1, 0, 2)), prog, "input_weights")
        host_product(prog, "tbi,igu->tbgu", rows, columns, given.transpose((0, 2, 1, 3)), "input_products")
    states = [cell.columns.of("output"), *(units.state(f"state{n}") for n in range(1, len(parts.before)))]
    for old, new in zip(parts.before, states, strict=True):
        prog.add(Copy(old, new))
    loop = host.steps(backwards=False)
    order = None if parts.kept is None else RowOrder.of(parts.kept)
    kept = parts.kept if order is None else order.rows
    try:
        step = units.stack(parts.slots, "step") if kept is None else loop.at(kept)
        cell.forward(loop, states, step, loop.at(given))
        outputs = None if parts.output is None else units.sequence(host.params.time_steps, "output")
        if outputs is not None:
            loop.prog.add(Copy(states[0], loop.at(outputs)))
    except NotSteppedError:
        return None
    prog.add(loop.loop())
    if outputs is not None and parts.output is not None:
        prog.add(Copy(outputs, parts.output))
    for old, new in zip(states, parts.after, strict=True):
        prog.add(Copy(old, new))
    if order is not None:
        prog.add(order.leave)
    return prog


@dataclass(frozen=True)
class BackwardParts:
    """Tensors of a backward pass, as its steps on tiles have them.

    Attributes:
        weights: Weights.
        kept: Values that the forward pass kept.
        output_gradient: Gradient of the outputs of all steps, or of the last.
        before: Gradients of the states after the last step; None is 0.
        input: The sequence.
        after: Gradients of the states before the first step.
        input_gradient: Tensor for the gradient of the input, or None.
        deltas: Tensor for the gradients of the gates of all steps, or None.
        gradients: Tensors for the gradients of the weights, or None.
    """

    weights: Weights
    kept: Tensor
    output_gradient: Tensor
    before: list[Tensor | None]
    input: Tensor | None
    after: list[Tensor]
    input_gradient: Tensor | None
    deltas: Tensor | None
    gradients: Weights | None


def host_backward(setting: Setting, make: HostCell, parts: BackwardParts) -> Sequence | None:
    """Program that a host runs in place of a backward pass; None where its steps cannot be read in place."""
    host = HostSetting.of(setting)
    params, units, prog = host.params, host.units, Sequence()
    cell = make(host)
    cell.arrange(Weights(None, parts.weights.output, parts.weights.biases), prog, forward=False)
    now = _start(units, parts, prog, full=params.output_full_sequence)
    gates = parts.weights.output.shape[0]
    deltas = units.stacks(params.time_steps, gates, "all_deltas")
    loop = host.steps(backwards=True)
    order = RowOrder.of(parts.kept)
    kept = parts.kept if order is None else order.rows
    if order is not None:
        prog.add(order.enter)
    try:
        if params.output_full_sequence:
            # All rows at once: transposed step by step, they would be read a few elements at a time.
            gradients = units.sequence(params.time_steps, "output_gradient")
            prog.add(Copy(parts.output_gradient, gradients))
            loop.map([_1 + _2], [now[0], loop.at(gradients)], [now[0]], "add_output_gradient")
        cell.take_deltas(loop.at(deltas))
        cell.backward(loop, loop.at(kept), now, loop.at(deltas))
    except NotSteppedError:
        return None
    prog.add(loop.loop())
    for gradient, where in zip(now, parts.after, strict=True):
        prog.add(Copy(gradient, where))
    if parts.deltas is not None:
        prog.add(Copy(deltas, parts.deltas))
    if parts.input_gradient is not None:
        assert parts.weights.input is not None
        rows = clone_in_rows(parts.input_gradient, "input_gradient")
        host_product(prog, "tgbu,giu->tbi", deltas, parts.weights.input, rows, "input_gradient")
        prog.add(Copy(rows, parts.input_gradient))
    if parts.gradients is not None:
        host_update(prog, cell, kept, deltas, parts.input, parts.gradients)
    if order is not None:
        prog.add(order.leave)
    return prog


def host_update(
    prog: Sequence, cell: HostedCell, kept: Tensor, deltas: Tensor, input: Tensor | None, gradients: Weights
) -> None:
    """Append the gradients of the weights, from the kept values of all steps.

    Args:
        prog: Program that they are appended to.
        cell: The host's cell.
        kept: Values that the forward pass kept, [steps, slots, batch, units].
        deltas: Gradients of the gates, [steps, gates, batch, units].
        input: The sequence.
        gradients: Tensors that the gradients are written to.
    """
    if gradients.input is not None:
        assert input is not None
        rows = in_rows(input, prog, "input")
        host_product(prog, "tbi,tgbu->giu", rows, deltas, gradients.input, "input_weights_gradient")
    cell.host_gradients(prog, kept, deltas, gradients)


def _start(units: HostUnits, parts: BackwardParts, prog: Sequence, *, full: bool) -> list[Tensor]:
    now = [units.state(f"gradient{n}") for n in range(len(parts.before))]
    for given, gradient in zip(parts.before, now, strict=True):
        if given is None:
            host_map(prog, [Const(0, gradient.dtype)], [], [gradient], "zero_gradient")
        else:
            prog.add(Copy(given, gradient))
    if not full:
        host_map(prog, [_1 + _2], [now[0], parts.output_gradient], [now[0]], "add_output_gradient")
    return now
