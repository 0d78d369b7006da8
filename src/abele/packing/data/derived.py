"""Arrays derived from packed rows beside the fields of their samples: ids, positions, lengths, masks, loss weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from abele.arrays import Array
from abele.errors import PackedDataError, PaddingError, nearest
from abele.packing.data.fields import TOKENS
from abele.packing.data.layout import SequenceLayout

# Masks of attention: which elements of a row see which.

DECK_MASK_VALUE = -1000.0
"""Number added to masked scores in float16. Source: deck 004, "Adjusting the model"."""


def block_mask(
    sequence_ids: npt.ArrayLike, *, positions: npt.ArrayLike | None = None, padding_sees_padding: bool = True
) -> npt.NDArray[np.bool_]:
    """True where an element may see another: both of one sequence.

    Args:
        sequence_ids: The sequence of each element, 0 for padding; int[…, length].
        positions: Place of each in its sequence, int[…, length], if none may see those after itself.
        padding_sees_padding: True for deck 004's mask, in which padding is a block too. No row of it is empty, so that
            no softmax is of nothing; False for kernels that expect empty rows.

    Returns:
        bool[…, length, length]; the last dimension is what is seen.

    Raises:
        PackedDataError: Positions of another shape.
    """
    ids = np.asarray(sequence_ids)
    mask: npt.NDArray[np.bool_] = ids[..., :, None] == ids[..., None, :]
    if positions is not None:
        places = np.asarray(positions)
        if places.shape != ids.shape:
            raise PackedDataError(f"positions of shape {list(places.shape)} for ids of shape {list(ids.shape)}")
        # Padding has no positions of its own and lies in the order of its places, all of which are equal.
        mask &= places[..., :, None] >= places[..., None, :]
    if not padding_sees_padding:
        mask &= (ids > 0)[..., :, None]
    return mask


def additive_mask(
    mask: npt.NDArray[np.bool_], *, value: float = DECK_MASK_VALUE, dtype: npt.DTypeLike = np.float16
) -> Array:
    """Array to add to scores: 0 where a mask is True, ``value`` elsewhere.

    Args:
        mask: True for elements that see each other, bool[…].
        value: A number, or minus infinity.
        dtype: Type of the scores.

    Raises:
        PaddingError: A number that the type cannot hold, such as -1e9 in float16, or that is not negative.
        PackedDataError: A mask that is not boolean.
    """
    if np.asarray(mask).dtype != np.bool_:
        raise PackedDataError(f"a mask is boolean, True for what is seen; got {np.asarray(mask).dtype}")
    target: np.dtype[Any] = np.dtype(dtype)
    with np.errstate(over="ignore"):
        stored = float(np.asarray(value).astype(target))
    if not value < 0 or np.isinf(stored) != np.isinf(value):
        raise PaddingError(
            f"a mask adds a negative number that {target} holds, not {value:g}",
            because=f"{value:g} becomes {stored:g}",
            remedy=f"value={DECK_MASK_VALUE:g}, as in float16 training on the machine, or -numpy.inf",
        )
    return np.where(mask, np.asarray(0, target), np.asarray(value, target))


Batch = dict[str, Array]


class Derived(Protocol):
    """An array made for a batch of the layout and of the fields that are there already."""

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """The array; its first dimension is rows."""
        ...


@dataclass(frozen=True)
class SequenceIds:
    """The number of the sequence that each element belongs to, from 1 to depth, 0 for padding; int32[rows, capacity].

    On the axis of predictions these are the ``masked_lm_weights`` of packed BERT.

    Attributes:
        axis: The axis that it is of.
        step: Elements that a model makes one of (subsampling); ids are those of every ``step``-th.
    """

    axis: str = TOKENS
    step: int = 1

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        ids = layout.filled(layout.each(self.axis, (layout.slots + 1).astype(np.int32)), self.axis, 0)
        _check_step(layout, self.axis, self.step)
        return ids if self.step == 1 else np.ascontiguousarray(ids[:, :: self.step])


@dataclass(frozen=True)
class PositionIds:
    """The place of each element in its own sequence, 0 for padding; int32[rows, capacity].

    Attributes:
        axis: Axis that is counted.
        first: The position of the first element; RoBERTa counts from its padding id plus 1.
        padding: The position of padding.
        step: Elements that a model makes one of; positions are those of what it makes.
    """

    axis: str = TOKENS
    first: int = 0
    padding: int = 0
    step: int = 1

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        _check_step(layout, self.axis, self.step)
        positions = (layout.positions(self.axis) // self.step + self.first).astype(np.int32)
        rows = layout.filled(positions, self.axis, self.padding)
        return rows if self.step == 1 else np.ascontiguousarray(rows[:, :: self.step])


@dataclass(frozen=True)
class SequenceLengths:
    """The length of each sequence, 0 where a row has fewer than depth; int32[rows, depth].

    Attributes:
        axis: Axis that is counted.
        step: Elements that a model makes one of; lengths are divided by it and rounded up.
    """

    axis: str = TOKENS
    step: int = 1

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        _check_step(layout, self.axis, self.step)
        return layout.by_slot((-(-layout.lengths[self.axis] // self.step)).astype(np.int32), 0)


@dataclass(frozen=True)
class FirstPlaces:
    """The place in the row of each sequence's first element (CLS), 0 where there is none; int64[rows, depth].

    Attributes:
        axis: The axis that it is of.
        step: Elements that a model makes one of; places are divided by it.
    """

    axis: str = TOKENS
    step: int = 1

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        _check_step(layout, self.axis, self.step)
        return layout.by_slot(layout.places(self.axis, 0) // self.step, 0)


@dataclass(frozen=True)
class LastPlaces:
    """The place in the row of each sequence's last element, 0 where there is none; int64[rows, depth]."""

    axis: str = TOKENS

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        return layout.by_slot(layout.places(self.axis, layout.lengths[self.axis] - 1), 0)


@dataclass(frozen=True)
class SampleNumbers:
    """The number of the sample that each sequence is, -1 where there is none; int64[rows, depth]."""

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        return layout.by_slot(layout.samples, -1)


@dataclass(frozen=True)
class BlockMask:
    """Mask that is True between elements of one sequence; bool[rows, capacity, capacity].

    Attributes:
        axis: The axis that it is of.
        causal: True if elements see none after themselves.
    """

    axis: str = TOKENS
    causal: bool = False

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        positions = PositionIds(self.axis).of(layout, batch) if self.causal else None
        return block_mask(SequenceIds(self.axis).of(layout, batch), positions=positions)


@dataclass(frozen=True)
class LossWeights:
    """Weights of losses by which each sequence counts alike, float32[rows, capacity].

    A sequence of which ``n`` elements have a label has a weight of ``1 / n`` for each of these; all other weights are
    0.

    Attributes:
        labels: The field of labels; None where every element has one.
        ignore: The label that counts for none.
        axis: Axis that losses are of.
    """

    labels: str | None = "labels"
    ignore: int = -100
    axis: str = TOKENS

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        lengths = layout.lengths[self.axis]
        counted = self._counted(layout, batch)
        # Differences of running counts, because a sequence may have no elements on this axis.
        running = np.append(0, np.cumsum(counted))
        ends = np.cumsum(lengths)
        counts = running[ends] - running[ends - lengths]
        inverse = np.divide(1, counts, out=np.zeros(len(counts), np.float32), where=counts > 0, casting="unsafe")
        return layout.filled(layout.each(self.axis, inverse) * counted, self.axis, 0)

    def _counted(self, layout: SequenceLayout, batch: Batch) -> npt.NDArray[np.bool_]:
        """True for each element that has a label, bool[num_elements]."""
        targets = layout.targets(self.axis)
        if self.labels is None:
            return np.ones(len(targets), bool)
        if self.labels not in batch:
            close = nearest(self.labels, batch)
            raise PackedDataError(
                f"weights of losses need the field {self.labels!r}, which samples do not have"
                + (f"; there is {close!r}" if close else ""),
                remedy="LossWeights(labels=…), or None where every element has a label",
            )
        labels = batch[self.labels]
        if labels.shape[:2] != (layout.num_rows, layout.shape.capacity_of(self.axis)):
            raise PackedDataError(f"field {self.labels!r} has no label for each of the {self.axis}")
        own = labels.reshape(-1, *labels.shape[2:])[targets] != self.ignore
        return np.asarray(own.any(axis=tuple(range(1, own.ndim))), bool)


@dataclass(frozen=True)
class OwnerIds:
    """The number of the sequence that each element belongs to from 0, depth for padding; int64[rows, capacity].

    It is the ``batch`` vector of a graph network, whose padding makes a graph of its own.
    """

    axis: str

    def of(self, layout: SequenceLayout, batch: Batch) -> Array:
        """See the class."""
        return layout.filled(layout.each(self.axis, layout.slots), self.axis, layout.shape.depth)


def _check_step(layout: SequenceLayout, axis: str, step: int) -> None:
    """See that no step has elements of two sequences."""
    shape = layout.shape
    if step < 1 or shape.alignment.get(axis, 1) % step or shape.capacity_of(axis) % step:
        raise PackedDataError(
            f"a model that makes one of {step} {axis} mixes sequences that begin at multiples of "
            f"{shape.alignment.get(axis, 1)} in rows of {shape.capacity_of(axis):,}",
            remedy=f'RowShape(…, alignment={{"{axis}": {step}}}) and a capacity that {step} divides',
        )


BY_NAME: Mapping[str, Derived] = {
    "sequence_ids": SequenceIds(),
    "position_ids": PositionIds(),
    "sequence_lengths": SequenceLengths(),
    "first_places": FirstPlaces(),
    "last_places": LastPlaces(),
    "samples": SampleNumbers(),
    "block_mask": BlockMask(),
    "causal_block_mask": BlockMask(causal=True),
    "loss_weights": LossWeights(),
}
"""Derived arrays by the names that stand for them."""

BASIC = ("sequence_ids", "position_ids", "sequence_lengths", "samples")
"""Arrays that rows have unless told otherwise: enough to mask, to embed positions and to unpack results."""


def derived_by_name(wanted: Sequence[str] | Mapping[str, Derived]) -> dict[str, Derived]:
    """Derived arrays by the names that they have in batches.

    Raises:
        PackedDataError: A name alone that stands for none.
    """
    if isinstance(wanted, Mapping):
        return dict(wanted)
    for name in wanted:
        if name not in BY_NAME:
            close = nearest(name, BY_NAME)
            raise PackedDataError(
                f"nothing derived is called {name!r}" + (f"; there is {close!r}" if close else ""),
                remedy=f"one of {', '.join(BY_NAME)}, or a mapping from names to such as SequenceIds('edges')",
            )
    return {name: BY_NAME[name] for name in wanted}


def cumulative_lengths(
    sequence_lengths: npt.ArrayLike, *, capacity: int | None = None
) -> tuple[npt.NDArray[np.int32], int]:
    """``cu_seqlens`` of variable-length attention, and the longest length.

    Args:
        sequence_lengths: Of each sequence by row, int[rows, depth], 0 for none.
        capacity: Elements of a row where rows are flattened with their padding, which then makes sequences of its own;
            None where padding is left out.

    Returns:
        int32[num_sequences + 1] that begins with 0 and ends with the number of elements, and the greatest length.

    Raises:
        PackedDataError: Lengths of another shape, negative or beyond the capacity; more elements than int32 counts.

    Source: the arguments ``cu_seqlens_q`` and ``max_seqlen_q`` of flash attention's variable-length functions.
    """
    lengths = np.asarray(sequence_lengths, np.int64)
    if lengths.ndim != 2 or (lengths < 0).any():
        raise PackedDataError(f"lengths are at least 0 and have the shape [rows, depth], got {list(lengths.shape)}")
    if capacity is not None:
        rest = capacity - lengths.sum(1, keepdims=True)
        if (rest < 0).any():
            raise PackedDataError(f"row {np.argmax(rest < 0)} has more than {capacity:,} elements")
        lengths = np.concatenate([lengths, rest], 1)
    there = lengths[lengths > 0]
    ends = np.cumsum(there)
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise PackedDataError(
            f"{ends[-1]:,} elements in one call are more than int32 counts", remedy="fewer rows at a time"
        )
    return np.concatenate([[0], ends]).astype(np.int32), int(there.max(initial=0))
