"""``PackBatches``: batches of training as NumPy arrays, one after the other or as Keras's ``PyDataset`` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.counts import is_whole
from abele.errors import PackedDataError, nearest
from abele.packing.data.derived import Batch
from abele.packing.data.packed_rows import PackedRows

# Order of packs in an epoch, and their division among ranks.


@dataclass(frozen=True, kw_only=True)
class PackOrder:
    """The order of packs in every epoch, the same for equal seeds on any machine and for any number of workers.

    Each step takes ``batch_size`` packs for each rank, out of one permutation that all ranks have in common, so that
    the ranks of a step never share a pack and have equal numbers of batches.

    Attributes:
        num_packs: Number of packs.
        batch_size: Packs of a batch, on each rank.
        shuffle: True for another order in each epoch.
        seed: Of the orders.
        rank: Number of this rank.
        num_ranks: Number of ranks.
        drop_last: True to leave out packs that make no whole step, others in each epoch if they are shuffled. False to
            fill the last step up with empty packs, whose number is ``num_packs``.

    Raises:
        PackedDataError: Numbers that make no sense, or so few packs that a step has none for some rank.
    """

    num_packs: int
    batch_size: int = 1
    shuffle: bool = True
    seed: int = 0
    rank: int = 0
    num_ranks: int = 1
    drop_last: bool = True

    def __post_init__(self) -> None:
        for name, least in (("num_packs", 1), ("batch_size", 1), ("num_ranks", 1), ("seed", 0), ("rank", 0)):
            value = getattr(self, name)
            if not is_whole(value) or value < least:
                raise PackedDataError(f"{name} is a whole number of at least {least}, not {value!r}")
        if self.rank >= self.num_ranks:
            raise PackedDataError(f"rank {self.rank} of {self.num_ranks} ranks", remedy="ranks count from 0")
        if self.drop_last and self.num_packs < self.batch_size * self.num_ranks:
            raise PackedDataError(
                f"{self.num_packs:,} packs make no step of {self.batch_size} packs on {self.num_ranks} ranks",
                remedy="a smaller batch_size, or drop_last=False to fill up with empty packs",
            )

    @property
    def num_batches(self) -> int:
        """Batches of an epoch on each rank."""
        step = self.batch_size * self.num_ranks
        return self.num_packs // step if self.drop_last else -(-self.num_packs // step)

    def batches(self, epoch: int) -> Int64:
        """Packs of each batch of this rank, int64[num_batches, batch_size]."""
        if epoch < 0:
            raise PackedDataError(f"epochs count from 0, not {epoch}")
        numbers = np.arange(self.num_packs)
        if self.shuffle:
            numbers = np.random.Generator(np.random.PCG64([self.seed, epoch])).permutation(self.num_packs)
        step = self.batch_size * self.num_ranks
        whole = np.full(self.num_batches * step, self.num_packs, np.int64)
        whole[: min(len(whole), self.num_packs)] = numbers[: len(whole)]
        return whole.reshape(self.num_batches, self.num_ranks, self.batch_size)[:, self.rank]

    def state(self, epoch: int, batches_done: int) -> dict[str, int]:
        """Position after some batches of an epoch, as the plain numbers with which another process goes on."""
        return {
            "epoch": epoch,
            "batches_done": batches_done,
            "batch_size": self.batch_size,
            "num_packs": self.num_packs,
            "num_ranks": self.num_ranks,
            "seed": self.seed,
        }

    def resumed(self, state: Mapping[str, int]) -> tuple[int, int]:
        """Epoch and batches done of a state.

        Raises:
            PackedDataError: It is of other packs, another seed or other batches, which would repeat or skip samples.
        """
        for name in ("epoch", "batches_done"):
            if not isinstance(state.get(name), int):
                raise PackedDataError(f"a state has {name!r}, a whole number", remedy="what state_dict() gave")
        own = self.state(state["epoch"], state["batches_done"])
        for name, value in own.items():
            if state.get(name) != value:
                raise PackedDataError(
                    f"the state is of {name} {state.get(name)}, and there is {value}",
                    because="the same packs in the same batches are needed to go on without repeating or skipping any",
                )
        if not 0 <= state["batches_done"] <= self.num_batches:
            raise PackedDataError(f"{state['batches_done']:,} batches done, and an epoch has {self.num_batches:,}")
        return state["epoch"], state["batches_done"]


class PackBatches:
    """Batches of rows, by number and in order.

    It has what Keras asks of a ``PyDataset`` (``len``, ``[i]``, ``on_epoch_end``), without Keras:
    ``class Data(PackBatches, keras.utils.PyDataset)`` with ``workers``, ``use_multiprocessing`` and ``max_queue_size``
    set is one. Every batch has the same shapes.

    Args:
        rows: The rows.
        order: Order of rows in batches; ``PackOrder(num_packs=len(rows), …)``.
        inputs: Names of the arrays that a model takes; None for all that are no targets or weights.
        targets: Names of the arrays that a model is to give. Without any, a batch is a mapping of all arrays; with
            some, it is a tuple (others, targets), an array in place of a mapping where there is one target.
        weights: Name of the array of weights, which becomes the third of the tuple.

    Raises:
        PackedDataError: An order of another number of packs, or names that rows do not have.
    """

    def __init__(
        self,
        rows: PackedRows,
        order: PackOrder,
        *,
        inputs: Sequence[str] | None = None,
        targets: Sequence[str] = (),
        weights: str | None = None,
    ) -> None:
        if order.num_packs != len(rows):
            raise PackedDataError(f"an order of {order.num_packs:,} packs for {len(rows):,} rows")
        self.rows = rows
        self.order = order
        self._inputs = None if inputs is None else tuple(inputs)
        self._targets = tuple(targets)
        self._weights = weights
        names = [*rows.samples.columns, *rows.samples.derive]
        for name in (*(inputs or ()), *self._targets, *([weights] if weights else [])):
            if name not in names:
                close = nearest(name, names)
                raise PackedDataError(f"rows have no {name!r}" + (f"; there is {close!r}" if close else ""))
        if weights and not targets:
            raise PackedDataError(
                "weights come with targets", remedy="targets=[…], or take the weights out of the mapping"
            )
        self._begin = 0
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """Take the order of an epoch, from its first batch."""
        self.epoch, self._begin = epoch, 0
        self._packs = self.order.batches(epoch)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._packs)

    def __getitem__(self, number: int) -> Any:
        """Batch ``number`` of the epoch."""
        if not -len(self) <= number < len(self):
            raise IndexError(f"batch {number} of {len(self)}")
        return self._parted(self.rows.take(self._packs[number]))

    def __iter__(self) -> Iterator[Any]:
        """Batches of the epoch, or those left after :meth:`load_state_dict`; then comes the next epoch."""
        begin, self._begin = self._begin, 0
        for number in range(begin, len(self)):
            self._done = number + 1
            yield self[number]
        self.on_epoch_end()

    def on_epoch_end(self) -> None:
        """Go on to the next epoch; Keras calls it."""
        self.set_epoch(self.epoch + 1)
        self._done = 0

    _done = 0

    def state_dict(self) -> dict[str, int]:
        """Position of an iteration, as plain numbers; the last batch that it gave counts as done."""
        return self.order.state(self.epoch, self._done)

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Let the next iteration go on where another was.

        Raises:
            PackedDataError: A state of other packs or batches.
        """
        epoch, done = self.order.resumed(state)
        self.set_epoch(epoch)
        self._begin = self._done = done

    def _parted(self, batch: Batch) -> Any:
        wanted = {name: batch[name] for name in self._targets}
        own = [name for name in batch if name not in wanted and name != self._weights]
        given = {name: batch[name] for name in (own if self._inputs is None else self._inputs)}
        if not wanted:
            return given
        targets: Any = wanted if len(wanted) > 1 else next(iter(wanted.values()))
        return (given, targets) if self._weights is None else (given, targets, batch[self._weights])
