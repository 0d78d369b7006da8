"""Work of a vertex: sizes of its slice of a contraction, as arrays over vertices or over candidate plans."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from abele.arrays import Int64
from abele.numerics import ElementType


@dataclass(frozen=True)
class Work:
    """Sizes of slices of a contraction, one per vertex.

    Attributes:
        dtype: Type of the inputs.
        partials: Type of what a vertex writes.
        groups: Groups, int64[n].
        in_channels: Channels summed over, int64[n].
        out_channels: Channels written, int64[n].
        positions: Output positions (samples times field) that an average kernel position adds to, int64[n].
        outputs: Output positions in all, int64[n].
        run: Positions in one row, which a worker goes through in one sweep, int64[n].
        kernel_outer: Kernel rows that meet any input: all dimensions of the kernel but the last, int64[n].
        kernel_inner: Kernel positions in a row that meet any input, int64[n].
    """

    dtype: ElementType
    partials: ElementType
    groups: Int64
    in_channels: Int64
    out_channels: Int64
    positions: Int64
    outputs: Int64
    run: Int64
    kernel_outer: Int64
    kernel_inner: Int64

    def at(self, kept: Int64) -> Work:
        """The work of some vertices."""
        columns = (f.name for f in fields(self) if f.name not in ("dtype", "partials"))
        return replace(self, **{name: getattr(self, name)[kept] for name in columns})

    @property
    def partial_elements(self) -> Int64:
        """Elements that each vertex writes, int64[n]."""
        return self.groups * self.out_channels * self.outputs
