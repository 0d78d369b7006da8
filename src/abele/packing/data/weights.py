"""Sums and weights by sequence: what makes each sequence count alike, however many share a row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import PackedDataError


def _cells(sequence_ids: Array, depth: int) -> npt.NDArray[np.int64]:
    """A number of its own for each sequence and for the padding of each row, int64[rows, length]."""
    if sequence_ids.ndim != 2 or sequence_ids.dtype.kind not in "iu":
        raise PackedDataError(
            f"sequence ids are whole numbers of the shape [rows, length], got {sequence_ids.dtype}"
            f"{list(sequence_ids.shape)}"
        )
    if sequence_ids.size and (sequence_ids.min() < 0 or sequence_ids.max() > depth):
        raise PackedDataError(
            f"sequence ids from {sequence_ids.min()} to {sequence_ids.max()} in rows of {depth}",
            remedy="ids are 1 to depth, and 0 for padding",
        )
    return sequence_ids + np.arange(len(sequence_ids))[:, None] * (depth + 1)


def sums_by_sequence(values: npt.ArrayLike, sequence_ids: npt.ArrayLike, depth: int) -> npt.NDArray[np.float64]:
    """The sum of the values of each sequence.

    Args:
        values: One for each element, [rows, length].
        sequence_ids: The sequence of each, 1 to depth, 0 for padding; int[rows, length].
        depth: Sequences of a row at most.

    Returns:
        float64[rows, depth].

    Raises:
        PackedDataError: Shapes that differ, or ids outside 0 to depth.
    """
    ids, given = np.asarray(sequence_ids), np.asarray(values)
    if given.shape != ids.shape:
        raise PackedDataError(f"values of shape {list(given.shape)} for ids of shape {list(ids.shape)}")
    cells = _cells(ids, depth)
    sums = np.bincount(cells.ravel(), given.ravel(), minlength=len(ids) * (depth + 1))
    return np.asarray(sums.reshape(len(ids), depth + 1)[:, 1:], np.float64)


def sequence_weights(sequence_ids: npt.ArrayLike, counted: npt.ArrayLike, depth: int) -> npt.NDArray[np.float32]:
    """A weight for each element by which the losses of each sequence make a mean.

    Args:
        sequence_ids: The sequence of each element, 1 to depth, 0 for padding; int[rows, length].
        counted: True for elements that have a loss, bool[rows, length].
        depth: Sequences of a row at most.

    Returns:
        float32[rows, length]: one over the number of counted elements of the same sequence, 0 for all others. The sum
        of weighted losses over the number of sequences is the mean over sequences of their mean loss.
    """
    ids, has_loss = np.asarray(sequence_ids), np.asarray(counted, bool)
    counts = sums_by_sequence(has_loss & (ids > 0), ids, depth)
    inverse = np.zeros((len(ids), depth + 1), np.float32)
    np.divide(1, counts, out=inverse[:, 1:], where=counts > 0, casting="unsafe")
    return np.where(has_loss, np.take_along_axis(inverse, ids.astype(np.int64), 1), np.float32(0))


def accuracy_by_sequence(
    predictions: npt.ArrayLike, labels: npt.ArrayLike, sequence_ids: npt.ArrayLike, *, depth: int, ignore: int = -100
) -> npt.NDArray[np.float64]:
    """The part of each sequence's labels that is predicted rightly.

    Args:
        predictions: Predicted classes, int[rows, length].
        labels: Right classes, ``ignore`` where there is none; int[rows, length].
        sequence_ids: The sequence of each element, 1 to depth, 0 for padding; int[rows, length].
        depth: Sequences of a row at most.
        ignore: The label that counts for none.

    Returns:
        float64[rows, depth]; NaN for sequences without labels and for those that are not there, so that
        ``numpy.nanmean`` is the accuracy by which each sequence counts alike, and ``== 1`` says which are right as a
        whole.
    """
    right, wanted = np.asarray(predictions) == np.asarray(labels), np.asarray(labels) != ignore
    hits = sums_by_sequence(right & wanted, sequence_ids, depth)
    counts = sums_by_sequence(wanted, sequence_ids, depth)
    return np.divide(hits, counts, out=np.full_like(hits, np.nan), where=counts > 0)
