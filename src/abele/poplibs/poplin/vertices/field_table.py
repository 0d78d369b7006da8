"""Tables of numbers that vertices read by position, written by name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64


def field_table(fields: Mapping[int, Int64 | int], num_fields: int, num_vertices: int) -> npt.NDArray[np.int32]:
    """The table with each of ``fields`` in its column, int32[num_vertices, num_fields].

    Args:
        fields: By position: a number for all vertices, or one for each, int64[num_vertices].
        num_fields: Positions there are; every one must be given.
        num_vertices: Rows.
    """
    assert sorted(fields) == list(range(num_fields)), "every position of the vertex's state is written once"
    table = np.empty((num_vertices, num_fields), dtype=np.int32)
    for position, column in fields.items():
        table[:, position] = column
    return table
