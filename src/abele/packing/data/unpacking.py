"""Results of a model on rows, as one array for each sample, in the order that samples had."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from abele.arrays import Array, Int64
from abele.errors import PackedDataError, PackMembersError
from abele.packing.data.ragged import Ragged, as_numbers, expanded, offsets_of
from abele.words import counted


def unpack_elements(
    values: Any, batch: Mapping[str, Any], *, ids: str = "sequence_ids", positions: str = "position_ids"
) -> tuple[Int64, Ragged]:
    """Values of elements (tokens, frames) by sample.

    Args:
        values: Results of a model for each element of some rows, [num_rows, capacity, …]; an array or a tensor.
        batch: The batch that it was given, with ``samples``, ids and positions.
        ids: Name of the sequence ids in the batch.
        positions: Name of the positions in the batch, counted from 0.

    Returns:
        The numbers of the samples in rising order, int64[num_sequences], and the values of each.

    Raises:
        PackedDataError: The batch has no such arrays, they differ from the values in shape, or positions do not count
            the elements of each sequence from 0.
    """
    array, owner = as_numbers(values, "values"), _array(batch, ids)
    numbers, position = _array(batch, "samples"), _array(batch, positions)
    if array.shape[:2] != owner.shape or position.shape != owner.shape:
        raise PackedDataError(
            f"values of shape {list(array.shape)} for {ids} of shape {list(owner.shape)}",
            remedy="[num_rows, capacity, …], in the rows that the batch has",
        )
    depth = numbers.shape[1]
    places = np.flatnonzero(owner)
    cell = places // owner.shape[1] * depth + owner.reshape(-1)[places] - 1
    counts = np.bincount(cell, minlength=numbers.size)
    cells = np.flatnonzero(numbers.reshape(-1) >= 0)
    if len(cells) != np.count_nonzero(counts) or (counts[cells] == 0).any():
        raise PackedDataError(f"{ids} and samples of the batch name different sequences")
    cells = cells[np.argsort(numbers.reshape(-1)[cells], kind="stable")]
    offsets = offsets_of(counts[cells])
    begin_of_cell = np.zeros(numbers.size, np.int64)
    begin_of_cell[cells] = offsets[:-1]
    own_position = position.reshape(-1)[places].astype(np.int64)
    target = begin_of_cell[cell] + own_position
    if own_position.min(initial=0) < 0 or (own_position >= counts[cell]).any() or not _is_permutation(target):
        raise PackedDataError(
            f"{positions} do not count each sequence from 0", remedy="positions=, or a batch that has them"
        )
    source = np.empty(len(target), np.int64)
    source[target] = places
    flat = array.reshape(-1, *array.shape[2:])
    return numbers.reshape(-1)[cells].astype(np.int64), Ragged(flat[source], offsets)


def unpack_sequences(values: Any, batch: Mapping[str, Any]) -> tuple[Int64, Array]:
    """Values of sequences (classes, scores) by sample.

    Args:
        values: Results of a model for each sequence of some rows, [num_rows, depth, …].
        batch: The batch that it was given, with ``samples``.

    Returns:
        The numbers of the samples in rising order, int64[num_sequences], and the value of each.

    Raises:
        PackedDataError: Another number of rows or sequences.
    """
    array, numbers = as_numbers(values, "values"), _array(batch, "samples")
    if array.shape[:2] != numbers.shape:
        raise PackedDataError(
            f"values of shape {list(array.shape)} for samples of shape {list(numbers.shape)}",
            remedy="[num_rows, depth, …]",
        )
    flat = numbers.reshape(-1)
    cells = np.flatnonzero(flat >= 0)
    cells = cells[np.argsort(flat[cells], kind="stable")]
    return flat[cells].astype(np.int64), array.reshape(-1, *array.shape[2:])[cells]


class Collected:
    """Results of many batches, until there is one for each sample.

    Args:
        num_samples: Number of samples.
    """

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples
        self._numbers: list[Int64] = []
        self._values: list[Ragged | Array] = []

    def add_elements(self, values: Any, batch: Mapping[str, Any], **names: str) -> None:
        """Take what a model gave for each element of a batch; as :func:`unpack_elements`."""
        numbers, found = unpack_elements(values, batch, **names)
        self._add(numbers, found)

    def add_sequences(self, values: Any, batch: Mapping[str, Any]) -> None:
        """Take what a model gave for each sequence of a batch; as :func:`unpack_sequences`."""
        self._add(*unpack_sequences(values, batch))

    def _add(self, numbers: Int64, values: Ragged | Array) -> None:
        if self._values and isinstance(values, Ragged) != isinstance(self._values[0], Ragged):
            raise PackedDataError(
                "values of elements and of sequences do not go together", remedy="a Collected for each"
            )
        self._numbers.append(numbers)
        self._values.append(values)

    def in_order(self) -> Ragged | Array:
        """The results of sample 0, 1, 2 and so on.

        Raises:
            PackMembersError: Samples without a result, with several, or beyond the number of samples.
        """
        if not self._values:
            raise PackMembersError("no results were added", remedy="add_elements or add_sequences for every batch")
        numbers = np.concatenate(self._numbers)
        if numbers.max(initial=-1) >= self.num_samples:
            raise PackMembersError(f"a result of sample {numbers.max()}, and there are {self.num_samples:,}")
        times = np.bincount(numbers, minlength=self.num_samples)
        wrong = np.flatnonzero(times != 1)
        if len(wrong):
            raise PackMembersError(
                f"sample {wrong[0]} has {counted(int(times[wrong[0]]), 'result')}",
                because=f"{counted(len(wrong), 'sample')} of {self.num_samples:,} have none, or several",
                remedy="every batch once, with none dropped (drop_last=False)",
            )
        order = np.argsort(numbers, kind="stable")
        ragged = [part for part in self._values if isinstance(part, Ragged)]
        if not ragged:
            return np.concatenate([part for part in self._values if not isinstance(part, Ragged)])[order]
        joined = np.concatenate([part.own_values for part in ragged])
        lengths = np.concatenate([part.lengths for part in ragged])
        begins = np.cumsum(lengths) - lengths
        return Ragged(joined[expanded(begins[order], lengths[order])], offsets_of(lengths[order]))


def _array(batch: Mapping[str, Any], name: str) -> Array:
    if name not in batch:
        raise PackedDataError(
            f"unpacking needs {name!r}, which the batch does not have", remedy=f"derive= with {name!r} among the names"
        )
    array = as_numbers(batch[name], name)
    if array.ndim != 2:
        raise PackedDataError(f"{name!r} has the shape [num_rows, …] with two dimensions, got {list(array.shape)}")
    return array


def _is_permutation(target: Int64) -> bool:
    seen = np.zeros(len(target), bool)
    seen[target] = True
    return bool(seen.all())
