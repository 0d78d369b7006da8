"""Slots of a sparse matrix whose pattern changes at run time: what the device holds, and the host's way to and fro.

A plan is of a matrix size, a block, a number of blocks, a batch and a machine; it is popsparse's of a fully connected
layer that is trained. It gives the number of slots for values and the number of words that tell which value each slot
has; one compiled program serves every pattern within it. Values stay in the slots' order on the device, so that an
optimiser works slot by slot; slots without a value are zero.

Example: a layer of 256 outputs and 64 inputs with 1,639 weights and batches of 32 has 5,632 slots on a Bow IPU, four on
each of 1,408 tiles, and 205,604 words of 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Array, Int64
from abele.errors import InvalidOptionError, PatternMismatchError, SparseOverflowError, SparsePatternError
from abele.poplibs.popsparse import dynamic
from abele.sparsity import Pattern, grid_of

GRAIN = 4
"""Rows of activations are a multiple of this. Source: popsparse.md §4, the grain of a batch of half elements."""


@dataclass(frozen=True)
class SlotPlan:
    """Layout of the values of any pattern of a size on the device.

    Attributes:
        shape: Rows and columns of the matrix: outputs and inputs of a layer.
        block: Rows and columns of a block.
        blocks: Blocks that a pattern may hold.
        rows: Rows of activations that are multiplied at a time.
        dtype: Type of values and activations, ``f32`` or ``f16``.
        system: The machine that it is for.
        oversize: Share by which buckets are larger than an even pattern needs.

    Raises:
        SparsePatternError: The shape is no multiple of the block, or the rows none of the grain.
        InvalidOptionError: No such number of blocks or rows.
    """

    shape: tuple[int, int]
    block: tuple[int, int]
    blocks: int
    rows: int
    dtype: str = "f32"
    system: str = "bow-2000"
    oversize: float = 0.3

    def __post_init__(self) -> None:
        grid = grid_of(self.shape, self.block)
        if not 0 < self.blocks <= grid[0] * grid[1]:
            raise InvalidOptionError(f"a plan is for 1 to {grid[0] * grid[1]:,} blocks, got {self.blocks:,}")
        if self.rows < 1:
            raise InvalidOptionError(f"a plan is for at least 1 row of activations, got {self.rows}")
        if self.dtype not in ("f32", "f16"):
            raise InvalidOptionError(f"a plan is for values of f32 or f16, got {self.dtype}")

    @property
    def params(self) -> dynamic.FullyConnectedParams:
        """Popsparse's parameters of the layer."""
        sparsity = dynamic.SparsityParams(blockDimensions=self.block)
        area = self.block[0] * self.block[1]
        outputs, inputs = self.shape
        return dynamic.FullyConnectedParams.createWithNumNonZeroValues(
            sparsity, self.blocks * area, self.rows, 1, inputs, outputs
        )

    @property
    def options(self) -> dict[str, Any]:
        """Popsparse's options of the layer: all passes."""
        return {"doGradAPass": True, "doGradWPass": True, "metaInfoBucketOversizeProportion": self.oversize}

    @property
    def values_shape(self) -> tuple[int, ...]:
        """Shape of the slots."""
        return (_partitioner(self).plan.num_values,)

    @property
    def meta_shape(self) -> tuple[int, ...]:
        """Shape of the words."""
        return (_partitioner(self).plan.num_meta,)

    def check(self, pattern: Pattern) -> None:
        """Raise unless a pattern is of the plan's size.

        Raises:
            PatternMismatchError: The pattern is of another shape or block.
            SparseOverflowError: It holds more blocks than there are slots for.
        """
        if (pattern.shape, pattern.block) != (self.shape, self.block):
            raise PatternMismatchError(
                f"{pattern} is no pattern for a plan of {list(self.shape)} in blocks of {list(self.block)}",
                remedy="make another layer, or a pattern of this shape and block",
            )
        if pattern.num_blocks > self.blocks:
            raise SparseOverflowError(
                f"{pattern} has {pattern.num_blocks:,} blocks, the plan has slots for {self.blocks:,}",
                because=f"{pattern.num_blocks - self.blocks:,} blocks too many",
                remedy="drop blocks, or make the layer with a larger density",
            )

    def slots(self, pattern: Pattern) -> Int64:
        """Slot of each of the pattern's values [blocks, *block].

        Raises:
            PatternMismatchError: The pattern is of another shape or block.
            SparseOverflowError: The plan has no room for the pattern.
        """
        return _placed(self, pattern).slots.reshape((pattern.num_blocks, *self.block))

    def words(self, pattern: Pattern) -> npt.NDArray[np.uint16]:
        """Words that tell the device a pattern, of :attr:`meta_shape`."""
        return _placed(self, pattern).meta.copy()  # The placement is kept, and the words are written to.

    def pattern(self, words: npt.ArrayLike) -> Pattern:
        """The pattern that the device was told.

        Raises:
            SparsePatternError: Words that no pattern of the plan has.
        """
        given = np.asarray(words)
        if given.shape != self.meta_shape or given.dtype != np.uint16:
            raise SparsePatternError(
                f"the words of a pattern are u16{list(self.meta_shape)}, got {given.dtype}{list(given.shape)}",
                remedy="words of the same layer, batch and machine",
            )
        data = dynamic.SparsityData(given, np.zeros(self.values_shape, np.uint8))
        (found,) = _partitioner(self).read(data)
        if not np.array_equal(self.words(found[0]), given):
            raise SparsePatternError(f"the words of {found[0]} are not as its plan places them")
        return found[0]

    def encode(self, pattern: Pattern, values: npt.ArrayLike) -> Array:
        """Slots of a pattern's values; those without a value are zero."""
        held = np.asarray(values)
        made = np.zeros(self.values_shape, held.dtype)
        made[self.slots(pattern).reshape(-1)] = held.reshape(-1)
        return made

    def decode(self, pattern: Pattern, slots: npt.ArrayLike) -> Array:
        """A pattern's values [blocks, *block] from the slots."""
        return np.asarray(slots).reshape(-1)[self.slots(pattern)]


@lru_cache(256)
def _partitioner(plan: SlotPlan) -> dynamic.Partitioner:
    if plan.rows % GRAIN:
        raise SparsePatternError(
            f"{plan.rows} rows of activations are no multiple of {GRAIN}",
            remedy=f"{plan.rows + -plan.rows % GRAIN} rows; those that are missing are filled up with zeros",
        )
    return dynamic.Partitioner(plan.params, plan.dtype, plan.system, plan.options)


@lru_cache(64)
def _placed(plan: SlotPlan, pattern: Pattern) -> dynamic.Placement:
    plan.check(pattern)
    return _partitioner(plan).place(pattern)
