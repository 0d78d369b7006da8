"""Native kernels touch no memory outside their operands, whatever their guards."""

from __future__ import annotations

import pytest
from guarded_memory import check, values
from hypothesis import given
from hypothesis import strategies as st

from abele.kernels import HostKernel
from abele.kernels.nest.ir import Affine, affine, load, nest, store
from abele.numerics import f16, f32, i8, i32
from support.examples import examples

FLOATS = {"f32": f32, "f16": f16}


def window(i: str, k: str, stride: int, dilation: int, flip: bool, pad: int) -> Affine:
    return affine((i, stride), (k, -dilation if flip else dilation), const=pad)


@st.composite
def convolutions(draw):
    """A 1-D or 2-D window over channels, of any stride, dilation, direction and padding."""
    sizes = st.integers(1, 5)
    channels, outs, batch = draw(st.sampled_from([1, 3, 16, 20])), draw(st.sampled_from([1, 8, 24])), draw(sizes)
    field, kernel, out = draw(st.integers(1, 19)), draw(sizes), draw(st.integers(1, 20))
    place = window(
        "i",
        "k",
        draw(st.sampled_from([1, 2, 3, -1, -2])),
        draw(st.integers(1, 3)),
        draw(st.booleans()),
        draw(st.integers(-8, 24)),
    )
    return batch, channels, outs, field, kernel, out, place, draw(st.booleans()), draw(st.booleans())


@examples(8)
@given(convolutions(), st.sampled_from(sorted(FLOATS)), st.booleans())
def test_convolution__window_over_the_edge__reads_nothing_outside(case, kind, at_end):
    batch, channels, outs, field, kernel, out, place, channels_last, depthwise = case
    type_ = FLOATS[kind]
    outs = channels if depthwise else outs
    c = "o" if depthwise else "c"
    x_shape = (batch, field, channels) if channels_last else (batch, channels, field)
    x_index = ("b", place, c) if channels_last else ("b", c, place)
    w_shape, w_index = ((kernel, outs), ("k", "o")) if depthwise else ((kernel, channels, outs), ("k", "c", "o"))
    z_shape = (batch, out, outs) if channels_last else (batch, outs, out)
    z_index = ("b", "i", "o") if channels_last else ("b", "o", "i")
    body = store(2, z_index, load(0, *x_index, fill=0.0) * load(1, *w_index), "add")
    dims = {"b": batch, "i": out, "o": outs, "k": kernel} | ({} if depthwise else {"c": channels})
    host = HostKernel((x_shape, w_shape, z_shape), (type_, type_, f32), 2, 1, (nest(dims, body),))
    check(host, [values(x_shape, type_, 1), values(w_shape, type_, 2)], at_end=at_end)


@examples(8)
@given(
    st.sampled_from(["f32", "f16", "i8"]),
    st.integers(1, 40),
    st.integers(1, 50),
    st.sampled_from([1, -1, 2, -3]),
    st.integers(-40, 60),
    st.sampled_from(["set", "add", "max"]),
    st.booleans(),
    st.booleans(),
)
def test_shifted_rows__any_direction_and_combine__reads_nothing_outside(
    kind, width, count, step, shift, combine, accumulate, at_end
):
    type_ = {"f32": f32, "f16": f16, "i8": i8}[kind]
    rows = 3
    source = load(0, "r", affine(("n", step), const=shift), fill=0)
    target = ("r", "n") if combine == "set" else ("n",)
    wide = {"f32": f32, "f16": f32, "i8": i32}[kind]
    shape = (rows, count) if combine == "set" else (count,)
    body = store(1, target, source, combine, accumulate=accumulate and combine != "set")
    host = HostKernel(((rows, width), shape), (type_, wide), 1, 1, (nest({"r": rows, "n": count}, body),))
    before = [values(shape, wide, 5)]
    check(host, [values((rows, width), type_, 3)], at_end=at_end, before=before)


@examples(6)
@given(
    st.sampled_from(["f32", "f16"]),
    st.integers(1, 30),
    st.integers(1, 40),
    st.sampled_from([1, -1, 2]),
    st.integers(-30, 40),
    st.sampled_from(["set", "add"]),
    st.booleans(),
)
def test_dropped_stores__accumulated_onto__touch_nothing_outside(kind, size, count, step, shift, combine, at_end):
    type_ = FLOATS[kind]
    place = affine(("n", step), const=shift)
    body = store(1, (place, "m"), load(0, "n", "m"), combine, accumulate=combine != "set")
    shapes = ((count, 3), (size, 3))
    host = HostKernel(shapes, (type_, type_), 1, 1, (nest({"n": count, "m": 3}, body),))
    check(host, [values(shapes[0], type_, 7)], at_end=at_end, before=[values(shapes[1], type_, 8)])


@pytest.mark.parametrize("at_end", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize(("m", "n", "k"), [(3, 5, 7), (64, 48, 33), (130, 31, 65), (1, 300, 9)])
def test_matmul__ragged_tiles__reads_nothing_outside(m, n, k, kind, at_end):
    type_ = FLOATS[kind]
    body = store(2, ("m", "n"), load(0, "m", "k") * load(1, "k", "n"), "add")
    host = HostKernel(((m, k), (k, n), (m, n)), (type_, type_, f32), 2, 1, (nest({"m": m, "n": n, "k": k}, body),))
    check(host, [values((m, k), type_, 1), values((k, n), type_, 2)], at_end=at_end)


@pytest.mark.parametrize("at_end", [False, True])
def test_two_guarded_factors__one_copied_with_zeros__keeps_the_other_inside(at_end):
    # Both factors leave their operands at the same points; the copy of one must not free the other of its guard.
    place = affine("i", "k", const=-2)
    factors = load(0, "b", place, fill=0.0) * load(1, place, "o", fill=0.0)
    body = store(2, ("b", "i", "o"), factors, "add")
    shapes = ((4, 30), (30, 64), (4, 30, 64))
    host = HostKernel(shapes, (f32, f32, f32), 2, 1, (nest({"b": 4, "i": 30, "o": 64, "k": 5}, body),))
    check(host, [values(shapes[0], f32, 1), values(shapes[1], f32, 2)], at_end=at_end)


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("at_end", [False, True])
def test_reversed_samples__last_block_not_full__reads_only_samples_that_exist(kind, at_end):
    body = store(2, ("i",), load(0, affine(("i", -1), const=4)) * load(1), "set")
    host = HostKernel(((5,), (), (5,)), (FLOATS[kind], FLOATS[kind], f32), 2, 1, (nest({"i": 5}, body),))
    check(host, [values((5,), FLOATS[kind], 1), values((), FLOATS[kind], 2)], at_end=at_end)
