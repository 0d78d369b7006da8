"""Weights in parts: the host has one array, and each group of replicas a part of it along a dimension."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Split:
    """Split of an array into equal parts.

    The extent may be several *blocks* that lie behind each other, such as queries, keys and values of one product: each
    part then has its share of every block. Where the extent does not divide, the last part ends with zeros, which the
    host never sees.

    Attributes:
        dim: The dimension that is cut.
        extent: Elements along it on the host.
        blocks: Number of blocks.

    Raises:
        InvalidOptionError: No extent, no block, or several blocks of different size.
    """

    dim: int
    extent: int
    blocks: int = 1

    def __post_init__(self) -> None:
        if self.dim < 0 or self.extent < 1 or self.blocks < 1 or self.extent % self.blocks:
            raise InvalidOptionError(
                f"dimension {self.dim} of {self.extent} elements cannot be cut into parts of {self.blocks} blocks",
                remedy="blocks of equal size",
            )

    def part_extent(self, parts: int) -> int:
        """Elements of each part along the dimension.

        Raises:
            InvalidOptionError: Blocks that do not divide into the parts.
        """
        if self.blocks > 1 and self.extent % (self.blocks * parts):
            raise InvalidOptionError(
                f"{self.blocks} blocks of {self.extent // self.blocks} elements do not divide into {parts} parts"
            )
        return -(-self.extent // parts)

    def whole_shape(self, part: Shape) -> Shape:
        """The host's shape, from that of a part."""
        return tuple(self.extent if d == self.dim else n for d, n in enumerate(part))

    def cut(self, whole: Array, parts: int) -> Array:
        """``whole`` as [parts, *shape of one part]."""
        each, before, behind = self.part_extent(parts), whole.shape[: self.dim], whole.shape[self.dim + 1 :]
        missing = each * parts - self.extent
        if missing:
            filled = np.zeros((*before, missing, *behind), whole.dtype)
            whole = np.concatenate([whole, filled], self.dim)
        blocks = whole.reshape((*before, self.blocks, parts, each // self.blocks, *behind))
        return np.moveaxis(blocks, self.dim + 1, 0).reshape((parts, *before, each, *behind))

    def join(self, parts: Array) -> Array:
        """The whole array, from [parts, *shape of one part]."""
        count, each = parts.shape[0], parts.shape[self.dim + 1]
        before, behind = parts.shape[1 : self.dim + 1], parts.shape[self.dim + 2 :]
        blocks = parts.reshape((count, *before, self.blocks, each // self.blocks, *behind))
        whole = np.moveaxis(blocks, 0, self.dim + 1).reshape((*before, count * each, *behind))
        return np.ascontiguousarray(whole[(slice(None),) * self.dim + (slice(self.extent),)])
