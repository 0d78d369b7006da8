"""Norms: batch, group, layer and instance norm, each with statistics, whitening and gradients."""

from abele.poplibs.popnn.norms import create
from abele.poplibs.popnn.norms.batch import (
    batch_norm_gradients,
    batch_norm_param_gradients,
    batch_norm_param_update,
    batch_norm_statistics,
    batch_norm_whiten,
    batch_normalise,
    batch_normalise_inference,
    distributed_batch_norm_gradients,
    distributed_batch_norm_statistics,
)
from abele.poplibs.popnn.norms.create import *  # noqa: F403
from abele.poplibs.popnn.norms.group import (
    group_norm_gradients,
    group_norm_param_gradients,
    group_norm_param_update,
    group_norm_statistics,
    group_norm_whiten,
    group_normalise,
)
from abele.poplibs.popnn.norms.instance import (
    instance_norm_gradients,
    instance_norm_param_gradients,
    instance_norm_param_update,
    instance_norm_statistics,
    instance_norm_whiten,
    instance_normalise,
)
from abele.poplibs.popnn.norms.layer import (
    layer_norm_gradients,
    layer_norm_param_gradients,
    layer_norm_param_update,
    layer_norm_statistics,
    layer_norm_whiten,
    layer_normalise,
)

__all__ = [
    "batch_norm_gradients",
    "batch_norm_param_gradients",
    "batch_norm_param_update",
    "batch_norm_statistics",
    "batch_norm_whiten",
    "batch_normalise",
    "batch_normalise_inference",
    "distributed_batch_norm_gradients",
    "distributed_batch_norm_statistics",
    "group_norm_gradients",
    "group_norm_param_gradients",
    "group_norm_param_update",
    "group_norm_statistics",
    "group_norm_whiten",
    "group_normalise",
    "instance_norm_gradients",
    "instance_norm_param_gradients",
    "instance_norm_param_update",
    "instance_norm_statistics",
    "instance_norm_whiten",
    "instance_normalise",
    "layer_norm_gradients",
    "layer_norm_param_gradients",
    "layer_norm_param_update",
    "layer_norm_statistics",
    "layer_norm_whiten",
    "layer_normalise",
    *create.__all__,
]
