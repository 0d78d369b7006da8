"""Shape–stride algebra: offsets in memory as functions of an index, and what can be computed of them unlisted.

A *mode* is an extent with a stride; a *layout* is a list of modes, outermost first. An index counts through the extents
as through the digits of a mixed-radix number, and its offset is the sum of digit × stride. The layout (4, 6):(1, 4)
shows a matrix of 4 × 6 elements stored by columns: index 7 has the digits (1, 1) and lies at offset 5.

Source: Shah et al., CuTe Layout Representation and Algebra (the operations and their laws). Here the last mode is the
fastest, as in NumPy, and strides may be zero or negative.
"""

from abele.layout.layout import ComplementError, CompositionError, InverseError, Layout
from abele.layout.modes import Mode, ModeImage, Modes, are_apart, coalesce, image, offset_at, offsets, run_length, split
from abele.layout.shapes import (
    Divisors,
    LayoutError,
    RefinementError,
    Shape,
    digits,
    matching_groups,
    refine,
    row_major,
)

__all__ = [
    "ComplementError",
    "CompositionError",
    "Divisors",
    "InverseError",
    "Layout",
    "LayoutError",
    "Mode",
    "ModeImage",
    "Modes",
    "RefinementError",
    "Shape",
    "are_apart",
    "coalesce",
    "digits",
    "image",
    "matching_groups",
    "offset_at",
    "offsets",
    "refine",
    "row_major",
    "run_length",
    "split",
]
