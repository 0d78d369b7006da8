"""Gated recurrent units: GRU layers forward, backward and weight update, with attention too (AUGRU).

Weights hold the gates reset, update, candidate, in this order unless ``cell_order`` says otherwise: input weights
[3, input, units], output weights [3, units, units], biases [3, units], or [3, 2, units] (of the input's product, of the
state's) where the reset gate comes after the product. With update u, candidate c and state h the new state is
u·h + (1 − u)·c. An attention a makes that u·(1 − a) in place of u.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from abele.errors import InvalidOptionError
from abele.graph import Graph, Tensor, concat
from abele.poplibs.popnn.cpp_forms import RECURRENT_FORMS
from abele.poplibs.popnn.recurrent.calls import (
    BackwardCall,
    ForwardCall,
    LayerCall,
    UpdateCall,
    check_operands,
    new_input,
    units_of,
)
from abele.poplibs.popnn.recurrent.cell import Setting, Weights
from abele.poplibs.popnn.recurrent.gru_cell import GruCell
from abele.poplibs.popnn.recurrent.host_passes import HostCell
from abele.poplibs.popnn.recurrent.params import GruParams, recurrent_options
from abele.poplibs.popnn.recurrent.passes import forward_pass
from abele.poplibs.popnn.recurrent.product import create_product_weights
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.poplibs.poputil.names import camel_aliases
from abele.poplibs.poputil.options import Options
from abele.poplibs.poputil.record_calls import takes_fields_of

__all__ = [
    "GruGradients",
    "GruParams",
    "GruResult",
    "GruWeights",
    "create_attention",
    "create_initial_state",
    "create_input",
    "create_weights",
    "create_weights_biases",
    "create_weights_kernel",
    "gru_bwd",
    "gru_bwd_with_wu",
    "gru_fwd",
    "gru_wu",
]

GruWeights = Weights
_GATES = 3


@dataclass(frozen=True)
class GruResult:
    """Results of a forward pass.

    Attributes:
        output: [steps, batch, units], or [batch, units] of the last step.
        state: The output after the last step, [batch, units].
        intermediates: Values that the backward pass reads; None for inference and where all is recomputed.
    """

    output: Tensor
    state: Tensor
    intermediates: Tensor | None


@dataclass(frozen=True)
class GruGradients:
    """Results of a backward pass.

    Attributes:
        input: Gradient of the input, or None where the parameters do not ask for it.
        state: Gradient of the initial state.
        weights: Gradients of the weights, from :func:`gru_bwd_with_wu`.
        attention: Gradient of the attention, where there is any.
        intermediates: Values that :func:`gru_wu` reads, from :func:`gru_bwd`.
        kept: Values that the forward pass kept, recomputed where it did not.
    """

    input: Tensor | None
    state: Tensor
    weights: GruWeights | None
    attention: Tensor | None
    intermediates: Tensor | None
    kept: Tensor


def create_input(graph: Graph, params: GruParams, name: str = "input", *, options: Options = None) -> Tensor:
    """The input, [steps, batch, input size]; each step lies where its product is fed.

    Where the input holds products already, [steps, 3, batch, units].
    """
    recurrent_options(params, options)
    return new_input(graph, params, name)


def create_initial_state(graph: Graph, params: GruParams, name: str = "state", *, options: Options = None) -> Tensor:
    """The output before the first step, [batch, units]; its values are the caller's."""
    recurrent_options(params, options)
    return units_of(graph, params).state(name)


def create_attention(graph: Graph, params: GruParams, name: str = "attention", *, options: Options = None) -> Tensor:
    """Attention of every sample and step, [batch, steps]."""
    recurrent_options(params, options)
    made = graph.variable(params.dtype, (params.time_steps, params.batch), name=name)
    return map_tensor_linearly(graph, made, params.batch, params.batch).T


def create_weights(graph: Graph, params: GruParams, name: str = "weights", options: Options = None) -> GruWeights:
    """Weights and biases, in the layouts of the planned products."""
    kernel = create_weights_kernel(graph, params, name, options)
    return GruWeights(kernel[0], kernel[1], create_weights_biases(graph, params, f"{name}/biases"))


def create_weights_kernel(
    graph: Graph, params: GruParams, name: str = "weights", options: Options = None
) -> tuple[Tensor | None, Tensor]:
    """Input weights [3, input, units] (None where the input holds products already), output weights."""
    types, units = recurrent_options(params, options).types, units_of(graph, params)
    inputs = (params.input_size,) if params.do_input_weight_calc else ()
    output, *rest = create_product_weights(graph, units, (params.hidden, *inputs), 2, types, f"{name}/gates")
    if params.reset_after:
        of_input = create_product_weights(graph, units, inputs, 1, types, f"{name}/input_candidate") if inputs else []
        of_state = create_product_weights(graph, units, (params.hidden,), 1, types, f"{name}/state_candidate")[0]
    else:
        sizes = (*inputs, params.hidden)
        *of_input, of_state = create_product_weights(graph, units, sizes, 1, types, f"{name}/candidate")
    outputs = _in_order(params, output, of_state)
    return (_in_order(params, rest[0], of_input[0]) if inputs else None), outputs


def create_weights_biases(graph: Graph, params: GruParams, name: str = "biases", *, options: Options = None) -> Tensor:
    """Biases, [3, units], or [3, 2, units] where the reset gate comes after the product."""
    recurrent_options(params, options)
    return units_of(graph, params).biases(_biases_shape(params)[:-1], params.dtype, name)


@dataclass(frozen=True)
class GruForward(ForwardCall):
    """A forward pass of a GRU.

    Attributes:
        attention: [batch, steps], or None.
    """

    params: GruParams
    state: Tensor
    weights: GruWeights
    attention: Tensor | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class GruBackward(BackwardCall):
    """A backward pass of a GRU.

    Attributes:
        attention: As in the forward pass.
    """

    params: GruParams
    state: Tensor
    weights: GruWeights
    attention: Tensor | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class GruUpdate(UpdateCall):
    """Gradients of a GRU's weights."""

    params: GruParams
    gradients: GruGradients


@takes_fields_of(GruForward)
def gru_fwd(call: GruForward) -> GruResult:
    """Run a GRU over a sequence.

    Args:
        graph: The graph.
        params: The layer.
        state: The output before the first step; not overwritten.
        input: [steps, batch, input size], or products, [steps, 3, batch, units].
        weights: Weights.
        prog: Program that the pass is appended to.
        attention: [batch, steps], or None.
        options: PopLibs' options of recurrent layers; with ``inferenceOnly`` nothing is kept for a backward pass.
        name: Name of the pass.

    Raises:
        TensorError: An operand does not have the shape that the parameters say.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    setting = _setting(call)
    chosen = setting.options
    scores = _checked(call)
    with call.graph.scope(call.name):
        given = call.products(setting)
        cell = GruCell(setting, call.params, has_input=given is None)
        made = forward_pass(
            setting,
            cell,
            [call.state],
            input=call.input,
            weights=call.weights,
            prog=call.prog,
            slots=cell.kept,
            keep=not chosen.inference_only and chosen.recomputation != "full",
            given=given,
            scores=scores,
            host=_host_cell(call.params),
        )
    return GruResult(made.output, made.states[0], made.kept)


@takes_fields_of(GruBackward)
def gru_bwd(call: GruBackward) -> GruGradients:
    """Gradients of the input and of the initial state; :func:`gru_wu` makes those of the weights.

    Args:
        graph: The graph.
        params: The layer.
        state: The output before the first step.
        intermediates: Values that :func:`gru_fwd` kept.
        weights: Weights.
        input: The input.
        output_gradient: Gradient of the output, in its shape.
        prog: Program that the pass is appended to.
        attention: As in the forward pass.
        options: As those of the forward pass.
        name: Name of the pass.

    Raises:
        TensorError: An operand does not have the shape that the parameters say, or there are no intermediates.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    return gru_backward(call, updates=False)


@takes_fields_of(GruBackward)
def gru_bwd_with_wu(call: GruBackward) -> GruGradients:
    """Gradients of input, initial state and weights; otherwise as :func:`gru_bwd`.

    Those of the weights are made in the loop of the others, or in one after it, whichever needs less memory:
    :attr:`~abele.poplibs.popnn.recurrent.params.RecurrentParams.updates_in_backward_loop`.
    """
    return gru_backward(call, updates=True)


@takes_fields_of(GruUpdate)
def gru_wu(call: GruUpdate) -> GruWeights:
    """Gradients of the weights after :func:`gru_bwd`; other arguments as there.

    Raises:
        TensorError: The gradients hold no intermediates.
    """
    call.check()
    setting = _setting(call)
    with call.graph.scope(call.name):
        return call.run(setting, GruCell(setting, call.params, has_input=call.params.do_input_weight_calc))


def gru_backward(call: GruBackward, *, updates: bool) -> GruGradients:
    """The gradients of a call; with ``updates`` those of the weights in the same loop."""
    setting = _setting(call)
    scores = _checked(call)
    call.check_gradient()
    with call.graph.scope(call.name):
        if setting.options.recomputation == "full":
            call = replace(call, intermediates=_again(call).intermediates)
        kept = call.given()
        cell = GruCell(setting, call.params, has_input=call.params.do_input_weight_calc)
        host = _host_cell(call.params)
        made = call.run(setting, cell, kept, updates=updates, state_gradients=[None], scores=scores, host=host)
    of_scores = None if made.scores is None else made.scores.T
    return GruGradients(made.input, made.states[0], made.weights, of_scores, made.deltas, kept)


def _host_cell(params: GruParams) -> HostCell:
    return lambda setting: GruCell(setting, params, has_input=False)


def _again(call: GruBackward) -> GruResult:
    """The forward pass, once more."""
    return gru_fwd(
        call.graph,
        call.params,
        call.state,
        call.input,
        weights=call.weights,
        prog=call.prog,
        attention=call.attention,
        options={**dict(call.options or {}), "recomputationMode": "none"},
    )


def _in_order(params: GruParams, gates: Tensor, candidate: Tensor) -> Tensor:
    """Reset and update, and the candidate, as the weights hold them."""
    joined = concat([gates, candidate], 0)
    return concat([joined[n : n + 1] for n in (params.cells.index(name) for name in params.cell_order)], 0)


def _biases_shape(params: GruParams) -> tuple[int, ...]:
    return (_GATES, 2, params.hidden) if params.reset_after else (_GATES, params.hidden)


def _setting(call: LayerCall) -> Setting:
    setting = call.setting()
    if setting.options.recomputation == "cellAndTanh":
        raise InvalidOptionError(f"{call.name}: recomputationMode cellAndTanh is an LSTM's", remedy="none, or full")
    return setting


def _checked(call: GruForward | GruBackward) -> Tensor | None:
    """Attention, steps first, after checks of all operands."""
    params, states = call.params, {"initial output": call.state}
    check_operands(params, states, call.input, call.weights, _biases_shape(params))
    if call.attention is None:
        return None
    params.check("attention", call.attention, (params.batch, params.time_steps))
    return call.attention.T


globals().update(guarded_functions(globals(), [n for n in __all__ if n[0].islower()], RECURRENT_FORMS))
globals().update(camel_aliases(globals(), [n for n in __all__ if n[0].islower()]))
gruWU, gruBwdWithWU = gru_wu, gru_bwd_with_wu  # noqa: N816

# Last, since that module is made of the functions above.
from abele.poplibs.popnn import augru  # noqa: E402

_AUGRU = guarded_functions(vars(augru), [n for n in vars(augru) if n.startswith("au_gru_")])
globals().update(_AUGRU)
globals().update(camel_aliases(globals(), list(_AUGRU)))
auGruWU, auGruBwdWithWU = _AUGRU["au_gru_wu"], _AUGRU["au_gru_bwd_with_wu"]  # noqa: N816
