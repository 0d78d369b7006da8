"""From samples straight to rows: sizes in the measure of the shape, a packer, rows."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.packing.data.layout import RowShape
from abele.packing.data.packed_rows import PackedRows
from abele.packing.data.samples import Samples
from abele.packing.solve import Method, pack_items


def sizes_of(samples: Samples, shape: RowShape) -> Int64:
    """Sizes of samples as a packer counts them.

    Args:
        samples: Samples to pack.
        shape: Capacity of a row.

    Returns:
        int64[num_samples], or [num_samples, num_axes] in the order of ``shape.axes`` where there are several. A sample
        with none of an axis but the first, such as a graph without edges, counts as one there: packers refuse sizes of
        zero.
    """
    for axis in samples.axes:
        shape.capacity_of(axis)
    columns = [shape.needs(samples.axis_lengths(axis), axis) for axis in shape.axes]
    if len(columns) == 1:
        return columns[0]
    return np.stack([columns[0], *(np.maximum(1, column) for column in columns[1:])], 1)


def pack_rows(samples: Samples, shape: RowShape, *, method: Method = "lpfhp", seed: int | None = None) -> PackedRows:
    """Pack samples into rows.

    Args:
        samples: Samples to pack.
        shape: Capacity of a row.
        method: Method of packing, as of :func:`abele.packing.pack`.
        seed: Shuffles samples of equal size, and packs. Another seed gives other neighbours.

    Raises:
        ItemSizeError: A sample is too long for a row.
        PackedDataError: Rows without a capacity for an axis of the samples.
    """
    rooms = [shape.room(axis) for axis in shape.axes]
    packs = pack_items(
        sizes_of(samples, shape), rooms if len(rooms) > 1 else rooms[0], depth=shape.depth, method=method, seed=seed
    )
    return PackedRows(samples, packs, shape)
