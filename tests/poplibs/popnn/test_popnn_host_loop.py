"""Layout of what recurrent layers keep for the host: rows off powers of two, weights in panels."""

from __future__ import annotations

import numpy as np
import pytest

from abele.graph import Graph
from abele.kernels.target import row_length
from abele.numerics import f16, f32
from abele.poplibs.popnn.recurrent.host_loop import HostUnits, clone_in_panels


@pytest.mark.parametrize(
    ("elements", "dtype", "length"),
    [
        (1024, f32, 1040),
        (512, f32, 528),
        (272, f32, 272),
        (1200, f32, 1200),
        (128, f32, 128),
        (1000, f32, 1000),
        (1024, f16, 1056),
    ],
)
def test_row_length__rows_of_whole_lines__are_an_odd_number_apart(elements, dtype, length):
    assert row_length(elements, dtype) == length


def test_stacks__long_rows__hold_every_element_once():
    units = HostUnits(Graph("bow-2000"), f32, batch=3, size=256)
    made = units.stacks(2, 4, "deltas")
    assert made.shape == (2, 4, 3, 256)
    strided = made.strided()
    assert strided is not None
    assert not made.contains_aliases
    assert strided.factors[2] == ((3, 1040),)


@pytest.mark.parametrize(("columns", "width"), [(256, 32), (96, 32), (48, 16), (40, 40), (7, 7)])
def test_clone_in_panels__columns__lie_side_by_side_in_panels(columns, width):
    weights = Graph("bow-2000").variable(f32, (3, 5, columns), "weights")
    panels = clone_in_panels(weights, "copied")
    assert panels.shape == weights.shape
    elements = np.arange(panels.variables[0].size)
    strided = panels.strided()
    assert strided is not None
    seen = strided.of(elements).reshape(weights.shape)
    # Of one panel, all rows of all gates follow each other.
    np.testing.assert_array_equal(seen[:, :, :width].reshape(-1), np.arange(15 * width))
