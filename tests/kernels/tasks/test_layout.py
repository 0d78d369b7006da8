"""Layouts of spaces that exist for one point of their outer dims at a time."""

from __future__ import annotations

import pytest

from abele.kernels.target import host_target
from abele.kernels.tasks.layout import one_point
from abele.kernels.tasks.leaves import LeafProgram
from abele.kernels.tasks.program import Space
from abele.numerics import bf16, f32


@pytest.mark.parametrize(
    ("shape", "order", "type_", "strides"),
    [
        # Rows of 2 KiB are a line longer, and 112 of them are one dim or two.
        ((24, 112, 512), (0, 1, 2), f32, (0, 528, 1)),
        ((24, 7, 16, 32, 16), (0, 1, 2, 3, 4), f32, (0, 16 * 528, 528, 16, 1)),
        ((24, 512, 112), (0, 2, 1), f32, (0, 1, 528)),
        # Short rows, and an odd number of lines.
        ((24, 112, 128), (0, 1, 2), f32, (0, 128, 1)),
        ((24, 112, 272), (0, 1, 2), f32, (0, 272, 1)),
        ((24, 112, 1024), (0, 1, 2), bf16, (0, 1056, 1)),
    ],
)
def test_one_point__long_rows__lie_an_odd_number_of_lines_apart(shape, order, type_, strides):
    assert one_point(shape, (0,), order, type_).strides == strides


@pytest.mark.parametrize(
    ("shape", "outer", "elements"), [((24, 112, 512), (0,), 112 * 528), ((24, 112), (0,), 112), ((24,), (0,), 1)]
)
def test_bytes_of__one_point__are_those_of_its_elements_and_gaps(shape, outer, elements):
    layout = one_point(shape, outer, range(len(shape)), f32)
    space = Space(number=0, shape=shape, type=f32, buffer=None, name="x")
    assert LeafProgram((space,), (), host_target(), layouts={0: layout}).bytes_of(space) == 4 * elements
