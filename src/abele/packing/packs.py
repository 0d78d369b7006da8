"""Items of each pack: the result of packing, which every use of it starts from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64


@dataclass(frozen=True, eq=False)
class Packs:
    """Items by pack: pack ``i`` holds ``items[begins[i]:begins[i + 1]]``, in this order.

    Attributes:
        items: Numbers of items, int64[num_items].
        begins: First item of each pack in ``items``, and the end of the last; int64[num_packs + 1].
    """

    items: Int64
    begins: Int64

    def __len__(self) -> int:
        """Number of packs."""
        return len(self.begins) - 1

    def __getitem__(self, pack: int) -> Int64:
        """Numbers of the items of one pack."""
        if not -len(self) <= pack < len(self):
            raise IndexError(f"pack {pack} of {len(self)}")
        pack %= len(self)
        return self.items[self.begins[pack] : self.begins[pack + 1]]

    def __iter__(self) -> Iterator[Int64]:
        """The items of each pack."""
        return (self.items[begin:end] for begin, end in zip(self.begins[:-1], self.begins[1:], strict=True))

    @property
    def depths(self) -> Int64:
        """Items of each pack, int64[num_packs]."""
        return np.diff(self.begins)

    @property
    def pack_of_slot(self) -> Int64:
        """The pack that each entry of ``items`` lies in, int64[num_items]."""
        return np.repeat(np.arange(len(self)), self.depths)
