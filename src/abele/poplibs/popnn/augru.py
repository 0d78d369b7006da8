"""GRU layers with attention (AUGRU), under PopLibs' names of their own: the attention is an operand like the others."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.graph.program import Sequence
from abele.poplibs.popnn.gru import (
    GruGradients,
    GruParams,
    GruResult,
    GruWeights,
    gru_bwd,
    gru_bwd_with_wu,
    gru_fwd,
    gru_wu,
)
from abele.poplibs.poputil.options import Options


def au_gru_fwd(
    graph: Graph,
    params: GruParams,
    state: Tensor,
    input: Tensor,
    weights: GruWeights,
    attention: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "au_gru_fwd",
) -> GruResult:
    """:func:`~abele.poplibs.popnn.gru.gru_fwd` with ``attention``, [batch, steps]; errors as there."""
    return gru_fwd(graph, params, state, input, weights, prog, attention=attention, options=options, name=name)


def au_gru_bwd(
    graph: Graph,
    params: GruParams,
    state: Tensor,
    intermediates: Tensor | None,
    weights: GruWeights,
    input: Tensor,
    attention: Tensor,
    output_gradient: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "au_gru_bwd",
) -> GruGradients:
    """:func:`~abele.poplibs.popnn.gru.gru_bwd` with ``attention``, [batch, steps]; errors as there."""
    given = params, state, intermediates, weights, input, output_gradient, prog
    return gru_bwd(graph, *given, attention=attention, options=options, name=name)


def au_gru_bwd_with_wu(
    graph: Graph,
    params: GruParams,
    state: Tensor,
    intermediates: Tensor | None,
    weights: GruWeights,
    input: Tensor,
    attention: Tensor,
    output_gradient: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "au_gru_bwd_with_wu",
) -> GruGradients:
    """:func:`~abele.poplibs.popnn.gru.gru_bwd_with_wu` with ``attention``, [batch, steps]; errors as there."""
    given = params, state, intermediates, weights, input, output_gradient, prog
    return gru_bwd_with_wu(graph, *given, attention=attention, options=options, name=name)


def au_gru_wu(
    graph: Graph,
    params: GruParams,
    gradients: GruGradients,
    input: Tensor,
    prog: Sequence,
    *,
    options: Options = None,
    name: str = "au_gru_wu",
) -> GruWeights:
    """Gradients of the weights after :func:`au_gru_bwd`; errors as of :func:`~abele.poplibs.popnn.gru.gru_wu`."""
    return gru_wu(graph, params, gradients, input, prog, options=options, name=name)
