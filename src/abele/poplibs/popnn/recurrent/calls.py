"""Calls of recurrent layers: arguments and steps that LSTM, GRU and plain layers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.recurrent.cell import Cell, Setting, Weights
from abele.poplibs.popnn.recurrent.host_passes import HostCell
from abele.poplibs.popnn.recurrent.layout import Units, new_input_sequence
from abele.poplibs.popnn.recurrent.params import RecurrentParams, recurrent_options
from abele.poplibs.popnn.recurrent.passes import Backward, backward_pass, products_of_input, update_pass
from abele.poplibs.poputil.options import Options


@dataclass(frozen=True)
class LayerCall:
    """Arguments that every call of a layer takes.

    Attributes:
        graph: The graph.
        params: The layer.
        options: PopLibs' options of recurrent layers.
        name: Name of the call.
    """

    graph: Graph
    params: RecurrentParams
    _: KW_ONLY
    options: Options = None
    name: str = ""

    @property
    def one(self) -> tuple[int, int]:
        """Shape of a state, and of the output of one step."""
        return self.params.batch, self.params.hidden

    def setting(self) -> Setting:
        """Setting that the cells of this call share.

        Raises:
            InvalidOptionError: An option that there is not, or a value that it does not take.
        """
        chosen = recurrent_options(self.params, self.options)
        return Setting(self.graph, self.params, chosen, units_of(self.graph, self.params), self.name)


@dataclass(frozen=True)
class ForwardCall(LayerCall):
    """A forward pass.

    Attributes:
        state: The state before the first step; not overwritten.
        input: [steps, batch, input size], or products, [steps, gates, batch, units].
        weights: Weights.
        prog: Program that the pass is appended to.
    """

    state: Any
    input: Tensor
    weights: Weights
    prog: Sequence

    def products(self, setting: Setting) -> Tensor | None:
        """Products of the input and its weights, where they are given, or made before the loop."""
        if not self.params.do_input_weight_calc:
            return self.input
        if setting.options.pre_calc and self.weights.input is not None:
            return products_of_input(setting, self.input, self.weights.input, self.prog)
        return None


@dataclass(frozen=True)
class BackwardCall(LayerCall):
    """A backward pass.

    Attributes:
        state: The state before the first step.
        intermediates: Values that the forward pass kept; None where it kept nothing.
        weights: Weights.
        input: As in the forward pass.
        output_gradient: Gradient of the output, in its shape.
        prog: Program that the pass is appended to.
    """

    state: Any
    intermediates: Tensor | None
    weights: Weights
    input: Tensor
    output_gradient: Tensor
    prog: Sequence

    def check_gradient(self) -> None:
        """Refuse a gradient of the output that has not its shape and type.

        Raises:
            TensorError: It has another shape.
            TypeMismatchError: It is of another type.
        """
        params = self.params
        shape = (params.time_steps, *self.one) if params.output_full_sequence else self.one
        params.check("output gradient", self.output_gradient, shape)

    def given(self) -> Tensor:
        """Intermediates that the forward pass kept.

        Raises:
            TensorError: It kept nothing.
        """
        if self.intermediates is None:
            raise TensorError(
                f"{self.name}: the backward pass needs the forward pass's intermediates",
                because="inferenceOnly keeps none",
                remedy=f"run {self.params.kind}_fwd without inferenceOnly, or both with recomputationMode full",
            )
        return self.intermediates

    def run(
        self,
        setting: Setting,
        cell: Cell,
        kept: Tensor,
        *,
        updates: bool,
        state_gradients: list[Tensor | None],
        scores: Tensor | None = None,
        host: HostCell | None = None,
    ) -> Backward:
        """Append the pass; the gradient of an input of products is that of the gates.

        Args:
            setting: The call's setting.
            cell: A cell of the kind that ran forward.
            kept: Values that the forward pass kept, or recomputed ones.
            updates: True to make gradients of the weights in the same loop.
            state_gradients: Gradients of the states after the last step; None is 0.
            scores: Attention of every step and sample, [steps, batch], for cells that take it.
            host: Makes the cell for hosts.
        """
        has_input = self.params.do_input_weight_calc
        of_products = self.params.calc_input_gradients and not has_input
        made = backward_pass(
            setting,
            cell,
            self.weights,
            kept=kept,
            output_gradient=self.output_gradient,
            state_gradients=state_gradients,
            prog=self.prog,
            gates=len(self.params.cells),
            input=self.input if updates else None,
            has_input=has_input,
            keep_deltas=not updates or of_products,
            scores=scores,
            host=host,
        )
        return replace(made, input=made.deltas) if of_products else made


@dataclass(frozen=True)
class UpdateCall(LayerCall):
    """Gradients of the weights, after a backward pass that made none.

    Attributes:
        gradients: Results of the backward pass.
        input: As in the forward pass.
        prog: Program that the pass is appended to.
    """

    gradients: Any
    input: Tensor
    prog: Sequence

    def run(self, setting: Setting, cell: Cell) -> Weights:
        """Append the pass.

        Raises:
            TensorError: The gradients hold no intermediates.
        """
        kept, deltas = self.gradients.kept, self.gradients.intermediates
        has_input = self.params.do_input_weight_calc
        return update_pass(setting, cell, kept, deltas, self.input, self.prog, has_input=has_input)

    def check(self) -> None:
        """Refuse gradients of a backward pass that made those of the weights itself.

        Raises:
            TensorError: They hold no intermediates.
        """
        if self.gradients.intermediates is None:
            remedy = f"those of {self.params.kind}_bwd do"
            raise TensorError(f"{self.name}: these gradients hold no intermediates", remedy=remedy)


def units_of(graph: Graph, params: RecurrentParams) -> Units:
    """The hidden units of a layer."""
    return Units(graph, params.dtype, params.batch, params.hidden)


def new_input(graph: Graph, params: RecurrentParams, name: str) -> Tensor:
    """A new input, [steps, batch, input size], or [steps, gates, batch, units] where it holds products already."""
    if not params.do_input_weight_calc:
        return units_of(graph, params).stacks(params.time_steps, len(params.cells), name)
    return new_input_sequence(graph, params, name)


def check_operands(
    params: RecurrentParams, states: Mapping[str, Tensor], input: Tensor, weights: Weights, biases: tuple[int, ...]
) -> None:
    """Refuse operands that have not the shapes and the type of the layer.

    Args:
        params: The layer.
        states: The states before the first step, by what errors call them.
        input: The input, or products.
        weights: Weights.
        biases: Shape of the biases.

    Raises:
        TensorError: A shape that the parameters do not say, or input weights that are missing.
        TypeMismatchError: Another type than the layer's.
    """
    one, gates = (params.batch, params.hidden), len(params.cells)
    for what, state in states.items():
        params.check(what, state, one)
    if params.do_input_weight_calc:
        params.check("input", input, (params.time_steps, params.batch, params.input_size))
        if weights.input is None:
            raise TensorError(
                f"{params.kind}: there are no input weights", remedy="do_input_weight_calc=False for products"
            )
        params.check("input weights", weights.input, (gates, *params.layer_sizes))
    else:
        params.check("input", input, (params.time_steps, gates, *one))
    params.check("output weights", weights.output, (gates, params.hidden, params.hidden))
    params.check("biases", weights.biases, biases)
