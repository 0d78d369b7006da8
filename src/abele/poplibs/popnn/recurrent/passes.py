"""The passes of a recurrent layer over a sequence, the same for every kind of cell: forward, backward, update."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph import Copy, Tensor
from abele.graph.program import Sequence
from abele.poplibs import poplin, popops
from abele.poplibs.popnn.recurrent.cell import Cell, Setting, Weights
from abele.poplibs.popnn.recurrent.host_passes import (
    BackwardParts,
    ForwardParts,
    HostCell,
    host_backward,
    host_forward,
)
from abele.poplibs.popnn.recurrent.layout import new_input_sequence
from abele.poplibs.popnn.recurrent.loop import SequenceLoop, run_loop
from abele.poplibs.popops.expr import Op, _1, _2, _3
from abele.poplibs.poputil.layout import clone


@dataclass(frozen=True)
class Forward:
    """Results of a forward pass.

    Attributes:
        output: Of all steps, [steps, batch, units], or of the last.
        states: States after the last step, [batch, units] each, the output first.
        kept: Values that the backward pass reads, [steps, slots, batch, units]; None where there is no such pass.
    """

    output: Tensor
    states: list[Tensor]
    kept: Tensor | None


@dataclass(frozen=True)
class Backward:
    """Results of a backward pass.

    Attributes:
        input: Gradient of the input, in its shape, or None where it was not asked for.
        states: Gradients of the states before the first step.
        deltas: Gradients of the gates, [steps, gates, batch, units], where they were asked for.
        weights: Gradients of the weights, where they were asked for.
        scores: Gradient of the attention, [steps, batch], where there is any.
    """

    input: Tensor | None
    states: list[Tensor]
    deltas: Tensor | None
    weights: Weights | None
    scores: Tensor | None


def forward_pass(
    setting: Setting,
    cell: Cell,
    states: list[Tensor],
    input: Tensor,
    weights: Weights,
    prog: Sequence,
    *,
    slots: int,
    keep: bool,
    given: Tensor | None = None,
    kept_slots: tuple[int, ...] | None = None,
    scores: Tensor | None = None,
    host: HostCell | None = None,
) -> Forward:
    """Run ``cell`` over ``input``, [steps, batch, input size], or over ``given`` products of it.

    Args:
        setting: The call.
        cell: The cell.
        states: States before the first step; not overwritten.
        input: The sequence; unused where ``given`` is there.
        weights: Weights.
        prog: Program that the pass is appended to.
        slots: Number of values that are kept of a step: the first slots of the cell's.
        keep: True if it is kept for all steps.
        given: Products of the input and its weights, [steps, gates, batch, units], or None.
        kept_slots: The slots that are kept; all by default.
        scores: Attention of every step and sample, [steps, batch], for cells that take it.
        host: Makes the cell for hosts, which then run the pass in a form of their own.
    """
    graph, params, units = setting.graph, setting.params, setting.units
    outer, prog = prog, Sequence()
    outer.add(prog)
    cell.arrange(weights, prog, forward=True)
    # The loop overwrites its states, and the caller's initial ones are not to change.
    now = [units.state(f"{setting.name}/state{n}") for n in range(len(states))]
    for old, new in zip(states, now, strict=True):
        prog.add(Copy(old, new))
    # One step writes all its slots; only `few` of them are kept, where the caller says which.
    step = units.stack(slots, f"{setting.name}/step")
    few = step if kept_slots is None else units.stack(len(kept_slots), f"{setting.name}/few")
    kept = units.stacks(params.time_steps, few.shape[0], f"{setting.name}/kept") if keep else None
    whole = units.sequence(params.time_steps, f"{setting.name}/output") if params.output_full_sequence else None
    products = None if given is None else units.stack(given.shape[1], f"{setting.name}/products")

    def body(loop: SequenceLoop) -> None:
        if given is None:
            loop.slice(input, cell.columns.of("input"), "slice_input")
        else:
            assert products is not None
            loop.slice(given, products, "slice_products")
        _take_scores(loop, cell, scores)
        valid, before = setting.hold(loop, now)
        cell.forward(loop, now, step, products)
        if valid is not None:
            # Past the end of a sequence the output is 0, and the states stay as they were.
            output = units.state("masked_output")
            loop.map([Op("select", _1, 0.0, _2)], [now[0], valid], [output], "mask_output")
            setting.keep(loop, valid, before, now)
        else:
            output = now[0]
        if whole is not None:
            loop.update(whole, output, "update_output")
        if kept is not None:
            if kept_slots is not None:
                loop.copy([step[n] for n in kept_slots], [few[n] for n in range(few.shape[0])], "few")
            loop.update(kept, few, "keep")

    run_loop(graph, prog, params.time_steps, body)
    # The host has no form for sequences of different lengths, attention or partial slots.
    if host is not None and params.lengths is None and scores is None and kept_slots is None:
        parts = ForwardParts(states, input, weights, given, slots=slots, after=now, output=whole, kept=kept)
        prog.host_body = host_forward(setting, host, parts)
    return Forward(now[0] if whole is None else whole, now, kept)


def backward_pass(
    setting: Setting,
    cell: Cell,
    weights: Weights,
    kept: Tensor,
    output_gradient: Tensor,
    state_gradients: list[Tensor | None],
    prog: Sequence,
    *,
    gates: int,
    input: Tensor | None,
    has_input: bool,
    keep_deltas: bool,
    scores: Tensor | None = None,
    host: HostCell | None = None,
) -> Backward:
    """Gradients of a forward pass.

    Args:
        setting: The call.
        cell: A cell of the kind that ran forward.
        weights: Weights.
        kept: Values that the forward pass kept.
        output_gradient: Gradient of the output: of all steps, or of the last where only that was returned.
        state_gradients: Gradients of the states after the last step; None is 0.
        prog: Program that the pass is appended to.
        gates: Gates.
        input: The sequence, where gradients of the weights are wanted: in the same loop, or in one after it.
        has_input: True if the input is multiplied by weights.
        keep_deltas: True if gradients of the gates are kept for all steps.
        scores: Attention of every step and sample, [steps, batch], for cells that take it.
        host: Makes the cell for hosts, which then run the pass in a form of their own.
    """
    graph, params, units = setting.graph, setting.params, setting.units
    outer, prog = prog, Sequence()
    outer.add(prog)
    cell.arrange(weights, prog, forward=False)
    now = _start(setting, state_gradients, output_gradient, prog)
    step, deltas = units.stack(kept.shape[1], "step"), units.stack(gates, "deltas")
    # Gradients of the weights come in this loop, or from gates kept for a loop of their own.
    accumulated, later = (input, None) if params.updates_in_backward_loop else (None, input)
    all_deltas = units.stacks(params.time_steps, gates, "all_deltas") if keep_deltas or later is not None else None
    sequence = None
    if has_input and params.calc_input_gradients:
        sequence = new_input_sequence(graph, params, "input_gradient")
    score_gradients = None if scores is None else clone(graph, scores, "score_gradients")
    one_output = units.state("output_gradient") if params.output_full_sequence else None
    # Products with the input of several steps in one: the sum over steps is then longer and the units better filled.
    together = setting.options.steps_per_update if accumulated is not None else 1
    # The body is built once for each step of an unrolled turn, and each is told its number.
    turns = iter(range(together))

    def body(loop: SequenceLoop) -> None:
        loop.slice(kept, step, "slice_kept")
        valid, before = setting.hold(loop, now)
        if one_output is not None:
            _add_output_gradient(loop, output_gradient, one_output, now[0], valid)
        # No gradient flows into steps past the end of a sequence.
        if valid is not None:
            for gradient in now:
                loop.map([Op("select", _1, 0.0, _2)], [gradient, valid], [gradient], "mask_gradient")
        _take_scores(loop, cell, scores)
        of_input = cell.backward(loop, step, now, deltas)
        setting.keep(loop, valid, before, now)
        # The product lies where the cell made it; a copy brings it to the layout of the sequence.
        if sequence is not None and of_input is not None:
            one = clone(graph, sequence[0], "input_gradient")
            loop.prog.add(Copy(of_input, one))
            loop.update(sequence, one, "update_input_gradient")
        if score_gradients is not None:
            assert cell.score_gradient is not None
            loop.update(score_gradients, cell.score_gradient, "update_score_gradient")
        if all_deltas is not None:
            loop.update(all_deltas, deltas, "keep_deltas")
        if accumulated is not None:
            if has_input:
                loop.slice(accumulated, cell.columns.of("input"), "slice_input")
            cell.accumulate(loop, step, deltas, next(turns), together)

    run_loop(graph, prog, params.time_steps, body, backwards=True, unroll=together)
    gradients = None if accumulated is None else cell.gradients(prog)
    if later is not None and all_deltas is not None:
        gradients = update_pass(setting, cell, kept, all_deltas, later, prog, has_input=has_input)
    made = Backward(sequence, now, all_deltas if keep_deltas else None, gradients, score_gradients)
    # As forwards: the host has no form for lengths and attention.
    if host is not None and params.lengths is None and scores is None:
        parts = BackwardParts(
            weights,
            kept,
            output_gradient,
            state_gradients,
            input=input,
            after=now,
            input_gradient=sequence,
            deltas=made.deltas,
            gradients=made.weights,
        )
        prog.host_body = host_backward(setting, host, parts)
    return made


def update_pass(
    setting: Setting, cell: Cell, kept: Tensor, deltas: Tensor, input: Tensor, prog: Sequence, *, has_input: bool
) -> Weights:
    """Gradients of the weights, from the kept values of forward and backward pass."""
    step = setting.units.stack(kept.shape[1], "step")
    gates = setting.units.stack(deltas.shape[1], "deltas")
    together = setting.options.steps_per_update
    turns = iter(range(together))

    def body(loop: SequenceLoop) -> None:
        loop.slice(kept, step, "slice_kept")
        loop.slice(deltas, gates, "slice_deltas")
        if has_input:
            loop.slice(input, cell.columns.of("input"), "slice_input")
        cell.put_deltas(loop, step, gates)
        cell.accumulate(loop, step, gates, next(turns), together)

    run_loop(setting.graph, prog, setting.params.time_steps, body, backwards=True, unroll=together)
    return cell.gradients(prog)


def _take_scores(loop: SequenceLoop, cell: Cell, scores: Tensor | None) -> None:
    if scores is not None:
        cell.score = clone(loop.graph, scores[0], "score")
        loop.slice(scores, cell.score, "slice_scores")


def _start(setting: Setting, gradients: list[Tensor | None], output_gradient: Tensor, prog: Sequence) -> list[Tensor]:
    now = [setting.units.state(f"{setting.name}/gradient{n}") for n in range(len(gradients))]
    for given, gradient in zip(gradients, now, strict=True):
        if given is None:
            popops.zero(setting.graph, gradient, prog, name="zero_gradient")
        else:
            prog.add(Copy(given, gradient))
    if not setting.params.output_full_sequence:
        popops.add_in_place(setting.graph, now[0], output_gradient, prog, name="add_output_gradient")
    return now


def _add_output_gradient(
    loop: SequenceLoop, sequence: Tensor, step: Tensor, total: Tensor, valid: Tensor | None
) -> None:
    loop.slice(sequence, step, "slice_output_gradient")
    if valid is None:
        loop.map([_1 + _2], [total, step], [total], "add_output_gradient")
    else:
        loop.map([_1 + Op("select", _2, 0.0, _3)], [total, step, valid], [total], "add_output_gradient")


def products_of_input(setting: Setting, input: Tensor, weights: Tensor, prog: Sequence) -> Tensor:
    """Products of all steps of ``input`` and its weights, in one: [steps, gates, batch, units]."""
    params, types = setting.params, setting.options.types
    gates, size, units = weights.shape
    flat = weights.transpose((1, 0, 2)).reshape((size, gates * units))
    rows = input.reshape((params.time_steps * params.batch, size))
    made = poplin.matmul(
        setting.graph,
        rows,
        flat,
        prog,
        partials_type=types.partials,
        available_memory_proportion=types.proportion,
        name="input_products",
    )
    products = setting.units.stacks(params.time_steps, gates, "input_products")
    shaped = made.reshape((params.time_steps, params.batch, gates, units)).transpose((0, 2, 1, 3))
    prog.add(Copy(shaped, products))
    return products
