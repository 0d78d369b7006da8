"""``Ragged``: sequences of different length, one after the other in one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import SampleLengthError, TypeMismatchError


@dataclass(frozen=True, eq=False)
class Ragged:
    """Sequences by number: sequence ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: Elements of all sequences, array[total, …]; it may be mapped from a file, and may have gaps at its ends.
        offsets: First element of each sequence, and the end of the last; int64[num_sequences + 1], not falling.

    Raises:
        SampleLengthError: Offsets that fall, or leave ``values``.
        TypeMismatchError: Offsets that are no whole numbers; values that are no numbers.
    """

    values: Array
    offsets: Int64

    def __post_init__(self) -> None:
        values, offsets = as_numbers(self.values, "the values of a Ragged"), np.asarray(self.offsets)
        if offsets.ndim != 1 or not len(offsets) or offsets.dtype.kind not in "iu":
            raise TypeMismatchError(
                f"offsets are whole numbers in one dimension, got {offsets.dtype}{list(offsets.shape)}",
                remedy="num_sequences + 1 of them: Ragged.of_lengths(values, lengths) makes them of lengths",
            )
        offsets = offsets.astype(np.int64, copy=False)
        falls = np.flatnonzero(np.diff(offsets) < 0)
        if len(falls):
            raise SampleLengthError(f"sequence {falls[0]} ends before it begins: {_pair(offsets, falls[0])}")
        if values.ndim == 0 or offsets[0] < 0 or offsets[-1] > len(values):
            raise SampleLengthError(
                f"offsets from {offsets[0]:,} to {offsets[-1]:,} leave values of shape {list(values.shape)}"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def of_lengths(cls, values: npt.ArrayLike, lengths: npt.ArrayLike) -> Ragged:
        """Sequences of these lengths, int[num_sequences], that fill ``values``.

        Raises:
            SampleLengthError: A negative length, or lengths whose sum is not that of the values.
        """
        counts = np.asarray(lengths)
        made = cls(np.asarray(values), offsets_of(counts if len(counts) else counts.astype(np.int64)))
        if made.offsets[-1] != len(made.values):
            raise SampleLengthError(
                f"lengths add up to {made.offsets[-1]:,}, and there are {len(made.values):,} values"
            )
        return made

    @classmethod
    def of(cls, sequences: Sequence[Any], dtype: npt.DTypeLike | None = None) -> Ragged:
        """Of arrays or lists, one for each sequence, alike in all dimensions but the first.

        Raises:
            SampleLengthError: They differ in another dimension.
            TypeMismatchError: Something that holds no numbers, or another type than the others by kind.
        """
        # An empty list has a float type of its own that should not decide what the others become.
        arrays = [np.asarray(sequence, dtype) for sequence in sequences]
        filled = [array for array in arrays if array.size] or arrays
        if not filled:
            return cls(np.empty(0, dtype or np.int64), np.zeros(1, np.int64))
        kinds = {array.dtype.kind for array in filled}
        if len(kinds) > 1 and not kinds <= set("iu"):
            raise TypeMismatchError(
                f"sequences of different types: {', '.join(sorted({str(array.dtype) for array in filled}))}",
                remedy="give dtype=, or convert them alike",
            )
        shapes = {array.shape[1:] for array in filled}
        if len(shapes) > 1 or filled[0].ndim == 0:
            raise SampleLengthError(
                f"sequences differ in shape past their first dimension: {', '.join(map(str, sorted(shapes)))}"
                if filled[0].ndim
                else "a sequence is an array of at least one dimension, got a number"
            )
        lengths = np.fromiter((len(array) for array in arrays), np.int64, len(arrays))
        return cls(np.concatenate(filled), offsets_of(lengths))

    def __len__(self) -> int:
        """Number of sequences."""
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> Array:
        """One sequence, as a view."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"sequence {number} of {len(self)}")
        number %= len(self)
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def __iter__(self) -> Iterator[Array]:
        return (self.values[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True))

    @property
    def lengths(self) -> Int64:
        """Length of each sequence, int64[num_sequences]."""
        return np.diff(self.offsets)

    @property
    def own_values(self) -> Array:
        """The values that belong to a sequence: those between the first offset and the last."""
        return self.values[self.offsets[0] : self.offsets[-1]]

    @property
    def sequence_of_value(self) -> Int64:
        """The sequence of each of ``own_values``, int64."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def with_values(self, values: Array) -> Ragged:
        """Other values for ``own_values``, in the same sequences."""
        return Ragged(values, self.offsets - self.offsets[0])

    def take(self, numbers: npt.ArrayLike) -> Ragged:
        """The sequences of these numbers, in this order, copied."""
        chosen = whole_numbers(numbers, "numbers of sequences")
        lengths = self.lengths[chosen]
        return Ragged(self.values[expanded(self.offsets[:-1][chosen], lengths)], offsets_of(lengths))

    def split(self, longest: int) -> tuple[Ragged, Int64]:
        """Sequences cut into pieces of at most ``longest``: the pieces, without a copy, and the number of each one's
        origin.

        All pieces of a sequence but its last have this length.
        """
        if longest < 1:
            raise SampleLengthError(f"a piece has at least one element, not {longest}")
        pieces = np.maximum(1, -(-self.lengths // longest))
        origin = np.repeat(np.arange(len(self)), pieces)
        nth = np.arange(len(origin)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        return Ragged(self.values, np.append(self.offsets[origin] + nth * longest, self.offsets[-1])), origin


def offsets_of(lengths: Array) -> Int64:
    """First element of each sequence of these lengths, and the end of the last; int64[num_sequences + 1]."""
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu":
        raise TypeMismatchError(
            f"lengths are whole numbers in one dimension, got {lengths.dtype}{list(lengths.shape)}",
        )
    if len(lengths) and lengths.min() < 0:
        first = int(np.flatnonzero(lengths < 0)[0])
        raise SampleLengthError(f"sequence {first} has a length of {lengths[first]}")
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def expanded(begins: Int64, lengths: Int64) -> Int64:
    """The numbers ``begins[i], begins[i] + 1, …`` of all runs, ``lengths[i]`` of each, one run after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    numbers = np.repeat(begins - (ends - lengths), lengths)
    numbers += np.arange(total)
    return numbers


def whole_numbers(values: Any, what: str) -> Int64:
    """An array of whole numbers; an empty one of any type.

    Raises:
        TypeMismatchError: It holds something else.
    """
    array = as_numbers(values, what)
    if array.size and array.dtype.kind not in "iu":
        raise TypeMismatchError(f"{what} are whole numbers, got {array.dtype}")
    return array.astype(np.int64, copy=False)


def as_numbers(values: Any, what: str) -> Array:
    """An array of numbers; PyTorch's tensors too.

    Raises:
        TypeMismatchError: It holds something else, such as text or lists of different length.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise TypeMismatchError(f"{what} form no array: {error}") from None
    # Types of ml_dtypes, such as bfloat16, are of NumPy's kind V and have no fields.
    if array.dtype.kind not in "biufc" and (array.dtype.kind != "V" or array.dtype.names):
        raise TypeMismatchError(f"{what} are numbers, got {array.dtype}")
    return array


def _pair(offsets: Int64, number: int) -> str:
    return f"from {offsets[number]:,} to {offsets[number + 1]:,}"
