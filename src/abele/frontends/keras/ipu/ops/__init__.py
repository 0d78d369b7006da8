"""``ipu.ops``: operations under the names of the IPU's modules."""

from abele.frontends.keras.ipu import pipelining_ops
from abele.frontends.keras.ipu.ops import (
    all_to_all_op,
    cross_replica_ops,
    custom_ops,
    embedding_ops,
    functional_ops,
    internal_ops,
    math_ops,
    nn_ops,
    reduce_scatter_op,
    replication_ops,
    within_replica_ops,
)

__all__ = [
    "all_to_all_op",
    "cross_replica_ops",
    "custom_ops",
    "embedding_ops",
    "functional_ops",
    "internal_ops",
    "math_ops",
    "nn_ops",
    "pipelining_ops",
    "reduce_scatter_op",
    "replication_ops",
    "within_replica_ops",
]
