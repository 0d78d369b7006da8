"""The step of a sequence that a counter names: read, or written. Every tile's share of it stays on the tile."""

from __future__ import annotations

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popops.slicing.dynamic_slice import dynamic_slice_with_output, dynamic_update

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
