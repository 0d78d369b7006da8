from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from abele.poplibs.poplin.conv_params.axis import Axis


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    kernel_step = draw(st.integers(-3, 3).filter(bool))
    extents, steps = (tuple(draw(st.integers(1, most)) for _ in range(n)) for most, n in ((7, 3), (3, 2)))
    return Axis(*extents, *steps, kernel_step, draw(st.integers(-6, 9)))


def triples(axis: Axis) -> set[tuple[int, int, int]]:
    """Every (i, o, k) that meets, by trying all."""
    return {
        (i, o, k)
        for i in range(axis.inputs)
        for o in range(axis.outputs)
        for k in range(axis.kernel)
        if axis.in_step * i == axis.out_step * o + axis.kernel_step * k + axis.offset
    }


@given(axes())
def test_meets__any_axis__holds_pairs_with_an_input(axis: Axis) -> None:
    found = {(int(o), int(k)) for o, k in np.argwhere(axis.meets())}
    assert found == {(o, k) for _, o, k in triples(axis)}


@given(axes())
def test_input_gradient__any_axis__exchanges_inputs_and_outputs(axis: Axis) -> None:
    assert {(o, i, k) for i, o, k in triples(axis)} == triples(axis.input_gradient())


@given(axes())
def test_kernel_gradient__any_axis__exchanges_outputs_and_kernel(axis: Axis) -> None:
    gradient = axis.kernel_gradient()
    assert {(i, k, o) for i, o, k in triples(axis)} == triples(gradient)


@given(axes())
def test_kernel_gradient_swapped__any_axis__makes_outputs_the_inputs(axis: Axis) -> None:
    assert {(o, k, i) for i, o, k in triples(axis)} == triples(axis.kernel_gradient_swapped())


@given(axes())
def test_phases__any_axis__cover_every_pair_once(axis: Axis) -> None:
    seen = [
        (
            p.in_start + p.in_per_output * q + p.in_per_kernel * r,
            p.out_start + p.out_step * q,
            p.kernel_start + p.kernel_step * r,
        )
        for p in axis.phases()
        for q in range(p.num_outputs)
        for r in range(p.num_kernel)
    ]
    inside = [t for t in seen if 0 <= t[0] < axis.inputs]
    assert len(set(seen)) == len(seen)
    assert set(inside) == triples(axis)
    assert all(0 <= o < axis.outputs and 0 <= k < axis.kernel for _, o, k in seen)


@given(axes(), st.data())
def test_input_range__box__reaches_just_what_it_reads(axis: Axis, data: st.DataObject) -> None:
    o = data.draw(st.integers(0, axis.outputs - 1))
    k = data.draw(st.integers(0, axis.kernel - 1))
    outs, kernels = data.draw(st.integers(1, axis.outputs - o)), data.draw(st.integers(1, axis.kernel - k))
    start, size = axis.input_range(*(np.array([n]) for n in (o, outs, k, kernels)))
    read = [i for i, at, tap in triples(axis) if o <= at < o + outs and k <= tap < k + kernels]
    assert 0 <= start[0] < start[0] + size[0] <= axis.inputs
    assert all(start[0] <= i < start[0] + size[0] for i in read)


@given(axes())
def test_count_pairs__grid_of_boxes__adds_up(axis: Axis) -> None:
    cuts = [np.unique(np.array([0, n // 2, n])) for n in (axis.outputs, axis.kernel)]
    pairs = axis.count_pairs(cuts[0], cuts[1])
    assert pairs.sum() == len(triples(axis))
    first = [t for t in triples(axis) if t[1] < cuts[0][1] and t[2] < cuts[1][1]]
    assert pairs[0, 0] == len(first)


def test_is_pointwise__unit_relation__holds_only_without_a_kernel() -> None:
    assert Axis(5, 5, 1).is_pointwise
    assert not Axis(5, 3, 1, out_step=2).is_pointwise
    assert not Axis(5, 3, 3).is_pointwise
