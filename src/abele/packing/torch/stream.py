"""Rows of samples that come one by one, in unknown number: an iterable data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from abele.errors import PackedDataError
from abele.packing.data.derived import SampleNumbers, derived_by_name
from abele.packing.data.layout import RowShape
from abele.packing.data.packed_rows import PackedRows
from abele.packing.data.ragged import offsets_of
from abele.packing.data.samples import Recipe, Samples
from abele.packing.packs import Packs
from abele.packing.solve import Method
from abele.packing.stream import pack_stream
from abele.packing.torch.datasets import Row, as_tensors

Sample = Mapping[str, Any]
_ROWS_AT_ONCE = 32


class PackedStream(IterableDataset[Row]):
    """Rows of a stream, packed window by window; memory is that of a window.

    Workers of a loader, and ranks, share the samples out by turns: each reads the whole stream, and packs what is its
    own. Numbers in ``samples`` count from the beginning of the stream.

    Args:
        samples: Mappings from names to arrays or numbers: anything that can be iterated anew in each epoch, or a
            function of the epoch that gives such a thing.
        shape: Capacity of a row.
        recipe: Fields of the samples; names that it does not have are left out.
        window: Samples that are packed together.
        method: Method of packing, as of :func:`abele.packing.pack`.
        seed: Shuffles samples of equal size and the packs of a window, otherwise in each epoch; None to leave them.
        rank, num_ranks: Number of this rank among how many.

    Raises:
        PackedDataError: A recipe without fields, or a rank that there is not.
        PackingError: A window below 1.
    """

    def __init__(
        self,
        samples: Iterable[Sample] | Callable[[int], Iterable[Sample]],
        shape: RowShape,
        recipe: Recipe,
        *,
        window: int = 10_000,
        method: Method = "lpfhp",
        seed: int | None = None,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> None:
        super().__init__()
        if not recipe.fields:
            raise PackedDataError("streamed samples need a recipe with fields", remedy="Recipe({name: Field(…)})")
        if not 0 <= rank < num_ranks:
            raise PackedDataError(f"rank {rank} of {num_ranks} ranks", remedy="ranks count from 0")
        if _is_iterator(samples):
            raise PackedDataError(
                f"samples are a {type(samples).__name__}, which can be gone through once",
                remedy="a function of the epoch that makes it, such as lambda epoch: read(path)",
            )
        self.samples = samples
        self.shape = shape
        self.recipe = recipe
        self.window, self.method, self.seed = window, method, seed
        self.rank, self.num_ranks = rank, num_ranks
        # Shared, so that workers that outlive an epoch see the next one.
        self._epoch = torch.zeros((), dtype=torch.int64)
        self._epoch.share_memory_()  # type: ignore[no-untyped-call]
        self._first = _first_fields(recipe, shape)
        self._numbers = [n for n, d in derived_by_name(recipe.derive).items() if isinstance(d, SampleNumbers)]

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of an epoch."""
        self._epoch.fill_(epoch)

    def __iter__(self) -> Iterator[Row]:
        epoch, worker = int(self._epoch), get_worker_info()
        given = self.samples(epoch) if callable(self.samples) else self.samples
        turn, turns = self.rank, self.num_ranks
        if worker is not None:
            turn, turns = turn * worker.num_workers + worker.id, turns * worker.num_workers
        rooms = [self.shape.room(axis) for axis in self.shape.axes]
        packs = pack_stream(
            islice(zip(count(), given), turn, None, turns),
            rooms if len(rooms) > 1 else rooms[0],
            size=self._size,
            depth=self.shape.depth,
            window=self.window,
            method=self.method,
            seed=None if self.seed is None else self.seed + epoch,
        )
        while chunk := list(islice(packs, _ROWS_AT_ONCE)):
            yield from self._rows(chunk)

    def _size(self, numbered: tuple[int, Sample]) -> Any:
        number, sample = numbered
        sizes = []
        for axis, name in self._first.items():
            if name not in sample:
                raise PackedDataError(f"sample {number} of the stream has no {name!r}")
            sizes.append(int(self.shape.needs([len(sample[name])], axis)[0]))
        # Packers refuse sizes of zero, which only axes after the first may have.
        return sizes[0] if len(sizes) == 1 else [sizes[0], *(max(1, size) for size in sizes[1:])]

    def _rows(self, packs: list[list[tuple[int, Sample]]]) -> Iterator[Row]:
        numbers = np.array([number for pack in packs for number, _ in pack], np.int64)
        fields = self.recipe.fields
        samples = Samples.of(({n: sample[n] for n in fields} for pack in packs for _, sample in pack), self.recipe)
        lengths = np.array([len(pack) for pack in packs])
        batch = PackedRows(samples, Packs(np.arange(len(numbers)), offsets_of(lengths)), self.shape)[:]
        for name in self._numbers:
            batch[name] = np.where(batch[name] >= 0, numbers[batch[name]], -1)
        tensors = as_tensors(batch)
        return ({name: tensor[row] for name, tensor in tensors.items()} for row in range(len(packs)))


def _is_iterator(samples: Any) -> bool:
    """True for iterators, which a second epoch would find empty."""
    return not callable(samples) and iter(samples) is samples


def _first_fields(recipe: Recipe, shape: RowShape) -> dict[str, str]:
    """By axis of the shape, the first field that runs along it.

    Raises:
        PackedDataError: No field has an axis of the shape.
    """
    found = {axis: next((n for n, f in recipe.fields.items() if f.axis == axis), None) for axis in shape.axes}
    missing = next((axis for axis, name in found.items() if name is None), None)
    if missing is not None:
        raise PackedDataError(f"rows have a capacity for {missing}, of which no field of the recipe is")
    return {axis: name for axis, name in found.items() if name is not None}
