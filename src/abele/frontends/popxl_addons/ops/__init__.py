"""Ops of the addons, a module each: every one is a composite of ops of networks, with the gradient that is right."""

from abele.frontends.popxl_addons.ops import (
    cross_entropy,
    cross_entropy_sharded_loss,
    dense_const_sparse_matmul,
    fp8_mse_scale,
    grad_reduce_square_add,
    group_quantize_decompress,
    replicated_all_reduce_TP,
    replicated_strided_collectives,
    rotary_pos_embed,
)

__all__ = [
    "cross_entropy",
    "cross_entropy_sharded_loss",
    "dense_const_sparse_matmul",
    "fp8_mse_scale",
    "grad_reduce_square_add",
    "group_quantize_decompress",
    "replicated_all_reduce_TP",
    "replicated_strided_collectives",
    "rotary_pos_embed",
]
