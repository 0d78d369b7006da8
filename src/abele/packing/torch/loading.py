"""Samplers of packs and a loader of batches: epochs, ranks, and going on in the middle of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

from abele.errors import PackedDataError
from abele.packing.data.batches import PackOrder


class _Epochs:
    """Epoch of an iteration, and the batch that it begins with."""

    def __init__(self, order: PackOrder) -> None:
        self.order = order
        self.epoch = 0
        self._begin = 0
        self._begun = False

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of an epoch, from its first batch. Without it each iteration is of the next one."""
        self.epoch, self._begin, self._begun = epoch, 0, False

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration go on after the batches that a state counts.

        Raises:
            PackedDataError: A state of other packs, batches or seeds.
        """
        epoch, done = self.order.resumed(state)
        self.set_epoch(epoch)
        self._begin = done

    def state_dict(self, batches_done: int) -> dict[str, int]:
        """State that :meth:`load_state_dict` takes.

        Args:
            batches_done: Batches of this epoch that were trained on. A sampler cannot know: loaders ask it for batches
                ahead of what is used.
        """
        return self.order.state(self.epoch, batches_done)

    def _batches(self) -> Iterator[list[int]]:
        """The packs of each batch of an iteration."""
        if self._begun:
            self.set_epoch(self.epoch + 1)
        self._begun = True
        begin, self._begin = self._begin, 0
        for packs in self.order.batches(self.epoch)[begin:]:
            yield packs.tolist()


class PackBatchSampler(_Epochs, Sampler[list[int]]):
    """A ``batch_sampler``: the numbers of the packs of each batch of this rank.

    Args:
        order: Of which packs, in which batches.
    """

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches()

    def __len__(self) -> int:
        """Batches of an epoch."""
        return self.order.num_batches


class PackSampler(_Epochs, Sampler[int]):
    """A ``sampler``: the numbers of packs, for loaders that make batches themselves, as ``poptorch.DataLoader`` does.

    Args:
        order: Of which packs; its batch size is that of the loader (PopTorch's ``combinedBatchSize``), so that ranks
            share steps.
    """

    def __iter__(self) -> Iterator[int]:
        return (pack for packs in self._batches() for pack in packs)

    def __len__(self) -> int:
        """Packs of an epoch on this rank."""
        return self.order.num_batches * self.order.batch_size


class PackedLoader(DataLoader[Any]):
    """PyTorch's loader over packs, which knows how many batches were used, however many are loaded ahead.

    Args:
        data: A data set of rows.
        order: Of which packs, in which batches.
        **kwargs: For PyTorch's loader: ``num_workers``, ``collate_fn``, ``pin_memory`` and others.

    Raises:
        PackedDataError: An order of another number of packs than the data set has rows.
    """

    def __init__(self, data: Dataset[Any], order: PackOrder, **kwargs: Any) -> None:
        if hasattr(data, "__len__") and len(data) != order.num_packs:
            raise PackedDataError(f"an order of {order.num_packs:,} packs for {len(data):,} rows")
        self.packs = PackBatchSampler(order)
        self._done = 0
        super().__init__(data, batch_sampler=self.packs, **kwargs)

    def __iter__(self) -> Any:
        begin = self.packs._begin
        for number, batch in enumerate(super().__iter__(), start=begin + 1):
            self._done = number
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration be of an epoch."""
        self.packs.set_epoch(epoch)
        self._done = 0

    def state_dict(self) -> dict[str, int]:
        """Position of an iteration; the last batch that it gave counts as done."""
        return self.packs.state_dict(self._done)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration go on where another was.

        Raises:
            PackedDataError: A state of other packs, batches or seeds.
        """
        self.packs.load_state_dict(state)
        self._done = state["batches_done"]
