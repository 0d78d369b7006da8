"""Biases of convolutions and fully connected layers: one number a channel."""

from __future__ import annotations

from abele.errors import TensorError
from abele.graph import Graph, Tensor
from abele.graph.program import Sequence as Program
from abele.numerics import ElementType, as_element_type
from abele.poplibs import popops


def add_bias(graph: Graph, activations: Tensor, biases: Tensor, prog: Program, *, name: str = "add_bias") -> None:
    """Add a bias to every channel, in place.

    Args:
        graph: The graph.
        activations: [batch, channels, *field]; overwritten.
        biases: [channels].
        prog: Where the call is appended.
        name: Name of the call.

    Raises:
        TensorError: ``biases`` has not one element a channel.
    """
    if activations.ndim < 2 or biases.shape != (activations.shape[1],):
        raise TensorError(
            f"{name}: biases {biases!r} do not fit activations {activations!r}",
            remedy="one bias for each channel: dimension 1 of the activations",
        )
    popops.add_in_place(graph, activations, biases.reshape(-1, *(1 for _ in activations.shape[2:])), prog, name=name)


def bias_gradient(
    graph: Graph,
    z_deltas: Tensor,
    prog: Program,
    *,
    output_type: ElementType | str | None = None,
    name: str = "bias_gradient",
) -> Tensor:
    """The gradient of the biases, [channels]: gradients [batch, channels, *field] summed over all else."""
    dims = [d for d in range(z_deltas.ndim) if d != 1]
    kind = z_deltas.dtype if output_type is None else as_element_type(output_type)
    return popops.reduce(graph, z_deltas, dims, "ADD", prog, out_type=kind, name=name)


def convolution_bias_update(
    graph: Graph,
    z_deltas: Tensor,
    biases: Tensor,
    scale: float | Tensor,
    prog: Program,
    *,
    name: str = "convolution_bias_update",
) -> None:
    """biases ← biases + scale · bias gradient, in place."""
    gradient = bias_gradient(graph, z_deltas, prog, output_type=biases.dtype, name=f"{name}_gradient")
    popops.scaled_add_to(graph, biases, gradient, scale, prog, name=name)
