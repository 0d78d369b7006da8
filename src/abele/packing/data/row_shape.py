"""The shape of rows of packed data: how much of each axis a row holds, and of how many sequences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import PackedDataError, SampleLengthError
from abele.packing.data.fields import TOKENS


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
    if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < least:
        raise PackedDataError(f"{what} is a whole number of at least {least}, not {number!r}")
