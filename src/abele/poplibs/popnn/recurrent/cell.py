"""Kinds of cell of recurrent layers, as the loops that run them see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from abele.graph import Copy, Graph, Tensor, concat
from abele.graph.program import Sequence
from abele.poplibs import popops
from abele.poplibs.popnn.recurrent.layout import Units
from abele.poplibs.popnn.recurrent.loop import SequenceLoop
from abele.poplibs.popnn.recurrent.params import RecurrentOptions, RecurrentParams
from abele.poplibs.popnn.recurrent.product import Product
from abele.poplibs.popops.expr import Op, _1, _2, _3


@dataclass(frozen=True)
class Weights:
    """Weights of a recurrent layer, gates in the order that its parameters say.

    Attributes:
        input: [gates, input size, units], or None where the input holds the products already.
        output: [gates, units, units], which the output of the step before is multiplied by.
        biases: [gates, units]; [gates, 2, units] for a GRU that resets after the product.
    """

    input: Tensor | None
    output: Tensor
    biases: Tensor


class Cell(Protocol):
    """Kind of cell: its products, and one step.

    Attributes:
        columns: The operand of its products.
        score: Attention of the step's samples, [batch], or None.
        score_gradient: Its gradient after a step back, or None.
    """

    columns: Columns
    score: Tensor | None
    score_gradient: Tensor | None

    def arrange(self, weights: Weights, prog: Sequence, *, forward: bool) -> None:
        """Take the weights, as the products of this pass need them."""

    def forward(self, loop: SequenceLoop, states: list[Tensor], step: Tensor, given: Tensor | None) -> None:
        """One step: overwrite ``states``, write the kept values to ``step``; ``given`` holds products of the input."""

    def backward(self, loop: SequenceLoop, step: Tensor, gradients: list[Tensor], deltas: Tensor) -> Tensor | None:
        """One step back: overwrite gradients of the states; ``deltas`` becomes the gradients of the gates.

        Returns:
            The gradient of the input, [batch, input size]; None without input weights.
        """

    def put_deltas(self, loop: SequenceLoop, step: Tensor, deltas: Tensor) -> None:
        """Bring gradients of the gates to the products; the step back does so itself."""

    def accumulate(self, loop: SequenceLoop, step: Tensor, deltas: Tensor, number: int, together: int) -> None:
        """Add the gradients of the weights; the input's columns hold the step's input, the products the deltas."""

    def gradients(self, prog: Sequence) -> Weights:
        """The gradients of the weights."""


class HostedCell(Cell, Protocol):
    """Kind of cell that hosts run in a form of their own: its work on all steps at once."""

    def take_deltas(self, deltas: Tensor) -> None:
        """Let the products of a step back read gradients of the gates where they are, if they read all of them."""

    def host_gradients(self, prog: Sequence, kept: Tensor, deltas: Tensor, gradients: Weights) -> None:
        """Write the gradients of output weights and biases.

        Args:
            prog: Program that the host runs.
            kept: Values kept of all steps, [steps, slots, batch, units].
            deltas: Gradients of the gates of all steps, [steps, gates, batch, units].
            gradients: Tensors that the gradients are written to.
        """


class Columns:
    """Operands of several products in one variable, each a run of named columns, [batch, columns]."""

    def __init__(self, units: Units, sizes: dict[str, int], name: str) -> None:
        self.sizes = sizes
        self.whole = units.operand(tuple(sizes.values()), name)

    def of(self, *names: str) -> Tensor:
        """The columns of these names, which must follow each other."""
        order = list(self.sizes)
        first = sum(self.sizes[n] for n in order[: order.index(names[0])])
        return self.whole[:, first : first + sum(self.sizes[n] for n in names)]


@dataclass
class Setting:
    """Setting that the cells of one call share.

    Attributes:
        graph: The graph.
        params: The layer.
        options: Options of the call.
        units: The hidden units.
        name: Name of the call.
    """

    graph: Graph
    params: RecurrentParams
    options: RecurrentOptions
    units: Units
    name: str

    def product(self, columns: Columns, names: tuple[str, ...], gates: int, name: str) -> Product:
        """A product of the columns ``names``."""
        sizes = tuple(columns.sizes[n] for n in names)
        operand = columns.of(*names)
        return Product(
            self.graph,
            units=self.units,
            operand=operand,
            sizes=sizes,
            gates=gates,
            types=self.options.types,
            name=f"{self.name}/{name}",
        )

    def add_biases(self, loop: SequenceLoop, total: Tensor | None, deltas: Tensor) -> Tensor:
        """Add the gradients of biases, the sums of ``deltas``, [gates, batch, units], over the samples, to a total."""
        if total is None:
            accumulators = self.options.types.accumulators
            total = self.units.biases(deltas.shape[:1], accumulators, f"{self.name}/bias_gradient")
            popops.zero(self.graph, total, loop.before, name="zero_bias_gradient")
        popops.reduce_with_output(self.graph, deltas, total, [1], "ADD", loop.prog, update=True, name="bias_gradient")
        return total

    def hold(self, loop: SequenceLoop, states: list[Tensor]) -> tuple[Tensor | None, list[Tensor]]:
        """Flags of the samples that still run, and copies of the states; nothing where all samples run to the end."""
        lengths = self.params.lengths
        if lengths is None:
            return None, []
        valid = loop.valid(lengths, self.params.batch)
        # A step is computed for all samples, and undone for those that have ended: a branch per sample is not to be had
        # on tiles that hold all samples of a unit.
        held = [self.units.state("held") for _ in states]
        loop.copy(states, held, "hold")
        return valid, held

    def keep(self, loop: SequenceLoop, valid: Tensor | None, held: list[Tensor], states: list[Tensor]) -> None:
        """states ← held, for samples that have ended."""
        if valid is not None:
            for old, new in zip(held, states, strict=True):
                loop.map([Op("select", _1, _2, _3)], [new, old, valid], [new], "keep")

    def copy(self, source: Tensor, destination: Tensor, prog: Sequence) -> None:
        """destination ← source."""
        prog.add(Copy(source, destination))

    def in_layer_type(self, tensor: Tensor, prog: Sequence) -> Tensor:
        """``tensor`` in the type of the layer."""
        if tensor.dtype == self.params.dtype:
            return tensor
        return popops.cast(self.graph, tensor, self.params.dtype, prog, name="cast_gradient")


def put(loop: SequenceLoop, tensor: Tensor, where: Tensor) -> None:
    """``where`` ← ``tensor``, on whatever tiles both are."""
    if not tensor.is_same_view(where):
        loop.prog.add(Copy(tensor, where))


def gates_of(tensor: Tensor, numbers: list[int]) -> Tensor:
    """Gates ``numbers`` of [gates, ...], in that order."""
    return concat([tensor[n : n + 1] for n in numbers], 0)
