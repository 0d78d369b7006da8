"""Long short-term memory: LSTM layers forward, backward and weight update.

Weights hold the gates forget, input, candidate, output, in this order unless ``cell_order`` says otherwise:
input weights [4, input, units], output weights [4, units, units], biases [4, units].
"""

from __future__ import annotations

from dataclasses import dataclass, field

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.cpp_forms import RECURRENT_FORMS
from abele.poplibs.popnn.recurrent.calls import (
    BackwardCall,
    ForwardCall,
    UpdateCall,
    check_operands,
    new_input,
    units_of,
)
from abele.poplibs.popnn.recurrent.cell import Setting, Weights
from abele.poplibs.popnn.recurrent.loop import SequenceLoop, run_loop
from abele.poplibs.popnn.recurrent.lstm_cell import KEPT, WITHOUT_PREVIOUS, LstmCell
from abele.poplibs.popnn.recurrent.params import LstmParams, recurrent_options
from abele.poplibs.popnn.recurrent.passes import forward_pass
from abele.poplibs.popnn.recurrent.product import create_product_weights
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.record_calls import takes_fields_of

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
    """Results of a forward pass.

    Attributes:
        output: [steps, batch, units], or [batch, units] of the last step.
        cell_state: After the last step, [batch, units].
        state: Output and cell state after the last step.
        intermediates: Values that the backward pass reads; None for inference and where all is recomputed.
    """

    output: Tensor
    cell_state: Tensor
    state: LstmState
    intermediates: Tensor | None


@dataclass(frozen=True)
class LstmGradients:
    """Results of a backward pass.

    Attributes:
        input: Gradient of the input, or None where the parameters do not ask for it.
        state: Gradients of the initial state.
        weights: Gradients of the weights, from :func:`lstm_bwd_with_wu`.
        intermediates: Values that :func:`lstm_wu` reads, from :func:`lstm_bwd`.
        kept: Values that the forward pass kept, recomputed where it did not.
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
    return new_input(graph, params, name)


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
    return units_of(graph, params).state(name)


def create_initial_cell_state(
    graph: Graph, params: LstmParams, name: str = "cell_state", *, options: Options = None
) -> Tensor:
    """The cell state before the first step, [batch, units]; its values are the caller's."""
    recurrent_options(params, options)
    return units_of(graph, params).state(name)


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
    *inputs, output = create_product_weights(graph, units_of(graph, params), sizes, _GATES, types, name)
    return (inputs[0] if inputs else None), output


def create_weights_biases(graph: Graph, params: LstmParams, name: str = "biases", *, options: Options = None) -> Tensor:
    """Biases, [4, units]."""
    recurrent_options(params, options)
    return units_of(graph, params).biases((_GATES,), params.dtype, name)


@dataclass(frozen=True)
class LstmForward(ForwardCall):
    """A forward pass of an LSTM."""

    params: LstmParams
    state: LstmState
    weights: LstmWeights


@dataclass(frozen=True)
class LstmBackward(BackwardCall):
    """A backward pass of an LSTM.

    Attributes:
        cell_state_gradient: Gradient of the cell state after the last step; None is 0.
    """

    params: LstmParams
    state: LstmState
    weights: LstmWeights
    cell_state_gradient: Tensor | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class LstmUpdate(UpdateCall):
    """Gradients of an LSTM's weights."""

    params: LstmParams
    gradients: LstmGradients


@takes_fields_of(LstmForward)
def lstm_fwd(call: LstmForward) -> LstmResult:
    """Run an LSTM over a sequence.

    Args:
        graph: The graph.
        params: The layer.
        state: The state before the first step; not overwritten.
        input: [steps, batch, input size], or products, [steps, 4, batch, units].
        weights: Weights.
        prog: Program that the pass is appended to.
        options: PopLibs' options of recurrent layers; with ``inferenceOnly`` nothing is kept for a backward pass.
        name: Name of the pass.

    Raises:
        TensorError: An operand does not have the shape that the parameters say.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    setting = call.setting()
    chosen, state = setting.options, call.state
    _check(call)
    with call.graph.scope(call.name):
        given = call.products(setting)
        made = forward_pass(
            setting,
            LstmCell(setting, has_input=given is None),
            [state.output, state.cell_state],
            input=call.input,
            weights=call.weights,
            prog=call.prog,
            slots=len(KEPT) if not chosen.inference_only else WITHOUT_PREVIOUS,
            keep=not chosen.inference_only and chosen.recomputation != "full",
            given=given,
            kept_slots=_RECOMPUTED if chosen.recomputation == "cellAndTanh" else None,
            host=_host_cell,
        )
    return LstmResult(made.output, made.states[1], LstmState(*made.states), made.kept)


@takes_fields_of(LstmBackward)
def lstm_bwd(call: LstmBackward) -> LstmGradients:
    """Gradients of the input and of the initial state; :func:`lstm_wu` makes those of the weights.

    Args:
        graph: The graph.
        params: The layer.
        state: The state before the first step.
        intermediates: Values that :func:`lstm_fwd` kept.
        weights: Weights.
        input: The input.
        output_gradient: Gradient of the output, in its shape.
        prog: Program that the pass is appended to.
        cell_state_gradient: Gradient of the cell state after the last step; 0 by default.
        options: As those of the forward pass.
        name: Name of the pass.

    Raises:
        TensorError: An operand does not have the shape that the parameters say, or there are no intermediates.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    return _backward(call, updates=False)


@takes_fields_of(LstmBackward)
def lstm_bwd_with_wu(call: LstmBackward) -> LstmGradients:
    """Gradients of input, initial state and weights; otherwise as :func:`lstm_bwd`.

    Those of the weights are made in the loop of the others, or in one after it, whichever needs less memory:
    :attr:`~abele.poplibs.popnn.recurrent.params.RecurrentParams.updates_in_backward_loop`.
    """
    return _backward(call, updates=True)


@takes_fields_of(LstmUpdate)
def lstm_wu(call: LstmUpdate) -> LstmWeights:
    """Gradients of the weights after :func:`lstm_bwd`; other arguments as there.

    Raises:
        TensorError: The gradients hold no intermediates.
    """
    call.check()
    setting = call.setting()
    with call.graph.scope(call.name):
        return call.run(setting, LstmCell(setting, has_input=call.params.do_input_weight_calc))


def _backward(call: LstmBackward, *, updates: bool) -> LstmGradients:
    setting = call.setting()
    _check(call)
    call.check_gradient()
    if call.cell_state_gradient is not None:
        call.params.check("cell state gradient", call.cell_state_gradient, call.one)
    with call.graph.scope(call.name):
        kept = _kept(setting, call)
        cell = LstmCell(setting, has_input=call.params.do_input_weight_calc)
        gradients = [None, call.cell_state_gradient]
        made = call.run(setting, cell, kept, updates=updates, state_gradients=gradients, host=_host_cell)
    return LstmGradients(made.input, LstmState(*made.states), made.weights, made.deltas, kept)


def _kept(setting: Setting, call: LstmBackward) -> Tensor:
    """All that is kept of every step; recomputed as the options say."""
    mode, params = setting.options.recomputation, call.params
    if mode == "full":
        again = {**dict(call.options or {}), "recomputationMode": "none"}
        name = f"{call.name}/recompute"
        made = lstm_fwd(call.graph, params, call.state, call.input, call.weights, call.prog, options=again, name=name)
        assert made.intermediates is not None
        return made.intermediates
    given = call.given()
    slots = len(_RECOMPUTED) if mode == "cellAndTanh" else len(KEPT)
    params.check("intermediates", given, (params.time_steps, slots, *call.one))
    return _recompute_cells(setting, call.state, given, call.prog) if mode == "cellAndTanh" else given


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


def _host_cell(setting: Setting) -> LstmCell:
    return LstmCell(setting, has_input=False)


def _check(call: LstmForward | LstmBackward) -> None:
    states = {"initial output": call.state.output, "initial cell state": call.state.cell_state}
    check_operands(call.params, states, call.input, call.weights, (_GATES, call.params.hidden))


globals().update(guarded_functions(globals(), [n for n in __all__ if n[0].islower()], RECURRENT_FORMS))
globals().update(camel_aliases(globals(), [n for n in __all__ if n[0].islower()]))
lstmWU, lstmBwdWithWU = lstm_wu, lstm_bwd_with_wu  # noqa: N816
