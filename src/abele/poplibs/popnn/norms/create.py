"""Gamma and beta of the norms: one value per channel."""

from __future__ import annotations

from collections.abc import Callable

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


def _params(kind: str) -> Callable[..., tuple[Tensor, Tensor]]:
    default = f"{kind}_norm"

    def create(graph: Graph, acts: Tensor, name: str = default) -> tuple[Tensor, Tensor]:
        """New gamma and beta for a norm of ``acts`` [batch, channels, *field], one value per channel.

        Raises:
            TensorError: ``acts`` has no channels.
            TypeMismatchError: Its elements are no floats.
        """
        return create_norm_params(graph, acts, name)

    return create


create_batch_norm_beta = create_group_norm_beta = create_instance_norm_beta = create_layer_norm_beta = create_norm_beta
create_batch_norm_gamma = create_group_norm_gamma = create_norm_gamma
create_instance_norm_gamma = create_layer_norm_gamma = create_norm_gamma
create_batch_norm_params, create_group_norm_params = _params("batch"), _params("group")
create_instance_norm_params, create_layer_norm_params = _params("instance"), _params("layer")
