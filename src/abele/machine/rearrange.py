"""Local data rearrangement before and after an exchange."""

from __future__ import annotations

from dataclasses import dataclass

from abele.machine.source import constant, stated
from abele.machine.spec import Spec

_FIT = "poplibs' regression for transforms: 587 + r x KiB (PL lib/poplin/ConvModel.cpp:1575-1585)"


@dataclass(frozen=True, kw_only=True)
class Rearrange(Spec):
    """Cost of copying a tile's data into another order, by the width of its contiguous pieces.

    Attributes:
        fixed_cycles: Any rearrangement.
        wide_cycles_per_kib: Pieces are multiples of 8 bytes.
        word_cycles_per_kib: Pieces are multiples of 4 bytes.
        half_word_cycles_per_kib: Pieces are multiples of 2 bytes.
        local_copy_cycles: Fixed cost of one plain local copy, both rendezvous included.
    """

    fixed_cycles: int = constant(stated(587, _FIT), minimum=0)
    wide_cycles_per_kib: int = constant(stated(451, _FIT))
    word_cycles_per_kib: int = constant(stated(3200, _FIT))
    half_word_cycles_per_kib: int = constant(stated(5271, _FIT))
    local_copy_cycles: int = constant(stated(288, "measured on a C600, OSM cost.rs:341"), minimum=0)

    def cycles_per_kib(self, piece_bytes: int) -> int:
        """Cycles per KiB for contiguous pieces of ``piece_bytes``."""
        if piece_bytes % 8 == 0:
            return self.wide_cycles_per_kib
        return self.word_cycles_per_kib if piece_bytes % 4 == 0 else self.half_word_cycles_per_kib
