"""Samples in ragged storage: columns by name, and their recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import PackedDataError, SampleLengthError, nearest
from abele.packing.data.derived import BASIC, Derived, derived_by_name
from abele.packing.data.fields import Field, check_places, checked_column, default_field
from abele.packing.data.ragged import Ragged, as_numbers
from abele.words import counted


@dataclass(frozen=True)
class Recipe:
    """Fields of a task's samples, and the arrays that its rows have beside them.

    Attributes:
        fields: By name. Columns of samples that have none here are tokens where they are ragged, and otherwise have one
            value for each sequence.
        derive: Arrays that are made for each batch, by name; names alone stand for those of
            :data:`~abele.packing.data.derived.BY_NAME`.
    """

    fields: Mapping[str, Field] = field(default_factory=dict)
    derive: Mapping[str, Derived] | Sequence[str] = BASIC


class Samples:
    """Samples of which rows are packed.

    Args:
        columns: By name: a :class:`Ragged` or a list of arrays for what runs along an axis, an array [num_samples, …]
            for what each sequence has one of.
        recipe: Fields and derived arrays of the samples.

    Raises:
        SampleLengthError: No samples at all; columns of another number of samples; fields of one axis that disagree in
            length; a sample without a single element of the first axis.
        PlaceError: A place outside of its own sample.
        PaddingError, TypeMismatchError: Values or padding that the element type of a field cannot hold.
        PackedDataError: Fields without a column, or names that are given twice.
    """

    def __init__(self, columns: Mapping[str, Any], recipe: Recipe | None = None) -> None:
        recipe = Recipe() if recipe is None else recipe
        self.derive = derived_by_name(recipe.derive)
        for name in recipe.fields:
            if name not in columns:
                close = nearest(name, columns)
                raise PackedDataError(
                    f"samples have no column {name!r}" + (f"; there is {close!r}" if close else ""),
                    remedy=f"the fields are {', '.join(recipe.fields)}",
                )
        for name in self.derive:
            if name in columns:
                raise PackedDataError(f"{name!r} is a column of the samples and is derived too", remedy="rename one")
        raw = {name: _column(name, given, recipe.fields.get(name)) for name, given in columns.items()}
        self.fields = {name: recipe.fields.get(name) or default_field(name, raw[name]) for name in raw}
        self.columns = {name: checked_column(name, raw[name], self.fields[name]) for name in raw}
        self._count = _common_length(self.columns)
        self.lengths_by_axis = _lengths_by_axis(self.columns, self.fields)
        self.columns = _sharing_offsets(self.columns)
        for name, described in self.fields.items():
            if described.points_to is not None:
                check_places(name, self.columns[name], described, self.axis_lengths(described.points_to))

    @classmethod
    def of(cls, samples: Iterable[Mapping[str, Any]], recipe: Recipe | None = None) -> Samples:
        """Of mappings, one for each sample: arrays and lists run along an axis, numbers belong to the sequence.

        Raises:
            PackedDataError: Samples that differ in their fields, or are no mappings.
        """
        fields = {} if recipe is None else recipe.fields
        given = list(samples)
        if not given:
            raise SampleLengthError("there are no samples to pack")
        names = _common_names(given)
        columns: dict[str, Any] = {}
        for name in names:
            values = [sample[name] for sample in given]
            described = fields.get(name)
            single = described.axis is None if described else np.ndim(values[0]) == 0
            columns[name] = _stacked(name, values) if single else Ragged.of([_row(value) for value in values])
        return cls(columns, recipe)

    def __len__(self) -> int:
        """Number of samples."""
        return self._count

    @property
    def axes(self) -> tuple[str, ...]:
        """Axes of these samples; the first is that of the first column with an axis."""
        return tuple(self.lengths_by_axis)

    @property
    def lengths(self) -> Int64:
        """Length of each sample on the first axis, int64[num_samples]."""
        return self.lengths_by_axis[self.axes[0]]

    def axis_lengths(self, axis: str) -> Int64:
        """Length of each sample on an axis, int64[num_samples].

        Raises:
            PackedDataError: Samples have no such axis.
        """
        if axis not in self.lengths_by_axis:
            raise PackedDataError(
                f"samples have no {axis}; their axes are {', '.join(self.axes)}",
                remedy="a field of that axis, or another points_to=",
            )
        return self.lengths_by_axis[axis]

    @property
    def recipe(self) -> Recipe:
        """Recipe of these samples: fields and derived arrays."""
        return Recipe(self.fields, self.derive)

    def take(self, numbers: npt.ArrayLike) -> Samples:
        """The samples of these numbers, in this order, copied."""
        chosen = np.asarray(numbers, np.int64)
        taken = {
            name: column.take(chosen) if isinstance(column, Ragged) else column[chosen]
            for name, column in self.columns.items()
        }
        return Samples(taken, self.recipe)

    def split(self, longest: int) -> tuple[Samples, Int64]:
        """Over-long samples cut into pieces: samples of at most ``longest`` elements, and the origin of each.

        What a sequence has one of goes to each of its pieces. Nothing is copied.

        Raises:
            PackedDataError: Samples with several axes, or with places, which a cut would part.
        """
        points = [name for name, described in self.fields.items() if described.points_to is not None]
        if len(self.axes) > 1 or points:
            raise PackedDataError(
                "only samples of one axis, without places, can be cut",
                because=f"axes are {', '.join(self.axes)}" + (f"; places are in {', '.join(points)}" if points else ""),
                remedy="cut samples where their places are made, as question answering does with strides",
            )
        origin = np.arange(len(self))
        pieces: dict[str, Any] = {}
        for name, column in self.columns.items():
            if isinstance(column, Ragged):
                pieces[name], origin = column.split(longest)
        for name, column in self.columns.items():
            if not isinstance(column, Ragged):
                pieces[name] = column[origin]
        return Samples({name: pieces[name] for name in self.columns}, self.recipe), origin


def _column(name: str, given: Any, described: Field | None) -> Ragged | Array:
    if isinstance(given, Ragged):
        return given
    if isinstance(given, list | tuple) and (described.axis is not None if described else np.ndim(given[:1]) != 1):
        return Ragged.of([_row(value) for value in given])
    return as_numbers(given, f"the values of field {name!r}")


def _row(value: Any) -> Any:
    return value.detach().cpu() if hasattr(value, "detach") else value


def _stacked(name: str, values: list[Any]) -> Array:
    return as_numbers([np.asarray(_row(value)) for value in values], f"the values of field {name!r}")


def _common_names(samples: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    first = samples[0]
    for number, sample in enumerate(samples):
        if not isinstance(sample, Mapping):
            raise PackedDataError(
                f"sample {number} is a {type(sample).__name__}", remedy="a mapping from names of fields to values"
            )
        if sample.keys() != first.keys():
            differ = sorted(sample.keys() ^ first.keys())
            raise PackedDataError(f"sample {number} differs from sample 0 in its fields: {', '.join(differ)}")
    return tuple(first)


def _common_length(columns: Mapping[str, Ragged | Array]) -> int:
    counts = {name: len(column) for name, column in columns.items()}
    if not counts or not any(isinstance(column, Ragged) for column in columns.values()):
        raise PackedDataError(
            "samples have a field that runs along an axis, such as tokens",
            remedy="a Ragged, a list of arrays, or lists in mappings",
        )
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        raise SampleLengthError(f"fields have different numbers of samples: {told}")
    count = next(iter(counts.values()))
    if not count:
        raise SampleLengthError("there are no samples to pack")
    return count


def _sharing_offsets(columns: Mapping[str, Ragged | Array]) -> dict[str, Ragged | Array]:
    """Columns, with offsets shared between those that have equal ones: results of offsets are computed once."""
    known: list[Ragged] = []
    shared: dict[str, Ragged | Array] = {}
    for name, column in columns.items():
        shared[name] = column
        if isinstance(column, Ragged):
            like = next((other for other in known if np.array_equal(other.offsets, column.offsets)), None)
            if like is None:
                known.append(column)
            else:
                shared[name] = Ragged(column.values, like.offsets)
    return shared


def _lengths_by_axis(columns: Mapping[str, Ragged | Array], fields: Mapping[str, Field]) -> dict[str, Int64]:
    found: dict[str, tuple[str, Int64]] = {}
    for name, column in columns.items():
        axis = fields[name].axis
        if isinstance(column, Ragged) != (axis is not None):
            raise PackedDataError(
                f"field {name!r} "
                + (
                    "has one value for each sequence, and its column is ragged"
                    if axis is None
                    else f"has an axis, {axis}, and its column is an array"
                ),
                remedy="Ragged data for fields with an axis, an array [num_samples, …] for others",
            )
        if axis is None or not isinstance(column, Ragged):
            continue
        first, lengths = found.setdefault(axis, (name, column.lengths))
        differs = np.flatnonzero(lengths != column.lengths)
        if len(differs):
            sample = differs[0]
            raise SampleLengthError(
                f"sample {sample} has {lengths[sample]:,} {axis} in {first!r}, {column.lengths[sample]:,} in {name!r}",
                because=f"{counted(len(differs), 'sample')} of {len(lengths):,} differ",
                remedy="fields of one axis have equal length in each sample; another has an axis= of its own",
            )
    axis, (name, lengths) = next(iter(found.items()))
    empty = np.flatnonzero(lengths == 0)
    if len(empty):
        raise SampleLengthError(
            f"sample {empty[0]} has no {axis}",
            because=f"{counted(len(empty), 'sample')} have none",
            remedy="leave them out",
        )
    return {axis: lengths for axis, (_, lengths) in found.items()}
