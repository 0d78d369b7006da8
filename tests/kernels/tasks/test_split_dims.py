from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import form_after, run_plan

from abele.errors import TensorError, TypeMismatchError
from abele.kernels import BoundKernel, Buffer, HostKernel, OperandBinding, bind, copy_kernel, plan_native
from abele.kernels.nest.binding import bound_calls
from abele.kernels.nest.ir import affine, load, nest, store
from abele.kernels.plan.reference import evaluate_form
from abele.numerics import f32, i32
from support.examples import examples


def run(buffers: list[Buffer], calls: list[BoundKernel], **arrays: np.ndarray) -> dict[str, np.ndarray]:
    storage = {b.id: np.zeros(b.shape, b.type.np) for b in buffers if b.pinned}
    names = {b.name: b.id for b in buffers if b.pinned}
    for name, array in arrays.items():
        storage[names[name]][...] = array.reshape(storage[names[name]].shape)
    run_plan(plan_native(buffers, calls), storage)
    return {name: storage[number] for name, number in names.items()}


def test_split_dims__views_that_split_alike__index_whole_dims():
    x, y = Buffer(0, (2, 512, 3, 3, 16), f32, True, "x"), Buffer(1, (512, 288), f32, True, "y")
    image = OperandBinding(0, (((512, 144),), ((2, 73728), (16, 1)), ((3, 48),), ((3, 16),)))
    flat = OperandBinding(1, (((512, 288),), ((32, 9),), ((3, 3),), ((3, 1),)))
    program = form_after("split_dims", [x, y], [BoundKernel(copy_kernel((512, 32, 3, 3), f32), (image, flat), "copy")])
    assert [s.shape for s in program.spaces] == [(2, 512, 3, 3, 16), (512, 2, 16, 3, 3)]
    assert str(program.tasks[0]).splitlines()[1].strip() == "$1[d0, d1.1, d1.0, d2, d3] = $0[d1.1, d0, d2, d3, d1.0]"


def test_split_dims__views_that_split_differently__keep_only_these_dims_whole():
    x = Buffer(0, (25, 64, 8), f32, False, "x")
    source, out = Buffer(1, (64, 200), f32, True, "source"), Buffer(2, (64, 8, 5, 5), f32, True, "out")
    grouped, whole = (
        OperandBinding(0, (((64, 8),), ((25, 512), (8, 1)))),
        OperandBinding(3, (((64, 200),), ((200, 1),))),
    )
    own = Buffer(3, (64, 8, 5, 5), f32, False, "own")
    image = OperandBinding(3, (((64, 200),), ((8, 25),), ((5, 5),), ((5, 1),)))
    calls = [
        BoundKernel(copy_kernel((64, 200), f32), (bind(source), grouped), "in"),
        BoundKernel(copy_kernel((64, 200), f32), (grouped, whole), "turn"),
        BoundKernel(copy_kernel((64, 8, 5, 5), f32), (image, bind(out)), "out"),
    ]
    program = form_after("split_dims", [x, source, out, own], calls)
    assert next(s.shape for s in program.spaces if s.name == "own") == (64, 200)
    data = np.arange(64 * 200, dtype=np.float32)
    assert (run([x, source, out, own], calls, source=data)["out"].reshape(-1) == data).all()


def test_split_dims__window_over_a_split_dim__goes_through_a_copy():
    x, y = Buffer(0, (4, 5, 4), f32, True, "x"), Buffer(1, (5, 14), f32, True, "y")
    view = OperandBinding(0, (((5, 4),), ((4, 20), (4, 1))))
    body = store(1, ("r", "i"), load(0, "r", affine("i", "k")), "add")
    kernel = HostKernel(((5, 16), (5, 14)), (f32, f32), 1, 1, (nest({"r": 5, "i": 14, "k": 3}, body),))
    data = np.arange(80, dtype=np.float32).reshape(4, 5, 4)
    rows = data.transpose(1, 0, 2).reshape(5, 16)
    result = run([x, y], [BoundKernel(kernel, (view, bind(y)), "window")], x=data)["y"]
    np.testing.assert_array_equal(result, rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:])


def test_split_dims__temporary_between_views_that_split_differently__means_the_same():
    x, y = Buffer(0, (6, 4, 5), f32, True, "x"), Buffer(1, (3, 2, 8), f32, True, "y")
    # Rows are 6 times 4 in the operand, and 3 times 8 in the result; the temporary has them whole.
    source = OperandBinding(0, (((6, 20), (4, 5)), ((5, 1),)))
    result = OperandBinding(1, (((3, 16), (8, 1)), ((2, 8),)))
    summed = nest({"i": 24, "j": 2, "k": 5}, store(2, ("i", "j"), load(0, "i", "k"), "add"))
    scaled = nest({"i": 24, "j": 2}, store(1, ("i", "j"), load(2, "i", "j") * 2.0))
    kernel = HostKernel(((24, 5), (24, 2), (24, 2)), (f32, f32, f32), 1, 1, (summed, scaled))
    data = np.arange(120, dtype=np.float32)
    out = run([x, y], [BoundKernel(kernel, (source, result), "sums")], x=data)["y"]
    wanted = 2 * data.reshape(24, 5).sum(1)
    np.testing.assert_array_equal(out, np.stack([wanted.reshape(3, 8)] * 2, 1))


def test_split_dims__windows_over_two_split_dims__go_through_a_copy_each():
    x, z = (Buffer(n, (4, 5, 4), f32, True, name) for n, name in enumerate("xz"))
    y, total = Buffer(2, (5, 14), f32, True, "y"), Buffer(3, (5, 14), f32, True, "total")
    views = [OperandBinding(n, (((5, 4),), ((4, 20), (4, 1)))) for n in range(2)]
    window = load(0, "r", affine("i", "k")) * load(1, "r", affine("i", "k"))
    shapes = (5, 16), (5, 16), (5, 14)
    kernel = HostKernel(
        shapes, (f32,) * 3, 2, 1, (nest({"r": 5, "i": 14, "k": 3}, store(2, ("r", "i"), window, "add")),)
    )
    calls = [
        BoundKernel(kernel, (*views, bind(y)), "first"),
        BoundKernel(kernel, (*views[::-1], bind(total)), "second"),
    ]
    program = form_after("split_dims", [x, z, y, total], calls)
    assert [t.name for t in program.tasks] == ["first.copy"] * 2 + ["first"] + ["second.copy"] * 2 + ["second"]
    data = np.random.default_rng(0).normal(size=(2, 4, 5, 4)).astype(np.float32)
    results = run([x, z, y, total], calls, x=data[0], z=data[1])
    a, b = data.transpose(0, 2, 1, 3).reshape(2, 5, 16)
    expected = sum((a.astype(np.float64) * b)[:, k : k + 14] for k in range(3))
    # Products of size 1 cancel to 0.002 at one place: what counts there is a rounding of the products.
    np.testing.assert_allclose(results["y"], expected, rtol=1e-5, atol=2e-7)
    np.testing.assert_array_equal(results["total"], results["y"])


def test_split_dims__reversed_broadcast_and_sliced_views__read_the_right_elements():
    x, y = Buffer(0, (6, 8), f32, True, "x"), Buffer(1, (3, 4, 2), f32, True, "y")
    view = OperandBinding(0, (((3, -16),), ((4, 2),), ((2, 0),)), offset=33)
    data = np.arange(48, dtype=np.float32).reshape(6, 8)
    result = run([x, y], [BoundKernel(copy_kernel((3, 4, 2), f32), (view, bind(y)), "view")], x=data)["y"]
    expected = np.repeat(data[4::-2, 1::2][:3, :, None], 2, axis=2)
    np.testing.assert_array_equal(result, expected)


def test_split_dims__in_place_update__reads_before_it_writes():
    x = Buffer(0, (7, 30), f32, True, "x")
    body = store(1, ("i", "j"), load(0, "i", "j") * 2.0 + 1.0)
    kernel = HostKernel(((7, 30), (7, 30)), (f32, f32), 1, 1, (nest({"i": 7, "j": 30}, body),))
    data = np.arange(210, dtype=np.float32).reshape(7, 30)
    calls = [BoundKernel(kernel, (bind(x), bind(x)), "twice")] * 3
    np.testing.assert_array_equal(run([x], calls, x=data)["x"], data * 8 + 7)


def test_split_dims__unknown_buffer__names_the_operand():
    x = Buffer(0, (4,), f32, True, "x")
    with pytest.raises(TensorError, match=r"no buffer 9\n  at       operand %1 of copy"):
        form_after(
            "split_dims", [x], [BoundKernel(copy_kernel((4,), f32), (bind(x), OperandBinding(9, (((4, 1),),))), "copy")]
        )


def test_split_dims__view_outside_its_buffer__tells_the_range():
    x, y = Buffer(0, (4,), f32, True, "x"), Buffer(1, (4,), f32, True, "y")
    with pytest.raises(TensorError, match="view of buffer x runs from element 2 to 5, it has 4"):
        form_after(
            "split_dims",
            [x, y],
            [BoundKernel(copy_kernel((4,), f32), (OperandBinding(0, (((4, 1),),), 2), bind(y)), "copy")],
        )


def test_split_dims__other_element_type__tells_both():
    x, y = Buffer(0, (4,), i32, True, "x"), Buffer(1, (4,), f32, True, "y")
    with pytest.raises(TypeMismatchError, match="buffer x holds i32, the kernel wants f32"):
        form_after("split_dims", [x, y], [BoundKernel(copy_kernel((4,), f32), (bind(x), bind(y)), "copy")])


def test_call__view_of_another_shape__tells_both():
    x = Buffer(0, (4,), f32, True, "x")
    with pytest.raises(TensorError, match=r"copy: operand %0 has shape \[5\], its view \[4\]"):
        BoundKernel(copy_kernel((5,), f32), (bind(x), bind(x)), "copy")


@st.composite
def scattered(draw: Any, number: int) -> OperandBinding:
    """A view [12, 12] of a buffer of 144 elements, each dim split and laid out at will."""
    digits = [draw(st.permutations([2, 2, 3])) for _ in range(2)]
    places = [(dim, n) for dim in range(2) for n in range(3)]
    strides, stride = {}, 1
    for dim, n in draw(st.permutations(places)):
        strides[dim, n] = stride
        stride *= digits[dim][n]
    return OperandBinding(number, tuple(tuple((digits[dim][n], strides[dim, n]) for n in range(3)) for dim in range(2)))


@examples(12)
@given(data=st.data())
def test_split_dims__views_that_split_at_will__end_and_mean_the_same(data: Any) -> None:
    buffers = [Buffer(n, (12, 12), f32, True, f"b{n}") for n in range(3)]
    body = nest({"i": 12, "j": 12}, store(2, "ij", load(0, *"ij") * 2.0 + load(1, *"ij")))
    kernel = HostKernel(((12, 12),) * 3, (f32,) * 3, 2, 1, (body,))
    calls = []
    for number in range(data.draw(st.integers(1, 4))):
        *read, written = data.draw(st.permutations(range(3)))
        views = tuple(data.draw(scattered(n)) for n in (*read, written))
        calls.append(BoundKernel(kernel, views, f"call{number}"))
    storage = {n: np.random.default_rng(n).standard_normal((12, 12)).astype(np.float32) for n in range(3)}
    expected = evaluate_form(bound_calls(buffers, calls, None), {n: a.copy() for n, a in storage.items()})
    got = evaluate_form(form_after("split_dims", buffers, calls), storage)
    for number in range(3):
        np.testing.assert_array_equal(got[number].reshape(-1), expected[number].reshape(-1))
