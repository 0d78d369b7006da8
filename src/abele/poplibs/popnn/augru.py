"""GRU layers with attention (AUGRU), under PopLibs' names of their own: the attention is an operand like the others."""

from __future__ import annotations

from dataclasses import dataclass

from abele.graph import Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.gru import (
    GruBackward,
    GruGradients,
    GruParams,
    GruResult,
    GruUpdate,
    GruWeights,
    gru_backward,
    gru_fwd,
    gru_wu,
)
from abele.poplibs.popnn.recurrent.calls import LayerCall
from abele.poplibs.poputil.record_calls import takes_fields_of


@dataclass(frozen=True)
class AuGruForward(LayerCall):
    """A forward pass; fields as of :class:`~abele.poplibs.popnn.gru.GruForward`."""

    params: GruParams
    state: Tensor
    input: Tensor
    weights: GruWeights
    attention: Tensor
    prog: Sequence


@dataclass(frozen=True)
class AuGruBackward(LayerCall):
    """A backward pass; fields as of :class:`~abele.poplibs.popnn.gru.GruBackward`."""

    params: GruParams
    state: Tensor
    intermediates: Tensor | None
    weights: GruWeights
    input: Tensor
    attention: Tensor
    output_gradient: Tensor
    prog: Sequence


@takes_fields_of(AuGruForward)
def au_gru_fwd(call: AuGruForward) -> GruResult:
    """:func:`~abele.poplibs.popnn.gru.gru_fwd` with ``attention``, [batch, steps]; errors as there."""
    return gru_fwd(**vars(call))


@takes_fields_of(AuGruBackward)
def au_gru_bwd(call: AuGruBackward) -> GruGradients:
    """:func:`~abele.poplibs.popnn.gru.gru_bwd` with ``attention``, [batch, steps]; errors as there."""
    return gru_backward(GruBackward(**vars(call)), updates=False)


@takes_fields_of(AuGruBackward)
def au_gru_bwd_with_wu(call: AuGruBackward) -> GruGradients:
    """:func:`~abele.poplibs.popnn.gru.gru_bwd_with_wu` with ``attention``, [batch, steps]; errors as there."""
    return gru_backward(GruBackward(**vars(call)), updates=True)


@takes_fields_of(GruUpdate)
def au_gru_wu(call: GruUpdate) -> GruWeights:
    """Gradients of the weights after :func:`au_gru_bwd`; errors as of :func:`~abele.poplibs.popnn.gru.gru_wu`."""
    return gru_wu(**vars(call))
