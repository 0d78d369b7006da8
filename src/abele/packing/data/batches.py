"""``PackBatches``: batches of training as NumPy arrays, one after the other or as Keras's ``PyDataset`` has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from abele.errors import PackedDataError, nearest
from abele.packing.data.derived import Batch
from abele.packing.data.order import PackOrder
from abele.packing.data.packed_rows import PackedRows


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
