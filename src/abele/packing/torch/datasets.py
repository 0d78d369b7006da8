"""Map-style data sets whose items are rows of packed data, for any loader of PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from abele.errors import PackedDataError, PackMembersError
from abele.packing.data.derived import Batch, SampleNumbers, derived_by_name
from abele.packing.data.layout import RowShape
from abele.packing.data.packed_rows import PackedRows
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Recipe, Samples
from abele.packing.packs import Packs

Row = dict[str, torch.Tensor]


def as_tensors(batch: Mapping[str, Any]) -> Row:
    """A batch's arrays as tensors, without a copy."""
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}


class PackedDataset(Dataset[Row]):
    """The rows of packed samples that are in memory, or mapped from a file.

    Item ``i`` is row ``i`` as tensors, without a dimension for rows; item ``len(self)`` is an empty row, with which
    samplers fill batches up.

    Args:
        rows: The rows.
    """

    def __init__(self, rows: PackedRows) -> None:
        self.rows = rows

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __getitem__(self, row: int) -> Row:
        """One row."""
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[Row]:
        """Several rows, gathered at once; PyTorch's loaders ask for batches so."""
        _check_rows(rows, len(self))
        return _each(self.rows.take(rows), len(rows))


class LazyPackedDataset(Dataset[Row]):
    """Rows of samples that are loaded when they are needed, from a map-style data set of mappings.

    Args:
        data: Gives sample ``i`` as a mapping from names to arrays or numbers; ``__getitems__`` is used if it has one.
        packs: Samples that lie together, by their lengths.
        shape: Capacity of a row.
        recipe: Fields of the samples; names that it does not have are left out.

    Raises:
        PackMembersError: Packs deeper than rows, or that name a sample that there is not.
        PackedDataError: A recipe without fields.
    """

    def __init__(self, data: Any, packs: Packs, shape: RowShape, recipe: Recipe) -> None:
        if not recipe.fields:
            raise PackedDataError("loaded samples need a recipe with fields", remedy="Recipe({name: Field(…)})")
        if packs.depths.max(initial=0) > shape.depth:
            raise PackMembersError(
                f"packs hold up to {packs.depths.max()} sequences, and rows have a depth of {shape.depth}"
            )
        if (
            hasattr(data, "__len__")
            and len(packs.items)
            and not 0 <= packs.items.min() <= packs.items.max() < len(data)
        ):
            raise PackMembersError(f"packs hold samples up to {packs.items.max()}, and there are {len(data):,}")
        self.data = data
        self.packs = packs
        self.shape = shape
        self.recipe = recipe
        self._numbers = [n for n, d in derived_by_name(recipe.derive).items() if isinstance(d, SampleNumbers)]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.packs)

    def __getitem__(self, row: int) -> Row:
        """One row."""
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[Row]:
        """Several rows, whose samples are loaded together."""
        _check_rows(rows, len(self))
        there = [row for row in rows if row < len(self)]
        # Of empty rows alone only a sample tells what fields they have.
        members = Ragged(self.packs.items, self.packs.begins).take(there or [0])
        samples = Samples.of(self._loaded(members.values.tolist()), self.recipe)
        local = Packs(np.arange(len(members.values)), members.offsets)
        packed = PackedRows(samples, local, self.shape)
        numbers = iter(range(len(there)))
        batch = packed.take([next(numbers) if row < len(self) else len(packed) for row in rows])
        for name in self._numbers:
            batch[name] = np.where(batch[name] >= 0, members.values[batch[name]], -1)
        return _each(batch, len(rows))

    def _loaded(self, numbers: list[int]) -> list[Mapping[str, Any]]:
        many = getattr(self.data, "__getitems__", None)
        samples = many(numbers) if many is not None else [self.data[number] for number in numbers]
        missing = next((name for name in self.recipe.fields for sample in samples if name not in sample), None)
        if missing is not None:
            raise PackedDataError(f"a loaded sample has no {missing!r}", remedy=f"it has {', '.join(samples[0])}")
        return [{name: sample[name] for name in self.recipe.fields} for sample in samples]


def _check_rows(rows: Sequence[int], count: int) -> None:
    for row in rows:
        if not 0 <= row <= count:
            raise IndexError(f"row {row} of {count}")


def _each(batch: Batch, count: int) -> list[Row]:
    tensors = as_tensors(batch)
    return [{name: tensor[row] for name, tensor in tensors.items()} for row in range(count)]
