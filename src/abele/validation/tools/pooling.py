"""Pooling, then the gradient of its input."""

from __future__ import annotations

from typing import cast

from abele.graph import Graph, Sequence
from abele.numerics import as_element_type
from abele.poplibs import popnn
from abele.poplibs.popnn.pool_params import PoolKind
from abele.poplibs.poputil import create_activations
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """The pooling that ``given`` describes, its input in groups of ``--fwd-chans-per-group`` channels.

    PopLibs has no function that lays out a pooling's input, so input and gradient are spread linearly.
    """
    field = given.integers("field")

    def per_dim(name: str, default: int) -> tuple[int, ...]:
        values = given.integers(name, (default,))
        return values if len(values) == len(field) else values * len(field)

    params = popnn.PoolParams(
        cast(PoolKind, given.text("pooling-type", "MAX").lower()),
        field,
        per_dim("kernel", 2),
        per_dim("stride", 1),
        per_dim("padding-lower", 0),
        per_dim("padding-upper", 0),
        given.integer("channels", 1),
        given.integer("batch-size", 1),
    )
    dtype = as_element_type(given.text("data-type", "half"))
    group = given.integer("fwd-chans-per-group", 0) or None
    prog = Sequence()
    acts = create_activations(graph, dtype, params.in_shape, "acts", group=group)
    pooled = popnn.pool(graph, acts, params, prog, name="fwd")
    if given.flag("inference-only"):
        return prog
    grads = create_activations(graph, dtype, params.out_shape, "grads", group=group)
    saved = (acts, pooled) if params.kind == "max" else (None, None)
    popnn.pool_input_gradient(graph, params, grads, *saved, prog=prog, name="bwd")
    return prog
