"""Host batches: as many batches of a user's loader, one after the other, as one call of the device takes.

A loader of 10 batches of 8 samples, with 4 micro-batches per call, gives 2 host batches of 32. The 2 batches that are
left come one by one where nothing may be lost (validation, test, prediction), and are left out of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import torch

from abele.errors import InvalidOptionError
from abele.frontends.poptorch import logs
from abele.frontends.poptorch.values import structures


class HostBatches:
    """The batches of a loader, several at a time.

    Args:
        loader: The user's loader.
        count: Batches that one call takes.
        training: True if what does not make a host batch is left out.

    Attributes:
        counts: Batches in a host batch, by its number of samples.
    """

    def __init__(self, loader: Iterable[Any], count: int, *, training: bool) -> None:
        self.loader, self.count, self._training = loader, count, training
        self.counts: dict[int, int] = {}
        self._told = False

    @property
    def sampler(self) -> Any:
        """The loader's sampler, which is told of epochs."""
        return getattr(self.loader, "sampler", None)

    @property
    def batch_sampler(self) -> Any:
        """The loader's batch sampler, which is told of epochs."""
        return getattr(self.loader, "batch_sampler", None)

    def __len__(self) -> int:
        total: int = len(self.loader)  # type: ignore[arg-type]  # TypeError for those without, as the loader's own
        whole = self._whole(total)
        return whole // self.count + (0 if self._training else whole % self.count + total - whole)

    def _whole(self, total: int) -> int:
        """Batches of full size."""
        size, sampler = getattr(self.loader, "batch_size", None), self.sampler
        if size is None or getattr(self.loader, "drop_last", True) or not isinstance(sampler, Sized):
            return total
        return total if len(sampler) % size == 0 else total - 1

    def __iter__(self) -> Iterator[Any]:
        if self._training and isinstance(self.loader, Sized):
            # Now: a trainer that knows the length never asks for the rest.
            self._tell(len(self.loader) - self.count * len(self))
        gathered: list[Any] = []
        size = None
        for batch in self.loader:
            samples = samples_in(batch)
            size = samples if size is None else size
            if samples != size:
                yield from self._loose([batch])
                continue
            gathered.append(batch)
            if len(gathered) == self.count:
                whole = joined(gathered)
                self.counts[samples_in(whole)] = self.count
                yield whole
                gathered = []
        yield from self._loose(gathered)

    def _loose(self, batches: list[Any]) -> Iterator[Any]:
        """Batches that fill no host batch."""
        if self._training:
            self._tell(len(batches))
            return
        for batch in batches:
            self.counts.setdefault(samples_in(batch), 1)
            yield batch

    def _tell(self, left: int) -> None:
        """Warn, once, of batches that are not trained on."""
        if left and not self._told:
            self._told = True
            logs.warn(
                f"{left} of the loader's batches are not trained on: they fill no host batch of {self.count} equal "
                f"ones. DataLoader(drop_last=True), and as many batches as {self.count} divides, leave nothing over."
            )


def samples_in(batch: Any) -> int:
    """Samples of a batch: the first dimension of its first tensor; 1 without any."""
    tensors = (leaf for leaf in structures.leaves(batch) if isinstance(leaf, torch.Tensor))
    first = next(tensors, None)
    return 1 if first is None or not first.dim() else first.shape[0]


def joined(batches: list[Any]) -> Any:
    """One batch of several alike.

    Args:
        batches: Trees of tensors [samples, …] and of constants.

    Raises:
        InvalidOptionError: They differ in structure or constants.
    """
    if len(batches) == 1:
        return batches[0]
    columns = list(zip(*(list(structures.leaves(batch)) for batch in batches), strict=False))
    rows = iter(columns)

    def join(_: Any) -> Any:
        first, *rest = parts = next(rows)
        if isinstance(first, torch.Tensor):
            return torch.cat(list(parts)) if first.dim() else torch.stack(list(parts))
        if any(part != first for part in rest):
            raise InvalidOptionError(
                f"batches cannot be joined: {first!r} in one is {next(p for p in rest if p != first)!r} in another",
                because="one call of the device takes several batches",
                remedy="tensors with a dimension of samples, or constants that are the same in all batches",
            )
        return first

    return structures.map_leaves(join, batches[0])
