"""Place of each sequence in its row: the geometry that all fields of a batch share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.counts import is_whole
from abele.errors import PackedDataError, SampleLengthError
from abele.packing.data.fields import TOKENS
from abele.packing.data.ragged import Ragged, expanded

# The shape of rows of packed data: how much of each axis a row holds, and of how many sequences.


@dataclass(frozen=True)
class RowShape:
    """Capacity of every row, so that all batches have the same shapes.

    Attributes:
        capacity: Elements of each axis; a number alone is that of ``tokens``.
        depth: Sequences that a row holds at most. Fields with one value for each sequence are padded to it.
        alignment: By axis, a number to a multiple of which sequences begin (frames that a model subsamples, blocks of
            attention); 1 for axes that are left out.
        spare: By axis, places that stay empty in every row, such as a node for padding edges to join; 0 if left out.
        first_at_end: True to put the first token of every sequence at the end of the row, at ``capacity - depth`` and
            up, whatever lies before: heads that read it (CLS) then slice the row. Source: deck 004's packed
            fine-tuning (`reference/packing.md` §5).

    Raises:
        PackedDataError: A capacity, depth or alignment below 1; an axis of another name; no room left.
    """

    capacity: int | Mapping[str, int]
    depth: int
    alignment: Mapping[str, int] = field(default_factory=dict)
    spare: Mapping[str, int] = field(default_factory=dict)
    first_at_end: bool = False

    def __post_init__(self) -> None:
        given = self.capacity
        capacity = dict(given) if isinstance(given, Mapping) else {TOKENS: given}
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "alignment", dict(self.alignment))
        object.__setattr__(self, "spare", dict(self.spare))
        _check_number("depth", self.depth, 1)
        if not capacity:
            raise PackedDataError("a row has a capacity for at least one axis", remedy='capacity={"tokens": 512}')
        for axis, number in capacity.items():
            _check_number(f"the capacity of {axis}", number, 1)
        for what, numbers, least in (("alignment", self.alignment, 1), ("spare", self.spare, 0)):
            for axis, number in numbers.items():
                self.capacity_of(axis)
                _check_number(f"{what} of {axis}", number, least)
        for axis in capacity:
            if self.room(axis) < 1:
                raise PackedDataError(f"rows of {capacity[axis]:,} {axis} have no room left for sequences")

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes; the first is that whose first elements ``first_at_end`` moves."""
        assert not isinstance(self.capacity, int)
        return tuple(self.capacity)

    def capacity_of(self, axis: str) -> int:
        """Elements of an axis in each row.

        Raises:
            PackedDataError: Rows have no such axis.
        """
        assert not isinstance(self.capacity, int)
        if axis not in self.capacity:
            raise PackedDataError(
                f"rows have no capacity for {axis}; they have one for {', '.join(self.capacity)}",
                remedy=f'capacity={{…, "{axis}": …}}',
            )
        return self.capacity[axis]

    def leads(self, axis: str) -> bool:
        """True for the axis whose first elements lie at the end of rows."""
        return self.first_at_end and axis == self.axes[0]

    def room(self, axis: str | None = None) -> int:
        """The capacity that a packer has to keep to, in the measure of :meth:`needs`.

        Args:
            axis: Name of the axis; None for the first.
        """
        axis = self.axes[0] if axis is None else axis
        held_back = self.spare.get(axis, 0) + (self.depth if self.leads(axis) else 0)
        step = self.alignment.get(axis, 1)
        return int((self.capacity_of(axis) - held_back) // step * step)

    def needs(self, lengths: npt.ArrayLike, axis: str | None = None) -> Int64:
        """Sizes of sequences of these lengths as a packer counts them, int64[num_sequences].

        That is the lengths themselves, rounded up to the alignment, less the first token where it lies elsewhere.

        Raises:
            SampleLengthError: A sequence that has no elements but the first token, which leaves nothing to pack.
        """
        axis = self.axes[0] if axis is None else axis
        counts, step = np.asarray(lengths, np.int64), self.alignment.get(axis, 1)
        if self.leads(axis):
            alone = np.flatnonzero(counts < 2)
            if len(alone):
                raise SampleLengthError(
                    f"sample {alone[0]} has {counts[alone[0]]} {axis}; with first_at_end each has at least 2"
                )
            counts = counts - 1
        return counts if step == 1 else -(-counts // step) * step


def _check_number(what: str, number: object, least: int) -> None:
    if not is_whole(number) or number < least:
        raise PackedDataError(f"{what} is a whole number of at least {least}, not {number!r}")


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
