"""Every primitive of the installed JAX, and why some of them are out of scope."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import jax._src
from jax.extend.core import Primitive

_LEFT = ("pallas", "mosaic", "test", "cudnn", "export", "triton", "clusters", "lib.", "tpu", "sourcemap")
"""Modules with these words are of other machines, or need what is not installed."""


@functools.cache
def primitives() -> dict[str, str]:
    """Names of primitives with the module that has each."""
    found: dict[str, str] = {}
    for module in pkgutil.walk_packages(jax._src.__path__, "jax._src."):
        if any(word in module.name for word in _LEFT):
            continue
        try:
            content = vars(importlib.import_module(module.name))
        except Exception:  # a module for what is not installed
            continue
        for value in content.values():
            if isinstance(value, Primitive):
                known = found.get(value.name)
                found[value.name] = min(known, module.name) if known else module.name
    return found


def traced(jaxpr: Any) -> Iterator[str]:
    """Names of the primitives of a jaxpr, those of nested ones included."""
    for eqn in jaxpr.eqns:
        yield eqn.primitive.name
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(inner, "eqns"):
                    yield from traced(inner)
                elif hasattr(inner, "jaxpr"):
                    yield from traced(inner.jaxpr)


_REASONS = {
    "complex results: eigenvalues of matrices that are not symmetric": "eig schur",
    "references: arrays that change in place, an experiment of JAX": (
        "accum_grad_in_ref addupdate empty_ref free_ref freeze get new_ref run_state swap "
        "broadcast_to create_linear pin "
        "unpin box_get box_set new_box new_log log_read log_extend stage"
    ),
    "tokens: they order effects, and hold nothing": "after_all create_token",
    "sharding: where parts of arrays lie on several devices": (
        "sharding_constraint reshard layout_constraint shard_alike inspect_sharding "
        "custom_partitioning pvary pbroadcast "
        "reduced_vary_cast_p vary_unreduced_cast_p preduced unreduced_psum unreduced_reduce_scatter "
        "unreduced_psum_start unreduced_reduce_scatter_start psum_invariant psum_invariant_start all_gather_invariant "
        "all_gather_reduced all_gather_reduced_start"
    ),
    "halves of collectives: for programs that order transfers themselves": (
        "all_gather_done all_gather_start all_to_all_done all_to_all_start pbroadcast_done pbroadcast_start "
        "ppermute_done ppermute_start psum_done psum_start reduce_scatter_done reduce_scatter_start precv psend"
    ),
    "several devices: tested with `pmap` and `shard_map`": (
        "all_gather all_to_all axis_index pmin ppermute ragged_all_to_all reduce_scatter shard_map"
    ),
    "the host: tested with callbacks": (
        "buffer_callback io_callback pure_callback debug_callback debug_print ffi_call check"
    ),
    "inside of JAX: no public function leaves it in a trace": (
        "call call_hi_primitive call_hi_primitive_linearized custom_lin custom_jvp_call_jaxpr unreachable remat_opt "
        "eval_jaxpr zeros_like empty empty2 dce_sink compute_on xla_metadata_value closed_call core_call to_edtype "
        "from_edtype pvary name_p"
    ),
    "refused: QR with pivots, products with Q as LAPACK keeps it, products of scaled blocks": "geqp3 ormqr scaled_dot",
}
OUT_OF_SCOPE = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Why a primitive is out of scope, by its name."""
RENAMED = {"remat2": "checkpoint"}
"""Names in traces of primitives that modules call otherwise."""
