from __future__ import annotations

import numpy as np
import pytest

from abele.graph import Graph, Sequence
from abele.numerics import ElementType, f16, f32
from abele.poplibs import poplin
from abele.poplibs.poplin import ConvParams
from abele.poplibs.poplin.conv_params.axis import Axis
from abele.poplibs.poplin.vertices.slic_cost import slic, slic_takes
from abele.poplibs.poplin.vertices.work import Work
from poplibs.poplin.support import system


def rows_of(length: int, rows: int, partials: ElementType) -> Work:
    one = np.ones(1, dtype=np.int64)
    positions = length * rows * one
    return Work(f16, partials, one, 4 * one, 4 * one, positions, positions, length * one, one, 4 * one)


@pytest.mark.parametrize("partials", [f16, f32])
def test_slic__long_rows__approach_thirty_two_products_a_cycle(partials: ElementType) -> None:
    # Source of the rate: machine.md §1.3, min(4, 4 channels) · 4 · 2; halves also merge what the passes leave.
    length = 60_000
    rate = length * 6 * 4 * 4 * 4 / slic(rows_of(length, 6, partials), 1)[0]
    assert 0.9 * 32 < rate <= 32 if partials == f32 else 0.4 * 32 < rate <= 32


def test_slic__strided_rows__take_twice_the_slots() -> None:
    apart, together = (int(slic(rows_of(1000, 6, f32), stride)[0]) for stride in (2, 1))
    assert 1.9 < apart / together < 2.0


@pytest.mark.parametrize(
    ("axis", "dtype", "taken"),
    [
        (Axis(8, 8, 3), f16, True),
        (Axis(8, 4, 3, 1, 2), f16, True),
        (Axis(8, 8, 3), f32, False),
        (Axis(8, 2, 3, 1, 3), f16, False),
        (Axis(8, 8, 1), f16, False),
        (Axis(8, 8, 3, 2), f16, False),
        (Axis(8, 4, 3, 1, 1, 2), f16, False),
    ],
)
def test_slic_takes__neighbours_in_halves__at_steps_of_one_or_two(axis: Axis, dtype: ElementType, taken: bool) -> None:
    assert slic_takes(axis, dtype) is taken


def test_convolution__depthwise_halves__slides_a_window() -> None:
    params = ConvParams(1, 64, 64, (28, 28), (3, 3), padding_lower=1, padding_upper=1, groups=64)
    graph, prog = Graph(system(64)), Sequence()
    x, w = poplin.create_input(graph, params, f16), poplin.create_weights(graph, params, f16)
    poplin.convolution(graph, x, w, params, prog)
    (plan,) = prog.steps[0].attributes["plan"].plans  # type: ignore[attr-defined]
    assert plan.method.kind == "slic"
