"""``PackedRows``: samples and packs as rows, gathered when they are asked for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import PackMembersError
from abele.packing.data.derived import Batch
from abele.packing.data.fields import Field
from abele.packing.data.layout import SequenceLayout
from abele.packing.data.membership import checked_packs
from abele.packing.data.ragged import Ragged, whole_numbers
from abele.packing.data.row_shape import RowShape
from abele.packing.data.samples import Samples
from abele.packing.packs import Packs

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
