"""Place of each sequence in its row: the geometry that all fields of a batch share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.packing.data.ragged import Ragged, expanded
from abele.packing.data.row_shape import RowShape


@dataclass(frozen=True, eq=False)
class SequenceLayout:
    """The sequences of some rows, in the order of their rows and of their places in them.

    Attributes:
        shape: Capacity of a row.
        num_rows: Number of rows; some may be empty.
        samples: Number of the sample that each sequence is, int64[num_sequences].
        rows: The row of each sequence, int64[num_sequences], not falling.
        slots: Its number in the row, from 0; int64[num_sequences].
        lengths: By axis, the length of each sequence; int64[num_sequences].
        begins: By axis, its first place in the row; int64[num_sequences]. Where first elements lie at the end of rows,
            it is that of the second element.
    """

    shape: RowShape
    num_rows: int
    samples: Int64
    rows: Int64
    slots: Int64
    lengths: Mapping[str, Int64]
    begins: Mapping[str, Int64]
    _targets: dict[str, Int64] = field(default_factory=dict, repr=False)
    _sources: dict[int, tuple[Int64, Int64]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, packs: Ragged, lengths: Mapping[str, Int64], shape: RowShape) -> SequenceLayout:
        """The layout of packs whose members fit.

        Args:
            packs: Numbers of the samples of each row.
            lengths: By axis, the length of every sample that there is, int64[num_samples].
            shape: Capacity of a row.
        """
        samples, depths = packs.own_values, packs.lengths
        rows = np.repeat(np.arange(len(packs)), depths)
        first = np.repeat(packs.offsets[:-1] - packs.offsets[0], depths)
        own = {axis: of_axis[samples] for axis, of_axis in lengths.items()}
        begins = {axis: _begins(shape.needs(of_axis, axis), first) for axis, of_axis in own.items()}
        slots = np.arange(len(samples)) - first
        return cls(shape, len(packs), samples, rows, slots, lengths=own, begins=begins)

    def targets(self, axis: str) -> Int64:
        """Destinations of the elements of all sequences in an array [num_rows · capacity], int64[num_elements]."""
        if axis not in self._targets:
            capacity, lengths = self.shape.capacity_of(axis), self.lengths[axis]
            if self.shape.leads(axis):
                targets = expanded(self.rows * capacity + self.begins[axis] - 1, lengths)
                targets[np.cumsum(lengths) - lengths] = self.rows * capacity + self.places(axis, 0)
            else:
                targets = expanded(self.rows * capacity + self.begins[axis], lengths)
            self._targets[axis] = targets
        return self._targets[axis]

    def places(self, axis: str, within: npt.ArrayLike, sequences: Int64 | slice = slice(None)) -> Int64:
        """Places in rows of elements that are counted from the start of their sequence.

        Args:
            axis: Axis that is counted.
            within: Place in its sequence of each, int[num_places, …] or a number.
            sequences: The sequence of each, int64[num_places]; by default one for each sequence in turn.
        """
        counted = np.asarray(within)
        extra = [1] * (counted.ndim - 1)
        begins = self.begins[axis][sequences].reshape(-1, *extra)
        if not self.shape.leads(axis):
            return np.asarray(begins + counted, np.int64)
        at_end = self.shape.capacity_of(axis) - self.shape.depth + self.slots[sequences].reshape(-1, *extra)
        return np.where(counted == 0, at_end, begins + counted - 1)

    def gathered(self, column: Ragged, axis: str, padding: float) -> Array:
        """A field of an axis in rows, array[num_rows, capacity, …]."""
        return self.filled(column.values[self._source(column.offsets)], axis, padding)

    def _source(self, offsets: Int64) -> Int64:
        """Places of all sequences' elements in values with these offsets, which fields of an axis often share."""
        known = self._sources.get(id(offsets))
        if known is None or known[0] is not offsets:
            begins = offsets[:-1][self.samples]
            known = self._sources[id(offsets)] = offsets, expanded(begins, offsets[1:][self.samples] - begins)
        return known[1]

    def filled(self, values: Array, axis: str, padding: float) -> Array:
        """Values of the elements of all sequences, array[num_elements, …], in rows; array[num_rows, capacity, …]."""
        capacity, inner = self.shape.capacity_of(axis), values.shape[1:]
        made = _full((self.num_rows * capacity, *inner), padding, values.dtype)
        made[self.targets(axis)] = values
        return made.reshape(self.num_rows, capacity, *inner)

    def by_slot(self, values: Array, padding: float) -> Array:
        """A value for each sequence, array[num_sequences, …], by row and slot; array[num_rows, depth, …]."""
        made = _full((self.num_rows, self.shape.depth, *values.shape[1:]), padding, values.dtype)
        made[self.rows, self.slots] = values
        return made

    def each(self, axis: str, of_sequence: Array) -> Array:
        """A value of each sequence for each of its elements, array[num_elements, …]."""
        return np.repeat(of_sequence, self.lengths[axis], axis=0)

    def positions(self, axis: str) -> Int64:
        """Place of every element in its own sequence, int64[num_elements]."""
        return expanded(np.zeros(len(self.samples), np.int64), self.lengths[axis])


def _begins(needs: Int64, first: Int64) -> Int64:
    """First element of each sequence in its row, by its elements and the number of its row's first sequence."""
    before = np.cumsum(needs) - needs
    return before - before[first]


def _full(shape: tuple[int, ...], padding: float, dtype: np.dtype[Any]) -> Array:
    # Memory of zeros is made by the system when it is first touched, which filling it would do twice.
    return np.zeros(shape, dtype) if padding == 0 else np.full(shape, padding, dtype)
