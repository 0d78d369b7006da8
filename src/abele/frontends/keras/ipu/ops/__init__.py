"""``ipu.ops``: operations under the names of the IPU's modules."""

from abele.frontends.keras.ipu import former, pipelining_ops
from abele.frontends.keras.ipu.ops import (
    all_to_all_op,
    cross_replica_ops,
    custom_ops,
    embedding_ops,
    functional_ops,
    image_ops,
    internal_ops,
    math_ops,
    nn_ops,
    rand_ops,
    reduce_scatter_op,
    replication_ops,
    statistics_ops,
    within_replica_ops,
)

globals().update({name: former.MODULES[name] for name in former.OPS})

__all__ = [
    "all_to_all_op",
    "cross_replica_ops",
    "custom_ops",
    "embedding_ops",
    "functional_ops",
    "image_ops",
    "internal_ops",
    "math_ops",
    "nn_ops",
    "pipelining_ops",
    "rand_ops",
    "reduce_scatter_op",
    "replication_ops",
    "statistics_ops",
    "within_replica_ops",
]
