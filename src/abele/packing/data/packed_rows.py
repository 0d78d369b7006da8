"""``PackedRows``: samples and packs as rows, gathered when they are asked for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import PackedDataError, PackMembersError
from abele.packing.data.derived import Batch
from abele.packing.data.fields import Field
from abele.packing.data.layout import RowShape, SequenceLayout
from abele.packing.data.ragged import Ragged, whole_numbers
from abele.packing.data.samples import Samples
from abele.packing.packs import Packs
from abele.words import counted

# Check that packs fit samples and rows, once, before anything is gathered.


def checked_packs(packs: Packs, samples: Samples, shape: RowShape, *, partial: bool) -> Ragged:
    """The members of packs that fit.

    Args:
        packs: Items that lie together.
        samples: Samples to pack.
        shape: Capacity of a row.
        partial: True if packs may leave samples out, as those of one rank do.

    Raises:
        PackMembersError: A sample that does not exist, that two slots hold, or that is left out; more sequences in a
            pack than depth, or more elements than the room of a row.
        PackedDataError: Rows without a capacity for an axis of the samples, with one that samples do not have, or
            without the spare place that padding points to.
    """
    members = Ragged(whole_numbers(packs.items, "items of packs"), packs.begins)
    _check_axes(samples, shape)
    _check_spare(samples, shape)
    _check_items(members.own_values, len(samples), partial)
    _check_depth(members.lengths, shape)
    for axis, lengths in samples.lengths_by_axis.items():
        _check_room(members, shape.needs(lengths, axis), shape, axis)
    return members


def _check_axes(samples: Samples, shape: RowShape) -> None:
    for axis in samples.axes:
        shape.capacity_of(axis)
    for axis in shape.axes:
        if axis not in samples.axes:
            raise PackedDataError(
                f"rows have a capacity for {axis}, of which samples have none",
                remedy=f"axes: {', '.join(samples.axes)}",
            )


def _check_spare(samples: Samples, shape: RowShape) -> None:
    for name, field in samples.fields.items():
        if field.padding_to_last and field.points_to is not None and shape.spare.get(field.points_to, 0) < 1:
            raise PackedDataError(
                f"padding of {name!r} points to the last of the {field.points_to}, which a sequence may hold",
                remedy=f'RowShape(…, spare={{"{field.points_to}": 1}}) leaves one empty in every row',
            )


def _check_items(items: Int64, num_samples: int, partial: bool) -> None:
    unknown = np.flatnonzero((items < 0) | (items >= num_samples))
    if len(unknown):
        raise PackMembersError(
            f"packs hold sample {items[unknown[0]]}, and there are {num_samples:,}",
            remedy="packs made of the lengths of these samples",
        )
    times = np.bincount(items, minlength=num_samples)
    if times.max(initial=0) > 1:
        raise PackMembersError(
            f"packs hold sample {times.argmax()} {times.max()} times",
            because=f"{counted(int((times > 1).sum()), 'sample')} of {num_samples:,} are held more than once",
            remedy="each sample once; samples.split(…) before packing, where long ones are to be cut",
        )
    left_out = np.flatnonzero(times == 0)
    if len(left_out) and not partial:
        raise PackMembersError(
            f"packs leave out {counted(len(left_out), 'sample')} of {num_samples:,}, the first is {left_out[0]}",
            remedy="partial=True where packs are a part of all, such as those of one rank",
        )


def _check_depth(depths: Int64, shape: RowShape) -> None:
    if depths.max(initial=0) > shape.depth:
        pack = int(depths.argmax())
        raise PackMembersError(
            f"pack {pack} holds {depths[pack]} sequences, and rows have a depth of {shape.depth}",
            remedy=f"pack with a depth of {shape.depth}, or rows of depth {depths[pack]}",
        )


def _check_room(members: Ragged, needs: Int64, shape: RowShape, axis: str) -> None:
    ends = np.append(0, np.cumsum(needs[members.own_values]))
    begins = members.offsets - members.offsets[0]
    taken = ends[begins[1:]] - ends[begins[:-1]]
    room = shape.room(axis)
    if taken.max(initial=0) > room:
        pack, capacity = int(taken.argmax()), shape.capacity_of(axis)
        terms = [f"capacity {capacity:,}"]
        if shape.spare.get(axis):
            terms.append(f"spare {shape.spare[axis]}")
        if shape.leads(axis):
            terms.append(f"first tokens at the end {shape.depth}")
        if shape.alignment.get(axis, 1) > 1:
            terms.append(f"begins at multiples of {shape.alignment[axis]}")
        raise PackMembersError(
            f"pack {pack} takes {taken[pack]:,} {axis}, and a row has room for {room:,}",
            because=" · ".join(terms),
            remedy="pack shape.needs(samples.lengths) to a capacity of shape.room(), or split what is too long",
        )


ELEMENTS_AT_ONCE = 1 << 19
"""Elements of the first axis that are gathered in one go, so that their indices stay in the processor's caches."""


class PackedRows:
    """Rows of packed data by number; all have the shapes that ``shape`` says.

    Gathering is by arrays: a batch costs a few passes over its elements, whatever the number of its samples.

    Args:
        samples: Samples to pack.
        packs: Samples that lie together; row ``i`` is pack ``i``.
        shape: Capacity of a row.
        partial: True if packs may leave samples out.

    Raises:
        PackMembersError: Packs that do not fit the samples or the shape.
        PackedDataError: Axes of samples and rows that differ.
    """

    def __init__(self, samples: Samples, packs: Packs, shape: RowShape, *, partial: bool = False) -> None:
        self.samples = samples
        self.packs = packs
        self.shape = shape
        self._members = checked_packs(packs, samples, shape, partial=partial)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.packs)

    def __getitem__(self, rows: int | slice | npt.ArrayLike) -> Batch:
        """Arrays by name: of one row, without a dimension for rows, or of several.

        Raises:
            IndexError: A row that there is not; plain, so that Python's own loops end.
        """
        if isinstance(rows, int | np.integer):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"row {rows} of {len(self)}")
            return {name: array[0] for name, array in self.take([int(rows) % len(self)]).items()}
        if isinstance(rows, slice):
            rows = np.arange(len(self))[rows]
        return self.take(rows)

    def layout(self, rows: npt.ArrayLike) -> SequenceLayout:
        """Places of the sequences of some rows.

        Args:
            rows: Their numbers, int[num_rows]. ``len(self)`` stands for a row without sequences, with which batches are
                filled up.

        Raises:
            PackMembersError: A row that there is not.
        """
        numbers = whole_numbers(rows, "rows").reshape(-1)
        if len(numbers) and (numbers.min() < 0 or numbers.max() > len(self)):
            raise PackMembersError(f"rows {numbers.min()} to {numbers.max()} of {len(self):,}")
        offsets = np.append(self._members.offsets, self._members.offsets[-1])
        chosen = Ragged(self._members.values, offsets).take(numbers)
        return SequenceLayout.of(chosen, self.samples.lengths_by_axis, self.shape)

    def take(self, rows: npt.ArrayLike) -> Batch:
        """Arrays by name, each [num_rows, …]: the fields of the samples, then derived arrays.

        Args:
            rows: Their numbers, int[num_rows]; ``len(self)`` for an empty row.
        """
        numbers = whole_numbers(rows, "rows").reshape(-1)
        at_once = max(1, ELEMENTS_AT_ONCE // self.shape.capacity_of(self.shape.axes[0]))
        if len(numbers) <= at_once:
            return self._gathered(numbers)
        made: Batch = {}
        for begin in range(0, len(numbers), at_once):
            for name, part in self._gathered(numbers[begin : begin + at_once]).items():
                if name not in made:
                    made[name] = np.empty((len(numbers), *part.shape[1:]), part.dtype)
                made[name][begin : begin + len(part)] = part
        return made

    def _gathered(self, numbers: Array) -> Batch:
        layout = self.layout(numbers)
        batch: Batch = {
            name: field_in_rows(layout, column, self.samples.fields[name])
            for name, column in self.samples.columns.items()
        }
        for name, derived in self.samples.derive.items():
            batch[name] = derived.of(layout, batch)
        return batch


def field_in_rows(layout: SequenceLayout, column: Ragged | Array, field: Field) -> Array:
    """One field of the sequences of a layout: array[num_rows, capacity, …], or [num_rows, depth, …] by sequence."""
    padding = (
        layout.shape.capacity_of(field.points_to) - 1 if field.padding_to_last and field.points_to else field.padding
    )
    if field.points_to is None:
        if isinstance(column, Ragged):
            assert field.axis is not None
            return layout.gathered(column, field.axis, padding)
        return layout.by_slot(column[layout.samples], padding)
    if not isinstance(column, Ragged):
        own = column[layout.samples]
        return layout.by_slot(_places(layout, field, own, slice(None), padding), padding)
    assert field.axis is not None
    taken = column.take(layout.samples)
    places = _places(layout, field, taken.values, taken.sequence_of_value, padding)
    return layout.filled(places, field.axis, padding)


def _places(layout: SequenceLayout, field: Field, within: Array, sequences: Array | slice, padding: float) -> Array:
    assert field.points_to is not None
    places = layout.places(field.points_to, within, sequences)
    if field.nowhere is not None:
        places = np.where(within == field.nowhere, int(padding), places)
    return places.astype(field.element_type(within), copy=False)
