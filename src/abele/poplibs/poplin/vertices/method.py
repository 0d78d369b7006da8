"""Methods: which of the hand-written vertices computes the slices of a contraction, and in which form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.poplibs.poplin.vertices import cost, records
from abele.poplibs.poplin.vertices.slic_cost import slic
from abele.poplibs.poplin.vertices.vmac_cost import vmac
from abele.poplibs.poplin.vertices.work import Work

_SLIC_BUFFER = 50
"""Elements of SLIC's second field beyond those of partials: 200 B of f32. Source: machine.md §5.13."""


@dataclass(frozen=True)
class Method:
    """The vertex that does the work.

    Attributes:
        kind: ``amp_1x1``, ``amp_nx1``, ``slic``, ``vmac``, ``hmac`` or ``outer_product``.
        units: Conv units used by the AMP kinds.
        height: Kernel rows that share one load of weights.
        wide_loads: True if weights are loaded 128 bits at a time.
        core_cycles: Cycles from one position to the next in the AMP kinds; 0 for those of Mk2.
        stride: Step along the innermost field dimension, for SLIC.
        out_group: Out-channels of a group in the AMP kinds: those of one pass of the units, or 16.
    """

    kind: str
    units: int = 0
    height: int = 1
    wide_loads: bool = False
    core_cycles: int = 0
    stride: int = 1
    out_group: int = cost.OUT_GROUP

    @property
    def family(self) -> str:
        """Family of the vertex in PopLibs' ``planConstraints``: the two AMP vertices are one family, each other is its
        own.
        """
        return "amp" if self.kind in ("amp_1x1", "amp_nx1") else self.kind

    @property
    def least_code_bytes(self) -> int:
        """Bytes of code that the vertex takes at least."""
        return records.AMP_CODE_BYTES if self.family == "amp" else 0

    def cycles(self, work: Work, load_bytes: int) -> Int64:
        """Tile cycles of slices, int64[n]."""
        match self.kind:
            case "amp_1x1":
                return cost.amp_1x1(work, self.units, load_bytes, self.core_cycles, out_group=self.out_group)
            case "amp_nx1":
                return cost.amp_nx1(
                    work, self.units, load_bytes, self.core_cycles, self.height, out_group=self.out_group
                )
            case "slic":
                return slic(work, self.stride)
            case "vmac":
                return vmac(work)
            case "outer_product":
                return cost.outer_product(work)
        return cost.hmac(work)

    def written_channels(self, channels: Int64) -> Int64:
        """Out-channels that partials have where there are so many, int64[n]: whole groups of the matrix units.

        Source: machine.md §5.4 (8 or 16 channels of partials to a group).
        """
        if self.family != "amp":
            return channels
        group = max(cost.LEAST_OUT_GROUP, self.units)
        return np.where(channels % cost.LEAST_OUT_GROUP, cost.ceil_div(channels, group) * group, channels)

    def buffer_elements(self, elements: Int64) -> Int64:
        """Elements that a vertex needs beside partials of so many, of their type, int64[n].

        SLIC writes two fields in turn, and a little more; each worker of the vertical kind has partials of its own.
        Source: machine.md §4.5, §5.13.
        """
        match self.kind:
            case "slic":
                return elements + _SLIC_BUFFER
            case "vmac":
                return elements * (cost.WORKERS - 1)
        return np.zeros_like(elements)

    def state_bytes(self, work: Work, pointer_bytes: int) -> Int64:
        """Bytes of the records of slices, int64[n]; pointers to rows take ``pointer_bytes``."""
        match self.kind:
            case "amp_1x1":
                return records.amp_1x1(work, pointer_bytes, self.out_group)
            case "amp_nx1":
                return records.amp_nx1(work, self.height, pointer_bytes, self.out_group)
            case "outer_product":
                return records.outer_product(work)
        return records.mac(work, pointer_bytes)

    def __str__(self) -> str:
        detail = f" {self.units} units" if self.units else ""
        wide = " 128-bit loads" if self.wide_loads else ""
        return self.kind + detail + (f" height {self.height}" if self.height > 1 else "") + wide
