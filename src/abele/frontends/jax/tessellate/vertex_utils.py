"""Shares of a vector for each of a tile's workers, as vertices take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.arrays import Array
from abele.errors import TensorError
from abele.frontends.jax.tessellate.types import user_line

WORKERS = 6


def make_num_elements_per_worker(N: int, num_workers: int = WORKERS) -> Array:
    """Elements of each worker, int32[num_workers]: as equal as can be, the first workers with one more.

    >>> make_num_elements_per_worker(8, 6)
    array([2, 2, 1, 1, 1, 1], dtype=int32)
    """
    each, more = divmod(int(N), num_workers)
    return np.array([each + (n < more) for n in range(num_workers)], np.int32)


def make_ipu_vector1d_worker_offsets(
    size: int,
    vector_size: int = 2,
    num_workers: int = WORKERS,
    wdtype: Any = np.uint16,
    allow_overlap: bool = False,
) -> Array:
    """First vector of each worker and the end of the last, [num_workers + 1], counted in vectors.

    Workers get as many vectors each until none are left; the last ones may get none.

    >>> make_ipu_vector1d_worker_offsets(20, 2)
    array([ 0,  2,  4,  6,  8, 10, 10], dtype=uint16)

    Args:
        size: Elements.
        vector_size: Elements of a vector, 2 for float and 4 for half.
        num_workers: Number of workers.
        wdtype: Type of the offsets.
        allow_overlap: True where the last vector may begin before the end of the one before it, if ``vector_size``
            does not divide ``size``.

    Raises:
        TensorError: Vectors do not divide the elements.
    """
    if size < vector_size or (size % vector_size and not allow_overlap):
        raise TensorError(
            f"{size} elements in vectors of {vector_size}",
            at=user_line(),
            remedy="pad the array, or allow_overlap=True",
        )
    vectors = -(-size // vector_size)
    each = -(-vectors // num_workers)
    return np.minimum(np.arange(num_workers + 1) * each, vectors).astype(wdtype)


def make_ipu_vector1d_worker_offsets_and_sizes(
    size: int,
    vector_size: int = 2,
    num_workers: int = WORKERS,
    wdtype: Any = np.uint16,
    allow_overlap: bool = False,
) -> Array:
    """First vector and number of vectors of each worker, [num_workers, 2]; arguments as of
    :func:`make_ipu_vector1d_worker_offsets`."""
    offsets = make_ipu_vector1d_worker_offsets(size, vector_size, num_workers, wdtype, allow_overlap)
    return np.stack([offsets[:-1], offsets[1:] - offsets[:-1]], axis=1).astype(wdtype)
