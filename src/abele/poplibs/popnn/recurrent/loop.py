"""The loop over the steps of a sequence, its counter, and which samples still run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from abele.errors import TensorError
from abele.graph import Copy, Graph, Repeat, Tensor
from abele.graph.program import Sequence
from abele.numerics import bool_, u32
from abele.poplibs import popops
from abele.poplibs.popops.expr import Expr, PlaceHolder, _1, _2
from abele.poplibs.popops.slicing.dynamic_slice import dynamic_slice_with_output, dynamic_update

# The step of a sequence that a counter names: read, or written. Every tile's share of it stays on the tile.

_COUNTED = {"validateIndices": False}
"""Loops count their steps themselves, so that no index needs a check."""


def slice_step(
    graph: Graph, sequence: Tensor, index: Tensor, step: Tensor, prog: Sequence, name: str = "slice_step"
) -> None:
    """step ← sequence[index].

    Args:
        graph: Graph in which vertices are made.
        sequence: [steps, ...].
        index: The step, u32 of one element.
        step: A tensor of the shape of one step; overwritten.
        prog: Sequence that the call is appended to.
        name: Name of the call.

    Raises:
        TensorError: The shapes do not fit each other.
    """
    _check(sequence, index, step, name)
    dynamic_slice_with_output(
        graph,
        step.expand_dims(0),
        sequence,
        offset=index.reshape((1,)),
        dims=(0,),
        sizes=(1,),
        prog=prog,
        options=_COUNTED,
        name=name,
    )


def update_step(
    graph: Graph, sequence: Tensor, index: Tensor, step: Tensor, prog: Sequence, name: str = "update_step"
) -> None:
    """sequence[index] ← step; see :func:`slice_step`."""
    _check(sequence, index, step, name)
    dynamic_update(
        graph,
        sequence,
        step.expand_dims(0),
        offset=index.reshape((1,)),
        dims=(0,),
        sizes=(1,),
        prog=prog,
        options=_COUNTED,
        name=name,
    )


def _check(sequence: Tensor, index: Tensor, step: Tensor, name: str) -> None:
    if sequence.shape[1:] != step.shape or sequence.dtype != step.dtype or index.size != 1:
        raise TensorError(f"{name}: {step!r} is no step of {sequence!r} at one index, {index!r}")


@dataclass(frozen=True)
class SequenceLoop:
    """Steps of a sequence, forwards or backwards.

    Attributes:
        graph: The graph.
        index: The number of the step, u32.
        prog: Program of one step.
        before: Program that runs before the steps.
    """

    graph: Graph
    index: Tensor
    prog: Sequence
    before: Sequence

    def slice(self, sequence: Tensor, step: Tensor, name: str) -> None:
        """step ← this step of ``sequence``; by a copy after it where they lie on different tiles."""
        slice_step(self.graph, sequence, self.index, step, self.prog, name)

    def update(self, sequence: Tensor, step: Tensor, name: str) -> None:
        """This step of ``sequence`` ← ``step``."""
        update_step(self.graph, sequence, self.index, step, self.prog, name)

    def map(self, expressions: Iterable[Expr], tensors: list[Tensor], outputs: list[Tensor], name: str) -> None:
        """Write expressions of ``tensors`` to ``outputs``, in one superstep."""
        popops.map_with_outputs(self.graph, list(expressions), tensors, outputs, self.prog, name=name)

    def valid(self, lengths: Tensor, batch: int) -> Tensor:
        """True where each sample still has this step, bool[batch, 1]."""
        # One element per sample on one tile: it is broadcast to all units, whose tiles fetch it.
        made = self.graph.map(self.graph.variable(bool_, (batch, 1), name="valid"), 0)
        wanted = lengths.reshape((lengths.size, 1))
        self.map([_1 > _2], [wanted.broadcast_to((batch, 1)), self.index], [made], "valid")
        return made

    def copy(self, sources: list[Tensor], destinations: list[Tensor], name: str) -> None:
        """destinations ← sources, in one superstep."""
        self.map([PlaceHolder(n + 1) for n in range(len(sources))], sources, destinations, name)


def run_loop(
    graph: Graph,
    prog: Sequence,
    steps: int,
    body: Callable[[SequenceLoop], None],
    *,
    backwards: bool = False,
    unroll: int = 1,
) -> None:
    """Append a loop over ``steps`` steps, ``unroll`` of them per turn.

    Args:
        graph: The graph.
        prog: Program that it is appended to.
        steps: Steps; a multiple of ``unroll``.
        body: Called ``unroll`` times; appends what a step does to the loop's program.
        backwards: True if it runs from the last step to the first.
        unroll: Steps per turn.
    """
    index = graph.map(graph.variable(u32, (1,), name="step"), 0)
    first = graph.constant(u32, (1,), steps - 1 if backwards else 0, name="first_step")
    before, turn = Sequence(), Sequence()
    # What the body needs once goes to `before`, which is complete only when all turns are made; hence both are appended
    # at the end.
    before.add(Copy(first, index))
    for _ in range(unroll):
        body(SequenceLoop(graph, index, turn, before))
        popops.map_in_place(graph, _1 - 1 if backwards else _1 + 1, [index], turn, name="next_step")
    prog.add(before)
    prog.add(Repeat(steps // unroll, turn))
