"""Batch norms whose statistics are those of several replicas.

Keras computes the moments of a batch in one method of the layer. While a step is traced for replicas that share
statistics, means are those over a group, and variances are means over it of squared distances from that mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from abele.errors import InvalidOptionError, UnsupportedOpError
from abele.frontends.keras.ipu.config import get_ipu_config
from abele.frontends.keras.private import BatchNormalization, keras

OPTION = "norms.experimental.distributed_batch_norm_replica_group_size"


@contextmanager
def shared_statistics(replicas: int) -> Iterator[None]:
    """Batch norms that are traced inside take the statistics of a group of consecutive replicas, if one is configured.

    Raises:
        InvalidOptionError: The replicas do not divide into such groups.
    """
    size = get_ipu_config().norms.experimental.distributed_batch_norm_replica_group_size
    if size == 1:
        yield
        return
    if replicas % size:
        raise InvalidOptionError(f"{OPTION} is {size}, and the program has {replicas} replicas", remedy="a divisor")

    own = BatchNormalization._moments

    def moments(self: Any, inputs: Any, mask: Any) -> tuple[Any, Any]:
        if mask is not None:
            raise UnsupportedOpError(
                f"{self.name} has a mask, and {OPTION} is {size}", remedy=f"{OPTION} = 1, or no mask"
            )
        over = tuple(self._reduction_axes)
        mean = _mean(keras.ops.mean(inputs, over, keepdims=True), size)
        variance = _mean(keras.ops.mean(keras.ops.square(inputs - mean), over), size)
        return keras.ops.squeeze(mean, over), variance

    BatchNormalization._moments = moments
    try:
        yield
    finally:
        BatchNormalization._moments = own


def _mean(x: Any, size: int) -> Any:
    from abele.frontends.keras.ipu.ops.cross_replica_ops import cross_replica_mean  # It imports models' scopes.

    return cross_replica_mean(x, size)
