"""Biases of convolutions and fully connected layers: one number per channel."""

from __future__ import annotations

from typing import Any

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Steps
from abele.numerics import ElementType, as_element_type, f32
from abele.poplibs import popops
from abele.poplibs.poplin.options import CONV_OPTIONS
from abele.poplibs.poputil.options import Options, element_type, read_options

BIAS_OPTIONS = {"partialsType": element_type(f32)}
"""Options of gradients of biases."""


def add_bias(
    graph: Graph, activations: Tensor, biases: Tensor, prog: Steps, *, options: Options = None, name: str = "add_bias"
) -> None:
    """Add a bias to every channel, in place.

    Args:
        graph: The graph.
        activations: [batch, channels, *field]; overwritten.
        biases: [channels].
        prog: Program that the call is appended to.
        options: Those of the convolution; none of them changes anything here.
        name: Name of the call.

    Raises:
        TensorError: ``biases`` does not have one element per channel.
        InvalidOptionError: A misspelt option, or a value that it does not take.
    """
    read_options(name, options, CONV_OPTIONS)
    if activations.ndim < 2 or biases.shape != (activations.shape[1],):
        raise TensorError(
            f"{name}: biases {biases!r} do not fit activations {activations!r}",
            remedy="one bias for each channel: dimension 1 of the activations",
        )
    popops.add_in_place(graph, activations, biases.reshape(-1, *(1 for _ in activations.shape[2:])), prog, name=name)


def bias_gradient(
    graph: Graph,
    z_deltas: Tensor,
    prog: Steps,
    *,
    output_type: ElementType | str | None = None,
    options: Options = None,
    name: str = "bias_gradient",
) -> Tensor:
    """The gradient of the biases, [channels]: gradients [batch, channels, *field] summed over all else.

    Args:
        graph: The graph.
        z_deltas: Gradients of the outputs.
        prog: Program that the call is appended to.
        output_type: Type of the result; by default that of ``z_deltas``.
        options: See :data:`BIAS_OPTIONS`.
        name: Name of the call.

    Raises:
        TensorError: ``z_deltas`` has no channels.
        InvalidOptionError: A misspelt option, or a value that it does not take.
    """
    if z_deltas.ndim < 2:
        raise TensorError(f"{name}: {z_deltas!r} has no channels: gradients are [batch, channels, *field]")
    sums: dict[str, Any] = read_options(name, options, BIAS_OPTIONS)
    accumulate = {"accumType.interTile": sums["partialsType"], "accumType.inVertex": sums["partialsType"]}
    dims = [d for d in range(z_deltas.ndim) if d != 1]
    kind = z_deltas.dtype if output_type is None else as_element_type(output_type)
    return popops.reduce(graph, z_deltas, dims, "ADD", prog, out_type=kind, options=accumulate, name=name)


def convolution_bias_update(
    graph: Graph,
    z_deltas: Tensor,
    biases: Tensor,
    scale: float | Tensor,
    prog: Steps,
    *,
    options: Options = None,
    name: str = "convolution_bias_update",
) -> None:
    """biases ← biases + scale · bias gradient, in place; ``z_deltas`` and ``options`` as of :func:`bias_gradient`.

    Raises:
        TensorError: ``biases`` does not have one element per channel of ``z_deltas``.
        InvalidOptionError: A misspelt option, or a value that it does not take.
    """
    if z_deltas.ndim < 2 or biases.shape != (z_deltas.shape[1],):
        raise TensorError(
            f"{name}: biases {biases!r} do not fit gradients {z_deltas!r}",
            remedy="one bias for each channel: dimension 1 of the gradients",
        )
    kind = biases.dtype
    gradient = bias_gradient(graph, z_deltas, prog, output_type=kind, options=options, name=f"{name}_gradient")
    popops.scaled_add_to(graph, biases, gradient, scale, prog, name=name)
