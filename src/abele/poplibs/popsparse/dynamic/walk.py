"""The walk over the buckets of :mod:`~abele.poplibs.popsparse.dynamic.buckets`, as a macro of all codelets.

A codelet says which sub-groups it wants, and what it does with a row of one.

Example: a cell with rows 0 to 24 and a bucket with a sub-group of another cell first: the vertex reads that one's id,
adds its link to the place, adds its number of blocks to the place among the values, and goes on.
"""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from dataclasses import dataclass

from abele.codelet import macro
from abele.numerics import ElementType, i64, u32
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan


@dataclass(frozen=True)
class Walked:
    """Sizes and types of a codelet.

    Attributes:
        dtype: Type of values and dense operands.
        partials: Type of partial sums.
        high: Rows of a block.
        wide: Columns of a block.
        header: Entries of a sub-group before its first row.
        meta_slots: Entries of a bucket.
        nz_slots: Blocks of a bucket.
    """

    dtype: ElementType
    partials: ElementType
    high: int
    wide: int
    header: int
    meta_slots: int
    nz_slots: int

    @classmethod
    def of(cls, plan: DynamicPlan, partials: ElementType) -> Walked:
        """Sizes of a plan's lists of rows."""
        return cls(plan.dtype, partials, *plan.block, plan.header, plan.meta_slots, plan.nz_slots)

    @property
    def area(self) -> int:
        """Values of a block."""
        return self.high * self.wide


@macro
def each_row(self, how, entry, wanted, visit):
    """Have ``visit`` see the rows of the sub-groups in ``meta`` that ``wanted`` says True to, bucket after bucket.

    Nothing is visited beyond a bucket, whatever the meta-info says.

    Args:
        how: Sizes.
        entry: Entries of a block in a row.
        wanted: Macro of (self, at); ``at`` is where a sub-group begins.
        visit: Macro of (self, at, row, count, value, v): where the sub-group and the row begin, blocks of the row, and
            the places of the first values of the sub-group and of the row.
    """
    for bucket in range(i64(len(self.meta)) // how.meta_slots):
        at, value = bucket * how.meta_slots, bucket * how.nz_slots * how.high * how.wide
        end, behind = at + how.meta_slots, value + how.nz_slots * how.high * how.wide
        while at + how.header <= end:
            if self.meta[at] == 0:
                at = end
            else:
                if wanted(self, at):
                    row, v = at + how.header, value
                    for _r in range(i64(self.meta[at + 6])):
                        if row + 2 <= end:
                            count = i64(self.meta[row + 1])
                            if row + 2 + entry * count > end or v + count * how.high * how.wide > behind:
                                count = i64(0)
                            visit(self, at, row, count, value, v=v)
                            v += count * how.high * how.wide
                            row += 2 + entry * count
                value += i64(self.meta[at + 3]) * how.high * how.wide
                at += max(i64(self.meta[at + 4]), i64(how.header))


@macro
def own_cell(self, at):
    """True for sub-groups of the vertex's cell, a number of its state."""
    return u32(self.meta[at]) == self.cell


@macro
def given_cell(self, at):
    """True for sub-groups of the vertex's cell, a vector that goes round with its operands."""
    return u32(self.meta[at]) == self.cell[0]


@macro
def any_cell(self, at):
    """True: there is no sub-group of another cell, or all are wanted."""
    return True
