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
    field = given.shape("field")

    params = popnn.PoolParams(
        kind=cast(PoolKind, given.text("pooling-type", "MAX").lower()),
        field=field,
        kernel=given.per_dim("kernel", len(field), 2),
        stride=given.per_dim("stride", len(field), 1),
        padding_lower=given.per_side("padding", "lower", len(field)),
        padding_upper=given.per_side("padding", "upper", len(field)),
        channels=given.integer("channels", 1),
        batch=given.integer("batch-size", 1),
    )
    dtype = as_element_type(given.text("data-type", "half"))
    group = given.integer("fwd-chans-per-group", 0) or None
    prog = Sequence()
    acts = create_activations(graph, dtype, params.in_shape, "acts", group=group)
    pooled = popnn.pool(graph, acts, params, prog, name="fwd")
    if given.flag("inference-only"):
        return prog
    grads_group = given.integer("bwd-chans-per-group", 0) or group
    grads = create_activations(graph, dtype, params.out_shape, "grads", group=grads_group)
    saved = (acts, pooled) if params.kind == "max" else (None, None)
    scaled = given.flag("scaled-gradient")
    popnn.pool_input_gradient(graph, params, grads, *saved, prog=prog, use_scaled_gradient=scaled, name="bwd")
    return prog
