"""Fields of samples: one value per element of an axis, such as a token, or one value per sequence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import PackedDataError, PaddingError, PlaceError, TypeMismatchError
from abele.packing.data.ragged import Ragged

TOKENS = "tokens"
"""The axis that fields have unless they name another."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of samples, and its layout in rows of packed data.

    An *axis* is what a sample has some number of: tokens, frames, nodes, edges, predictions. Fields of one axis have
    equal length in each sample, and a row has a capacity for each axis. Any further dimensions are kept.

    Attributes:
        axis: Axis with an element of the field each; None for a field with one value for each sequence, which rows hold
            by depth.
        points_to: The axis of which the values are places, counted from the start of the sample; rows hold them counted
            from the start of the row. None for values that are no places.
        nowhere: A place that stands for none, as a span that was cut off; it becomes ``padding``. None if there is
            none.
        padding: The value where a row holds no sequence.
        padding_to_last: True for places whose padding is the last place of the row, whatever its capacity.
        reserved_padding: True if no sample may hold ``padding``, because models take it for the end of what is real.
        dtype: Element type in rows; None for that of the samples. It has to hold every value.
    """

    axis: str | None = TOKENS
    points_to: str | None = None
    nowhere: int | None = None
    padding: float = 0
    padding_to_last: bool = False
    reserved_padding: bool = False
    dtype: npt.DTypeLike | None = None

    def element_type(self, samples: Array) -> np.dtype[Any]:
        """Element type in rows; for places int64, which PyTorch gathers with, unless the field says otherwise."""
        if self.dtype is not None:
            return np.dtype(self.dtype)
        return np.dtype(np.int64) if self.points_to is not None else samples.dtype


def per_sequence(*, padding: float = 0, dtype: npt.DTypeLike | None = None) -> Field:
    """A field with one value (or array of a fixed shape) for each sequence: a class, a score, a flag."""
    return Field(axis=None, padding=padding, dtype=dtype)


def checked_column(name: str, column: Ragged | Array, field: Field) -> Ragged | Array:
    """A column as its field's element type.

    Raises:
        PaddingError: The type cannot hold the padding, or a sample holds padding that is reserved.
        TypeMismatchError: The type cannot hold the values; places that are no whole numbers.
    """
    values = column.own_values if isinstance(column, Ragged) else column
    if field.points_to is not None and values.dtype.kind not in "iu":
        raise TypeMismatchError(f"field {name!r} holds places, which are whole numbers, got {values.dtype}")
    target = field.element_type(values)
    _check_padding(name, values, field, target)
    if target == values.dtype:
        return column
    converted = _converted(name, values, target)
    return column.with_values(converted) if isinstance(column, Ragged) else converted


def _check_padding(name: str, values: Array, field: Field, target: np.dtype[Any]) -> None:
    if not _holds(target, field.padding):
        raise PaddingError(
            f"field {name!r} is padded with {field.padding}, which {target} cannot hold",
            remedy="another padding=, or dtype= for a type that holds it",
        )
    if field.reserved_padding:
        found = np.flatnonzero(values.reshape(-1) == field.padding)
        if len(found):
            raise PaddingError(
                f"field {name!r} is padded with {field.padding:g}, and samples hold it {len(found):,} times",
                because="models that take this value for padding would leave these elements out",
                remedy="an id that the vocabulary does not use, or reserved_padding=False where masks say what is real",
            )


def _holds(target: np.dtype[Any], number: float) -> bool:
    if target.kind in "iu":
        info = np.iinfo(target)
        return bool(np.isfinite(number)) and number == int(number) and info.min <= number <= info.max
    if target.kind == "b":
        return number in (0, 1)
    with np.errstate(over="ignore"):
        return bool(np.isfinite(np.asarray(number).astype(target)) == np.isfinite(number))


def _converted(name: str, values: Array, target: np.dtype[Any]) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        converted = values.astype(target)
    if values.dtype.kind == "b":
        return converted
    if target.kind in "iub":
        lost = converted.astype(values.dtype) != values
    else:
        # Rounding is what a narrower type is for; numbers that become infinite are not.
        lost = np.isfinite(values) & ~np.isfinite(converted)
    wrong = np.flatnonzero(lost.reshape(-1))
    if len(wrong):
        value = values.reshape(-1)[wrong[0]]
        raise TypeMismatchError(
            f"field {name!r} holds {value}, which {target} cannot", remedy="dtype= with a type that holds all values"
        )
    return converted


def check_places(name: str, column: Ragged | Array, field: Field, lengths: Int64) -> None:
    """See that places lie in their own sample.

    Args:
        name: The field.
        column: Its values: ragged, or an array [num_samples, …].
        field: Name of the field.
        lengths: Length of each sample on the axis that they point to, int64[num_samples].

    Raises:
        PlaceError: A place before the start of its sample or past its end.
    """
    if isinstance(column, Ragged):
        values, most = column.own_values, np.repeat(lengths, column.lengths)
    else:
        values, most = column, lengths
    wrong = (values < 0) | (values >= most.reshape(-1, *[1] * (values.ndim - 1)))
    if field.nowhere is not None:
        wrong &= values != field.nowhere
    if wrong.any():
        where = np.argwhere(wrong)[0]
        sample = int(where[0]) if not isinstance(column, Ragged) else int(column.sequence_of_value[where[0]])
        raise PlaceError(
            f"field {name!r} of sample {sample} points to {field.points_to} {values[tuple(where)]}, and the sample has "
            f"{lengths[sample]:,} of them",
            because="a label or edge would lie in another sequence of the same pack",
            remedy="count places from 0 at the start of their own sample, after it was cut; nowhere= for those cut off",
        )


def default_field(name: str, column: Ragged | Array) -> Field:
    """The field of a column that nobody described: tokens for ragged data, one value for each sequence for arrays."""
    if isinstance(column, Ragged):
        return Field()
    if column.ndim == 0:
        raise PackedDataError(
            f"field {name!r} is one number", remedy="an array with a value for each sample, or a Ragged"
        )
    return Field(axis=None)
