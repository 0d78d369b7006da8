"""Long short-term memory: LSTM layers forward, backward and weight update.

Weights hold the gates forget, input, candidate, output, in this order unless ``cell_order`` says otherwise:
input weights [4, input, units], output weights [4, units, units], biases [4, units].
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.cpp_forms import RECURRENT_FORMS
from abele.poplibs.popnn.recurrent.cell import Setting, Weights
from abele.poplibs.popnn.recurrent.layout import Units, new_input_sequence
from abele.poplibs.popnn.recurrent.loop import SequenceLoop, run_loop
from abele.poplibs.popnn.recurrent.lstm_cell import KEPT, WITHOUT_PREVIOUS, LstmCell
from abele.poplibs.popnn.recurrent.params import LstmParams, recurrent_options
from abele.poplibs.popnn.recurrent.passes import backward_pass, forward_pass, products_of_input, update_pass
from abele.poplibs.popnn.recurrent.product import create_product_weights
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases
from abele.poplibs.poputil.options import Options

__all__ = [
    "LstmGradients",
    "LstmParams",
    "LstmResult",
    "LstmState",
    "LstmWeights",
    "create_initial_cell_state",
    "create_initial_output",
    "create_initial_state",
    "create_input",
    "create_weights",
    "create_weights_biases",
    "create_weights_kernel",
    "lstm_bwd",
    "lstm_bwd_with_wu",
    "lstm_fwd",
    "lstm_wu",
]

LstmWeights = Weights
_GATES = 4
_RECOMPUTED = (0, 1, 2, 3, 6)
"""Slots that are kept where the cell state and its non-linearity are recomputed: the gates, the output before."""


@dataclass(frozen=True)
class LstmState:
    """The state of an LSTM, or its gradient: output and cell state, [batch, units] each."""

    output: Tensor
    cell_state: Tensor


@dataclass(frozen=True)
class LstmResult:
    """What a forward pass returns.

    Attributes:
        output: [steps, batch, units], or [batch, units] of the last step.
        cell_state: After the last step, [batch, units].
        state: Output and cell state after the last step.
        intermediates: What the backward pass takes; None for inference and where all is recomputed.
    """

    output: Tensor
    cell_state: Tensor
    state: LstmState
    intermediates: Tensor | None


@dataclass(frozen=True)
class LstmGradients:
    """What a backward pass returns.

    Attributes:
        input: Gradient of the input, or None where the parameters do not ask for it.
        state: Gradients of the initial state.
        weights: Gradients of the weights, from :func:`lstm_bwd_with_wu`.
        intermediates: What :func:`lstm_wu` takes, from :func:`lstm_bwd`.
        kept: What the forward pass kept, recomputed where it did not.
    """

    input: Tensor | None
    state: LstmState
    weights: LstmWeights | None
    intermediates: Tensor | None
    kept: Tensor


def create_input(graph: Graph, params: LstmParams, name: str = "input", *, options: Options = None) -> Tensor:
    """The input, [steps, batch, input size]; each step lies where its product is fed.

    Where the input holds products already, [steps, 4, batch, units].
    """
    recurrent_options(params, options)
    if not params.do_input_weight_calc:
        return _units(graph, params).stacks(params.time_steps, _GATES, name)
    return new_input_sequence(
        graph,
        params.dtype,
        params.time_steps,
        batch=params.batch,
        size=params.input_size,
        hidden=params.hidden,
        name=name,
    )


def create_initial_state(
    graph: Graph, params: LstmParams, name: str = "state", *, options: Options = None
) -> LstmState:
    """The state before the first step; its values are the caller's."""
    recurrent_options(params, options)
    output = create_initial_output(graph, params, f"{name}/output")
    return LstmState(output, create_initial_cell_state(graph, params, f"{name}/cell_state"))


def create_initial_output(graph: Graph, params: LstmParams, name: str = "output", *, options: Options = None) -> Tensor:
    """The output before the first step, [batch, units]; its values are the caller's."""
    recurrent_options(params, options)
    return _units(graph, params).state(name)


def create_initial_cell_state(
    graph: Graph, params: LstmParams, name: str = "cell_state", *, options: Options = None
) -> Tensor:
    """The cell state before the first step, [batch, units]; its values are the caller's."""
    recurrent_options(params, options)
    return _units(graph, params).state(name)


def create_weights(graph: Graph, params: LstmParams, name: str = "weights", options: Options = None) -> LstmWeights:
    """Weights and biases, in the layout of the planned products."""
    kernel = create_weights_kernel(graph, params, name, options)
    return LstmWeights(kernel[0], kernel[1], create_weights_biases(graph, params, f"{name}/biases"))


def create_weights_kernel(
    graph: Graph, params: LstmParams, name: str = "weights", options: Options = None
) -> tuple[Tensor | None, Tensor]:
    """Input weights [4, input, units] (None where the input holds products already), output weights."""
    types = recurrent_options(params, options).types
    sizes = (params.input_size, params.hidden) if params.do_input_weight_calc else (params.hidden,)
    *inputs, output = create_product_weights(graph, _units(graph, params), sizes, _GATES, types, name)
    return (inputs[0] if inputs else None), output


def create_weights_biases(graph: Graph, params: LstmParams, name: str = "biases", *, options: Options = None) -> Tensor:
    """Biases, [4, units]."""
    recurrent_options(params, options)
    return _units(graph, params).biases((_GATES,), params.dtype, name)


def lstm_fwd(
    graph: Graph,
    params: LstmParams,
    state: LstmState,
    input: Tensor,
    weights: LstmWeights,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "lstm_fwd",
) -> LstmResult:
    """Run an LSTM over a sequence.

    Args:
        graph: The graph.
        params: The layer.
        state: The state before the first step; not overwritten.
        input: [steps, batch, input size], or products, [steps, 4, batch, units].
        weights: Weights.
        prog: Where the pass is appended.
        options: PopLibs' options of recurrent layers; with ``inferenceOnly`` nothing is kept for a backward pass.
        name: Name of the pass.

    Raises:
        TensorError: An operand does not have the shape that the parameters say.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    setting = _setting(graph, params, options, name)
    chosen = setting.options
    _check(params, state, input, weights)
    keeps = not chosen.inference_only and chosen.recomputation != "full"
    slots = len(KEPT) if not chosen.inference_only else WITHOUT_PREVIOUS
    with graph.scope(name):
        given = None if params.do_input_weight_calc else input
        if given is None and chosen.pre_calc and weights.input is not None:
            given = products_of_input(setting, input, weights.input, prog)
        cell = LstmCell(setting, has_input=given is None)
        states = [state.output, state.cell_state]
        kept_slots = _RECOMPUTED if chosen.recomputation == "cellAndTanh" else None
        made = forward_pass(
            setting, cell, states, input, weights, prog, slots=slots, keep=keeps, given=given, kept_slots=kept_slots
        )
    return LstmResult(made.output, made.states[1], LstmState(*made.states), made.kept)


def lstm_bwd(
    graph: Graph,
    params: LstmParams,
    state: LstmState,
    intermediates: Tensor | None,
    weights: LstmWeights,
    input: Tensor,
    output_gradient: Tensor,
    prog: Sequence,
    *,
    cell_state_gradient: Tensor | None = None,
    options: Options = None,
    name: str = "lstm_bwd",
) -> LstmGradients:
    """Gradients of the input and of the initial state; :func:`lstm_wu` makes those of the weights.

    Args:
        graph: The graph.
        params: The layer.
        state: The state before the first step.
        intermediates: What :func:`lstm_fwd` kept.
        weights: Weights.
        input: The input.
        output_gradient: Gradient of the output, in its shape.
        prog: Where the pass is appended.
        cell_state_gradient: Gradient of the cell state after the last step; 0 by default.
        options: As those of the forward pass.
        name: Name of the pass.

    Raises:
        TensorError: An operand does not have the shape that the parameters say, or there are no intermediates.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    given = state, intermediates, weights, input, output_gradient, cell_state_gradient
    return _backward(graph, params, *given, prog, options, name, updates=False)


def lstm_bwd_with_wu(
    graph: Graph,
    params: LstmParams,
    state: LstmState,
    intermediates: Tensor | None,
    weights: LstmWeights,
    input: Tensor,
    output_gradient: Tensor,
    prog: Sequence,
    *,
    cell_state_gradient: Tensor | None = None,
    options: Options = None,
    name: str = "lstm_bwd_with_wu",
) -> LstmGradients:
    """Gradients of input, initial state and weights in one loop; otherwise as :func:`lstm_bwd`."""
    given = state, intermediates, weights, input, output_gradient, cell_state_gradient
    return _backward(graph, params, *given, prog, options, name, updates=True)


def lstm_wu(
    graph: Graph,
    params: LstmParams,
    gradients: LstmGradients,
    input: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "lstm_wu",
) -> LstmWeights:
    """Gradients of the weights after :func:`lstm_bwd`; other arguments as there.

    Raises:
        TensorError: The gradients hold no intermediates.
    """
    if gradients.intermediates is None:
        raise TensorError(f"{name}: these gradients hold no intermediates", remedy="those of lstm_bwd do")
    setting = _setting(graph, params, options, name)
    has_input = params.do_input_weight_calc
    with graph.scope(name):
        cell = LstmCell(setting, has_input=has_input)
        kept, deltas = gradients.kept, gradients.intermediates
        return update_pass(setting, cell, kept, deltas, input, prog, has_input=has_input)


def _backward(
    graph: Graph,
    params: LstmParams,
    state: LstmState,
    intermediates: Tensor | None,
    weights: LstmWeights,
    input: Tensor,
    output_gradient: Tensor,
    cell_state_gradient: Tensor | None,
    prog: Sequence,
    options: Options,
    name: str,
    *,
    updates: bool,
) -> LstmGradients:
    setting = _setting(graph, params, options, name)
    _check(params, state, input, weights)
    one = (params.batch, params.hidden)
    shape = (params.time_steps, *one) if params.output_full_sequence else one
    params.check("output gradient", output_gradient, shape)
    if cell_state_gradient is not None:
        params.check("cell state gradient", cell_state_gradient, one)
    has_input = params.do_input_weight_calc
    with graph.scope(name):
        kept = _kept(setting, state, intermediates, weights=weights, input=input, prog=prog, options=options)
        made = backward_pass(
            setting,
            LstmCell(setting, has_input=has_input),
            weights,
            kept=kept,
            output_gradient=output_gradient,
            state_gradients=[None, cell_state_gradient],
            prog=prog,
            gates=_GATES,
            input=input if updates else None,
            has_input=has_input,
            keep_deltas=not updates or (params.calc_input_gradients and not has_input),
        )
    of_input = made.input if has_input or not params.calc_input_gradients else made.deltas
    return LstmGradients(of_input, LstmState(*made.states), made.weights, made.deltas, kept)


def _kept(
    setting: Setting,
    state: LstmState,
    intermediates: Tensor | None,
    weights: LstmWeights,
    input: Tensor,
    prog: Sequence,
    options: Options,
) -> Tensor:
    """All that is kept of every step; recomputed as the options say."""
    mode, params = setting.options.recomputation, setting.params
    assert isinstance(params, LstmParams)
    if mode == "full":
        again = {**dict(options or {}), "recomputationMode": "none"}
        name = f"{setting.name}/recompute"
        made = lstm_fwd(setting.graph, params, state, input, weights, prog, options=again, name=name)
        assert made.intermediates is not None
        return made.intermediates
    if intermediates is None:
        raise TensorError(
            f"{setting.name}: the backward pass needs the forward pass's intermediates",
            because="inferenceOnly keeps none",
            remedy="run lstm_fwd without inferenceOnly, or both with recomputationMode full",
        )
    slots = len(_RECOMPUTED) if mode == "cellAndTanh" else len(KEPT)
    params.check("intermediates", intermediates, (params.time_steps, slots, params.batch, params.hidden))
    return _recompute_cells(setting, state, intermediates, prog) if mode == "cellAndTanh" else intermediates


def _recompute_cells(setting: Setting, state: LstmState, gates: Tensor, prog: Sequence) -> Tensor:
    """The cell states and their non-linearity from the gates, step by step: no product is computed again."""
    graph, params, units = setting.graph, setting.params, setting.units
    kept = units.stacks(params.time_steps, len(KEPT), "recomputed")
    few, step = units.stack(len(_RECOMPUTED), "gates"), units.stack(len(KEPT), "step")
    cell = units.state("cell_state")
    cells = LstmCell(setting, has_input=params.do_input_weight_calc)
    setting.copy(state.cell_state, cell, prog)

    def body(loop: SequenceLoop) -> None:
        loop.slice(gates, few, "slice_gates")
        at = {name: step[n] for n, name in enumerate(KEPT)}
        loop.copy([few[n] for n in range(few.shape[0])], [step[n] for n in _RECOMPUTED], "gates")
        valid, held = setting.hold(loop, [cell])
        cells.update_cell(loop, at, at["previous_output"], cell)
        setting.keep(loop, valid, held, [cell])
        loop.update(kept, step, "keep")

    run_loop(graph, prog, params.time_steps, body)
    return kept


def _setting(graph: Graph, params: LstmParams, options: Options, name: str) -> Setting:
    return Setting(graph, params, recurrent_options(params, options), _units(graph, params), name)


def _units(graph: Graph, params: LstmParams) -> Units:
    return Units(graph, params.dtype, params.batch, params.hidden)


def _check(params: LstmParams, state: LstmState, input: Tensor, weights: LstmWeights) -> None:
    one, sizes = (params.batch, params.hidden), params.layer_sizes
    params.check("initial output", state.output, one)
    params.check("initial cell state", state.cell_state, one)
    if params.do_input_weight_calc:
        params.check("input", input, (params.time_steps, params.batch, params.input_size))
        if weights.input is None:
            raise TensorError("lstm: there are no input weights", remedy="do_input_weight_calc=False for products")
        params.check("input weights", weights.input, (_GATES, *sizes))
    else:
        params.check("input", input, (params.time_steps, _GATES, *one))
    params.check("output weights", weights.output, (_GATES, params.hidden, params.hidden))
    params.check("biases", weights.biases, (_GATES, params.hidden))


globals().update(guarded_functions(globals(), [n for n in __all__ if n[0].islower()], RECURRENT_FORMS))
globals().update(camel_aliases(globals(), [n for n in __all__ if n[0].islower()]))
lstmWU, lstmBwdWithWU = lstm_wu, lstm_bwd_with_wu  # noqa: N816
