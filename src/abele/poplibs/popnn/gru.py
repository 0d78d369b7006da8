"""Gated recurrent units: GRU layers forward, backward and weight update, with attention too (AUGRU).

Weights hold the gates reset, update, candidate, in this order unless ``cell_order`` says otherwise: input weights
[3, input, units], output weights [3, units, units], biases [3, units], or [3, 2, units] (of the input's product, of the
state's) where the reset gate comes after the product. With update u, candidate c and state h the new state is
u·h + (1 − u)·c. An attention a makes that u·(1 − a) in place of u.
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import InvalidOptionError, TensorError
from abele.graph import Graph, Tensor, concat
from abele.graph.program import Sequence
from abele.poplibs.popnn.cpp_forms import RECURRENT_FORMS
from abele.poplibs.popnn.recurrent.cell import Setting, Weights
from abele.poplibs.popnn.recurrent.gru_cell import GruCell
from abele.poplibs.popnn.recurrent.layout import Units, new_input_sequence
from abele.poplibs.popnn.recurrent.params import GruParams, recurrent_options
from abele.poplibs.popnn.recurrent.passes import backward_pass, forward_pass, products_of_input, update_pass
from abele.poplibs.popnn.recurrent.product import create_product_weights
from abele.poplibs.poputil.guard import guarded, guarded_functions
from abele.poplibs.poputil.mapping import map_tensor_linearly
from abele.poplibs.poputil.names import camel_aliases
from abele.poplibs.poputil.options import Options

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
    """What a forward pass returns.

    Attributes:
        output: [steps, batch, units], or [batch, units] of the last step.
        state: The output after the last step, [batch, units].
        intermediates: What the backward pass takes; None for inference and where all is recomputed.
    """

    output: Tensor
    state: Tensor
    intermediates: Tensor | None


@dataclass(frozen=True)
class GruGradients:
    """What a backward pass returns.

    Attributes:
        input: Gradient of the input, or None where the parameters do not ask for it.
        state: Gradient of the initial state.
        weights: Gradients of the weights, from :func:`gru_bwd_with_wu`.
        attention: Gradient of the attention, where there is any.
        intermediates: What :func:`gru_wu` takes, from :func:`gru_bwd`.
        kept: What the forward pass kept, recomputed where it did not.
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


def create_initial_state(graph: Graph, params: GruParams, name: str = "state", *, options: Options = None) -> Tensor:
    """The output before the first step, [batch, units]; its values are the caller's."""
    recurrent_options(params, options)
    return _units(graph, params).state(name)


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
    types, units = recurrent_options(params, options).types, _units(graph, params)
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
    return _units(graph, params).biases(_biases_shape(params)[:-1], params.dtype, name)


def gru_fwd(
    graph: Graph,
    params: GruParams,
    state: Tensor,
    input: Tensor,
    weights: GruWeights,
    prog: Sequence,
    *,
    attention: Tensor | None = None,
    options: Options = None,
    name: str = "gru_fwd",
) -> GruResult:
    """Run a GRU over a sequence.

    Args:
        graph: The graph.
        params: The layer.
        state: The output before the first step; not overwritten.
        input: [steps, batch, input size], or products, [steps, 3, batch, units].
        weights: Weights.
        prog: Where the pass is appended.
        attention: [batch, steps], or None.
        options: PopLibs' options of recurrent layers; with ``inferenceOnly`` nothing is kept for a backward pass.
        name: Name of the pass.

    Raises:
        TensorError: An operand does not have the shape that the parameters say.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    setting = _setting(graph, params, options, name)
    chosen = setting.options
    scores = _checked(params, state, input, weights, attention)
    with graph.scope(name):
        given = None if params.do_input_weight_calc else input
        if given is None and chosen.pre_calc and weights.input is not None:
            given = products_of_input(setting, input, weights.input, prog)
        cell = GruCell(setting, params, has_input=given is None)
        keeps = not chosen.inference_only and chosen.recomputation != "full"
        slots = cell.kept
        operands = [state], input, weights, prog
        made = forward_pass(setting, cell, *operands, slots=slots, keep=keeps, given=given, scores=scores)
    return GruResult(made.output, made.states[0], made.kept)


def gru_bwd(
    graph: Graph,
    params: GruParams,
    state: Tensor,
    intermediates: Tensor | None,
    weights: GruWeights,
    input: Tensor,
    output_gradient: Tensor,
    prog: Sequence,
    *,
    attention: Tensor | None = None,
    options: Options = None,
    name: str = "gru_bwd",
) -> GruGradients:
    """Gradients of the input and of the initial state; :func:`gru_wu` makes those of the weights.

    Args:
        graph: The graph.
        params: The layer.
        state: The output before the first step.
        intermediates: What :func:`gru_fwd` kept.
        weights: Weights.
        input: The input.
        output_gradient: Gradient of the output, in its shape.
        prog: Where the pass is appended.
        attention: As in the forward pass.
        options: As those of the forward pass.
        name: Name of the pass.

    Raises:
        TensorError: An operand does not have the shape that the parameters say, or there are no intermediates.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    given = state, intermediates, weights, input, output_gradient, attention
    return _backward(graph, params, *given, prog, options, name, updates=False)


def gru_bwd_with_wu(
    graph: Graph,
    params: GruParams,
    state: Tensor,
    intermediates: Tensor | None,
    weights: GruWeights,
    input: Tensor,
    output_gradient: Tensor,
    prog: Sequence,
    *,
    attention: Tensor | None = None,
    options: Options = None,
    name: str = "gru_bwd_with_wu",
) -> GruGradients:
    """Gradients of input, initial state and weights in one loop; otherwise as :func:`gru_bwd`."""
    given = state, intermediates, weights, input, output_gradient, attention
    return _backward(graph, params, *given, prog, options, name, updates=True)


def gru_wu(
    graph: Graph,
    params: GruParams,
    gradients: GruGradients,
    input: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "gru_wu",
) -> GruWeights:
    """Gradients of the weights after :func:`gru_bwd`; other arguments as there.

    Raises:
        TensorError: The gradients hold no intermediates.
    """
    if gradients.intermediates is None:
        raise TensorError(f"{name}: these gradients hold no intermediates", remedy="those of gru_bwd do")
    setting = _setting(graph, params, options, name)
    has_input = params.do_input_weight_calc
    with graph.scope(name):
        cell = GruCell(setting, params, has_input=has_input)
        return update_pass(setting, cell, gradients.kept, gradients.intermediates, input, prog, has_input=has_input)


def _backward(
    graph: Graph,
    params: GruParams,
    state: Tensor,
    intermediates: Tensor | None,
    weights: GruWeights,
    input: Tensor,
    output_gradient: Tensor,
    attention: Tensor | None,
    prog: Sequence,
    options: Options,
    name: str,
    *,
    updates: bool,
) -> GruGradients:
    setting = _setting(graph, params, options, name)
    scores = _checked(params, state, input, weights, attention)
    one = (params.batch, params.hidden)
    shape = (params.time_steps, *one) if params.output_full_sequence else one
    params.check("output gradient", output_gradient, shape)
    has_input = params.do_input_weight_calc
    with graph.scope(name):
        if setting.options.recomputation == "full":
            again = {**dict(options or {}), "recomputationMode": "none"}
            forward = gru_fwd(graph, params, state, input, weights, prog, attention=attention, options=again)
            intermediates = forward.intermediates
        if intermediates is None:
            raise TensorError(
                f"{name}: the backward pass needs the forward pass's intermediates",
                because="inferenceOnly keeps none",
                remedy="run gru_fwd without inferenceOnly, or both with recomputationMode full",
            )
        made = backward_pass(
            setting,
            GruCell(setting, params, has_input=has_input),
            weights,
            kept=intermediates,
            output_gradient=output_gradient,
            state_gradients=[None],
            prog=prog,
            gates=_GATES,
            input=input if updates else None,
            has_input=has_input,
            keep_deltas=not updates or (params.calc_input_gradients and not has_input),
            scores=scores,
        )
    of_input = made.input if has_input or not params.calc_input_gradients else made.deltas
    of_scores = None if made.scores is None else made.scores.T
    return GruGradients(of_input, made.states[0], made.weights, of_scores, made.deltas, intermediates)


def _in_order(params: GruParams, gates: Tensor, candidate: Tensor) -> Tensor:
    """Reset and update, and the candidate, as the weights hold them."""
    joined = concat([gates, candidate], 0)
    return concat([joined[n : n + 1] for n in (params.cells.index(name) for name in params.cell_order)], 0)


def _biases_shape(params: GruParams) -> tuple[int, ...]:
    return (_GATES, 2, params.hidden) if params.reset_after else (_GATES, params.hidden)


def _setting(graph: Graph, params: GruParams, options: Options, name: str) -> Setting:
    chosen = recurrent_options(params, options)
    if chosen.recomputation == "cellAndTanh":
        raise InvalidOptionError(f"{name}: recomputationMode cellAndTanh is an LSTM's", remedy="none, or full")
    return Setting(graph, params, chosen, _units(graph, params), name)


def _units(graph: Graph, params: GruParams) -> Units:
    return Units(graph, params.dtype, params.batch, params.hidden)


def _checked(
    params: GruParams, state: Tensor, input: Tensor, weights: GruWeights, attention: Tensor | None
) -> Tensor | None:
    """The attention, steps first, after a look at all operands."""
    one = (params.batch, params.hidden)
    params.check("initial output", state, one)
    if params.do_input_weight_calc:
        params.check("input", input, (params.time_steps, params.batch, params.input_size))
        if weights.input is None:
            raise TensorError("gru: there are no input weights", remedy="do_input_weight_calc=False for products")
        params.check("input weights", weights.input, (_GATES, *params.layer_sizes))
    else:
        params.check("input", input, (params.time_steps, _GATES, *one))
    params.check("output weights", weights.output, (_GATES, params.hidden, params.hidden))
    params.check("biases", weights.biases, _biases_shape(params))
    if attention is None:
        return None
    params.check("attention", attention, (params.batch, params.time_steps))
    return attention.T


globals().update(guarded_functions(globals(), [n for n in __all__ if n[0].islower()], RECURRENT_FORMS))
globals().update(camel_aliases(globals(), [n for n in __all__ if n[0].islower()]))
gruWU, gruBwdWithWU = gru_wu, gru_bwd_with_wu  # noqa: N816

# Last, since that module is made of the functions above.
from abele.poplibs.popnn import augru  # noqa: E402

globals().update(guarded_functions(vars(augru), [n for n in vars(augru) if n.startswith("au_gru_")]))
globals().update(camel_aliases(globals(), [n for n in vars(augru) if n.startswith("au_gru_")]))
auGruWU, auGruBwdWithWU = guarded(augru.au_gru_wu), guarded(augru.au_gru_bwd_with_wu)  # noqa: N816
