"""Operations of convolutions, and the cycles that they would take if nothing else did."""

from __future__ import annotations

from math import ceil

from abele.errors import TypeMismatchError
from abele.graph import Graph
from abele.numerics import ElementType, as_element_type
from abele.poplibs.poplin.conv_params.params import ConvParams

_FLOPS_A_MAC = 2


def get_fwd_flops(params: ConvParams) -> int:
    """Floating-point operations of the convolution: two per multiply-accumulate, none on padding."""
    return _FLOPS_A_MAC * params.macs


def get_bwd_flops(params: ConvParams) -> int:
    """Floating-point operations of the gradient of its input: every product of the forward pass has one here."""
    return _FLOPS_A_MAC * params.macs


def get_wu_flops(params: ConvParams) -> int:
    """Floating-point operations of the gradient of its weights: every product of the forward pass has one here."""
    return _FLOPS_A_MAC * params.macs


def get_fwd_perfect_cycle_count(graph: Graph, params: ConvParams, dtype: ElementType | str) -> float:
    """Tile cycles of the convolution if all tiles of an IPU did multiply-accumulates in every cycle.

    The rate is that of the matrix units for ``dtype``, with the partials that they are fastest with.

    Raises:
        TypeMismatchError: The matrix units do not take the type.
    """
    return _perfect(graph, params, dtype)


def get_bwd_perfect_cycle_count(graph: Graph, params: ConvParams, dtype: ElementType | str) -> float:
    """As :func:`get_fwd_perfect_cycle_count`, of the gradient of the input."""
    return _perfect(graph, params, dtype)


def get_wu_perfect_cycle_count(graph: Graph, params: ConvParams, dtype: ElementType | str) -> float:
    """As :func:`get_fwd_perfect_cycle_count`, of the gradient of the weights."""
    return _perfect(graph, params, dtype)


def _perfect(graph: Graph, params: ConvParams, dtype: ElementType | str) -> float:
    ipu, kind = graph.system.ipu, as_element_type(dtype)
    rates = [mode.macs_per_cycle for mode in ipu.amp.modes if mode.input == kind.name]
    if not rates:
        known = ", ".join(dict.fromkeys(mode.input for mode in ipu.amp.modes))
        raise TypeMismatchError(f"the matrix units of {ipu.name} do not take {kind}", remedy=f"one of {known}")
    return float(ceil(params.macs / (ipu.num_tiles * max(rates))))
