"""Plain recurrent networks, and the parts of loops over sequences.

Weights are input weights [1, input, units], output weights [1, units, units], biases [1, units].
"""

from __future__ import annotations

from dataclasses import dataclass

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError, UnsupportedOpError
from abele.graph import Graph, Tensor, concat
from abele.graph.program import Sequence
from abele.poplibs.poplin.operations.update import matmul_acc
from abele.poplibs.popnn.recurrent.calls import check_operands, units_of
from abele.poplibs.popnn.recurrent.cell import Setting, Weights
from abele.poplibs.popnn.recurrent.layout import Units, new_input_sequence
from abele.poplibs.popnn.recurrent.loop import slice_step, update_step
from abele.poplibs.popnn.recurrent.params import RecurrentParams, recurrent_options, with_poplibs_fields
from abele.poplibs.popnn.recurrent.passes import Backward, Forward, backward_pass, forward_pass
from abele.poplibs.popnn.recurrent.product import create_product_weights
from abele.poplibs.popnn.recurrent.rnn_cell import KEPT, RnnCell
from abele.poplibs.popops.reductions.reduce import reduce_with_output
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.layout import duplicate
from abele.poplibs.poputil.names import camel_aliases
from abele.poplibs.poputil.options import Options
from abele.words import counted

__all__ = [
    "RnnParams",
    "RnnWeights",
    "create_initial_state",
    "create_input",
    "create_input_tensor",
    "create_output_tensor",
    "create_recurrent_tensor",
    "create_weights",
    "param_delta_update",
    "rnn_bwd_sequence",
    "rnn_fwd_sequence",
    "shift_rnn_tensor",
    "slice_step",
    "update_step",
]

RnnWeights = Weights


@with_poplibs_fields
@dataclass(frozen=True)
class RnnParams(RecurrentParams):
    """A plain recurrent layer; ``activation`` is its non-linearity."""

    @property
    def kind(self) -> str:
        """Name of the layer, for errors."""
        return "rnn"

    @property
    def cells(self) -> tuple[str, ...]:
        """Its one gate."""
        return ("cell",)


def create_input(graph: Graph, params: RnnParams, name: str = "input") -> Tensor:
    """The input, [steps, batch, input size]; each step lies where its product is fed."""
    return new_input_sequence(graph, params, name)


def create_initial_state(graph: Graph, params: RnnParams, name: str = "state") -> Tensor:
    """The output before the first step, [batch, units]; its values are the caller's."""
    return units_of(graph, params).state(name)


def create_recurrent_tensor(graph: Graph, params: RecurrentParams, size: int, name: str = "recurrent") -> Tensor:
    """A new sequence of ``size`` columns, [steps, batch, size]: all that belongs to a column lies on one tile.

    Raises:
        TensorError: No columns.
    """
    if size < 1:
        raise TensorError(f"{name}: {counted(size, 'column')}; a step has at least one")
    return Units(graph, params.dtype, params.batch, size).sequence(params.time_steps, name)


def create_input_tensor(graph: Graph, params: RecurrentParams, name: str = "input") -> Tensor:
    """The input of a loop of one's own, [steps, batch, input size]."""
    return create_recurrent_tensor(graph, params, params.input_size, name)


def create_output_tensor(graph: Graph, params: RecurrentParams, name: str = "output") -> Tensor:
    """The output of a loop of one's own, [steps, batch, units]."""
    return create_recurrent_tensor(graph, params, params.hidden, name)


def shift_rnn_tensor(graph: Graph, base: Tensor, single: Tensor, prog: Sequence, name: str = "shifted") -> Tensor:
    """``base`` one step later: step n is step n − 1 of ``base``, and step 0 a copy of ``single``.

    Args:
        graph: Graph in which the copy is made.
        base: [steps, ...].
        single: Shape and type of one step.
        prog: Sequence that the copy is appended to.
        name: Name of the copy.

    Raises:
        TensorError: ``single`` does not have the shape of a step.
        TypeMismatchError: Its type is another.
    """
    if base.ndim == 0 or single.shape != base.shape[1:]:
        raise TensorError(f"{name}: {single!r} does not have the shape of a step of {base!r}")
    if single.dtype != base.dtype:
        raise TypeMismatchError(f"{name}: {single!r} is {single.dtype}, {base!r} is {base.dtype}")
    first = duplicate(graph, single, prog, name)
    return concat([first.expand_dims(0), base[: base.shape[0] - 1]], 0)


def param_delta_update(
    graph: Graph,
    gradient: Tensor,
    input: Tensor,
    previous_output: Tensor,
    deltas: RnnWeights,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "param_delta_update",
) -> None:
    """Add the contribution of one step to the gradients of the weights, in place.

    Args:
        graph: Graph in which vertices are made.
        gradient: Gradient of the step's sum before its non-linearity, [batch, units].
        input: Input of the step, [batch, input size].
        previous_output: Output of the step before, [batch, units].
        deltas: Sums that are added to: [1, input size, units], [1, units, units] and [1, units].
        prog: Sequence that the steps are appended to.
        options: Those of matrix products.
        name: Name of the steps.

    Raises:
        TensorError: Shapes that do not fit each other.
        TypeMismatchError: Element types that do not.
    """
    with graph.scope(name):
        if deltas.input is not None:
            _add_product(graph, deltas.input, input, gradient=gradient, prog=prog, options=options, name="input")
        _add_product(
            graph, deltas.output, previous_output, gradient=gradient, prog=prog, options=options, name="output"
        )
        reduce_with_output(graph, gradient, deltas.biases[0], (0,), "ADD", prog, update=True, name="biases")


def _add_product(
    graph: Graph, into: Tensor, left: Tensor, gradient: Tensor, prog: Sequence, options: Options, name: str
) -> None:
    matmul_acc(graph, into[0], 1.0, left.T, gradient, prog, options=options, name=name)


def create_weights(graph: Graph, params: RnnParams, name: str = "weights", options: Options = None) -> RnnWeights:
    """Weights in the layout of the planned product, and biases."""
    types, units = recurrent_options(params, options).types, units_of(graph, params)
    of_input, of_output = create_product_weights(graph, units, params.layer_sizes, 1, types, name)
    return RnnWeights(of_input, of_output, units.biases((1,), params.dtype, f"{name}/biases"))


def rnn_fwd_sequence(
    graph: Graph,
    params: RnnParams,
    state: Tensor,
    input: Tensor,
    weights: RnnWeights,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "rnn_fwd",
) -> Forward:
    """Run a plain network over ``input``, [steps, batch, input size].

    Raises:
        TensorError: An operand does not have the shape that the parameters say.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    setting = _setting(graph, params, options, name)
    check_operands(params, {"initial output": state}, input, weights, (1, params.hidden))
    with graph.scope(name):
        keep = not setting.options.inference_only
        return forward_pass(
            setting,
            RnnCell(setting, has_input=True),
            [state],
            input,
            weights,
            prog,
            slots=len(KEPT),
            keep=keep,
            host=_host_cell,
        )


def rnn_bwd_sequence(
    graph: Graph,
    params: RnnParams,
    state: Tensor,
    kept: Tensor,
    weights: RnnWeights,
    input: Tensor,
    output_gradient: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "rnn_bwd",
) -> Backward:
    """Gradients of input, initial state and weights from the values that :func:`rnn_fwd_sequence` kept.

    Raises:
        TensorError: An operand does not have the shape that the parameters say.
        TypeMismatchError: An operand is not of the layer's type.
        InvalidOptionError: An option that there is not, or a value that it does not take.
    """
    setting = _setting(graph, params, options, name)
    check_operands(params, {"initial output": state}, input, weights, (1, params.hidden))
    one = (params.batch, params.hidden)
    params.check("kept states", kept, (params.time_steps, len(KEPT), *one))
    params.check("output gradient", output_gradient, (params.time_steps, *one) if params.output_full_sequence else one)
    with graph.scope(name):
        return backward_pass(
            setting,
            RnnCell(setting, has_input=True),
            weights,
            kept=kept,
            output_gradient=output_gradient,
            state_gradients=[None],
            prog=prog,
            gates=1,
            input=input,
            has_input=True,
            keep_deltas=False,
            host=_host_cell,
        )


def _host_cell(setting: Setting) -> RnnCell:
    return RnnCell(setting, has_input=False)


def _setting(graph: Graph, params: RnnParams, options: Options, name: str) -> Setting:
    chosen = recurrent_options(params, options)
    if not params.do_input_weight_calc:
        raise UnsupportedOpError(f"{name}: plain networks multiply their input", remedy="do_input_weight_calc=True")
    if chosen.recomputation != "none" or chosen.pre_calc:
        raise InvalidOptionError(f"{name}: plain networks neither recompute nor multiply all steps before the loop")
    return Setting(graph, params, chosen, units_of(graph, params), name)


globals().update(guarded_functions(globals(), [n for n in __all__ if n[0].islower()]))
globals().update(camel_aliases(globals(), [n for n in __all__ if n[0].islower()]))
