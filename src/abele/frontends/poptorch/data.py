"""``poptorch.DataLoader``: batches that hold everything that the device uses in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch.utils.data

from abele.frontends.poptorch.enums import DataLoaderMode
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.options import Options


class DataLoader(torch.utils.data.DataLoader[Any]):
    """A PyTorch loader whose batch is ``batch_size`` × device iterations × gradient accumulation.

    Args:
        options: Options of the model; they are frozen.
        dataset: Where samples come from.
        batch_size: Samples of one micro-batch; None to let ``dataset`` give whole batches.
        shuffle: True if to shuffle; no by default.
        num_workers: Worker processes that load samples.
        drop_last: True if an incomplete last batch is left out; yes by default.
        persistent_workers: True if workers outlive an epoch; by default when there are any.
        mode: ``Sync``; the asynchronous modes load in the same way here.
        batch_sampler: Batches of indices; consecutive ones are joined.
        **kwargs: For PyTorch's loader.

    Raises:
        Error: ``batch_sampler`` together with ``batch_size`` or ``shuffle``.
    """

    def __init__(
        self,
        options: Options,
        dataset: torch.utils.data.Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: Any = None,
        **kwargs: Any,
    ) -> None:
        options._freeze()
        self.options = options
        self._micro_batches = int(options.device_iterations * options.Training.gradient_accumulation)
        persistent = num_workers > 0 if persistent_workers is None else persistent_workers
        common = {"num_workers": num_workers, "persistent_workers": persistent, **kwargs}
        if batch_sampler is not None:
            if batch_size != 1 or shuffle:
                raise Error("batch_sampler excludes batch_size and shuffle", remedy="let the sampler do both")
            super().__init__(dataset, batch_sampler=_Joined(batch_sampler, self._micro_batches), **common)
        elif batch_size is None:
            super().__init__(dataset, batch_size=None, shuffle=shuffle, **common)
        else:
            combined = batch_size * self._micro_batches
            self._warn_of_remainder(dataset, combined, drop_last)
            super().__init__(dataset, combined, shuffle, drop_last=drop_last, **common)

    @staticmethod
    def _warn_of_remainder(dataset: Any, combined: int, drop_last: bool) -> None:
        if not drop_last and hasattr(dataset, "__len__") and len(dataset) % combined:
            warnings.warn(
                f"The dataset's {len(dataset)} samples do not divide into batches of {combined}: with drop_last=False "
                "the last batch does not fit the compiled model",
                stacklevel=3,
            )

    @property
    def combinedBatchSize(self) -> int | None:
        """Samples of one batch of the loader; None when the dataset gives whole batches."""
        return self.batch_size

    def terminate(self) -> None:
        """Stop worker processes."""
        iterator = getattr(self, "_iterator", None)
        if iterator is not None and hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()


class _Joined:
    """Consecutive batches of a sampler as one."""

    def __init__(self, sampler: Any, count: int) -> None:
        self.sampler = sampler
        self.count = count

    def __iter__(self) -> Iterator[list[Any]]:
        gathered: list[Any] = []
        for number, batch in enumerate(self.sampler, start=1):
            gathered.extend(batch)
            if number % self.count == 0:
                yield gathered
                gathered = []

    def __len__(self) -> int:
        return len(self.sampler) // self.count
