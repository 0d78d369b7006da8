"""Gamma and beta of the norms: one value per channel, whatever they normalise over."""

from __future__ import annotations

from abele.graph import Graph, Tensor
from abele.poplibs.poplin.norms.per_channel import create_norm_beta, create_norm_gamma, create_norm_params

__all__ = [
    "create_batch_norm_beta",
    "create_batch_norm_gamma",
    "create_batch_norm_params",
    "create_group_norm_beta",
    "create_group_norm_gamma",
    "create_group_norm_params",
    "create_instance_norm_beta",
    "create_instance_norm_gamma",
    "create_instance_norm_params",
    "create_layer_norm_beta",
    "create_layer_norm_gamma",
    "create_layer_norm_params",
]


def create_batch_norm_beta(graph: Graph, acts: Tensor, name: str = "beta") -> Tensor:
    """New addends for a batch norm of ``acts``, one per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_beta(graph, acts, name)


def create_batch_norm_gamma(graph: Graph, acts: Tensor, name: str = "gamma") -> Tensor:
    """New factors for a batch norm of ``acts``, one per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_gamma(graph, acts, name)


def create_batch_norm_params(graph: Graph, acts: Tensor, name: str = "batch_norm") -> tuple[Tensor, Tensor]:
    """New gamma and beta for a batch norm of ``acts`` [batch, channels, *field], one value per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_params(graph, acts, name)


def create_group_norm_beta(graph: Graph, acts: Tensor, name: str = "beta") -> Tensor:
    """New addends for a group norm of ``acts``, one per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_beta(graph, acts, name)


def create_group_norm_gamma(graph: Graph, acts: Tensor, name: str = "gamma") -> Tensor:
    """New factors for a group norm of ``acts``, one per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_gamma(graph, acts, name)


def create_group_norm_params(graph: Graph, acts: Tensor, name: str = "group_norm") -> tuple[Tensor, Tensor]:
    """New gamma and beta for a group norm of ``acts`` [batch, channels, *field], one value per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_params(graph, acts, name)


def create_instance_norm_beta(graph: Graph, acts: Tensor, name: str = "beta") -> Tensor:
    """New addends for an instance norm of ``acts``, one per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_beta(graph, acts, name)


def create_instance_norm_gamma(graph: Graph, acts: Tensor, name: str = "gamma") -> Tensor:
    """New factors for an instance norm of ``acts``, one per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_gamma(graph, acts, name)


def create_instance_norm_params(graph: Graph, acts: Tensor, name: str = "instance_norm") -> tuple[Tensor, Tensor]:
    """New gamma and beta for an instance norm of ``acts`` [batch, channels, *field], one value per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_params(graph, acts, name)


def create_layer_norm_beta(graph: Graph, acts: Tensor, name: str = "beta") -> Tensor:
    """New addends for a layer norm of ``acts``, one per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_beta(graph, acts, name)


def create_layer_norm_gamma(graph: Graph, acts: Tensor, name: str = "gamma") -> Tensor:
    """New factors for a layer norm of ``acts``, one per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_gamma(graph, acts, name)


def create_layer_norm_params(graph: Graph, acts: Tensor, name: str = "layer_norm") -> tuple[Tensor, Tensor]:
    """New gamma and beta for a layer norm of ``acts`` [batch, channels, *field], one value per channel.

    Raises:
        TensorError: ``acts`` has no channels.
        TypeMismatchError: Its elements are no floats.
    """
    return create_norm_params(graph, acts, name)
