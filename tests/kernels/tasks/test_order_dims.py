"""The plan's own arrays are stored as loops run over them; the caller's, and those under windows, as they are."""

from __future__ import annotations

import numpy as np
from kernels_kit import form_after, run_plan
from small_programs import Calls, grains

from abele.kernels import BoundKernel, HostKernel, OperandBinding, bind, plan_native
from abele.kernels.nest.ir import affine, load, nest, store
from abele.numerics import f32


def own_shapes(made: Calls) -> dict[str, tuple[int, ...]]:
    """Shapes of the plan's own spaces, by name."""
    program = form_after("order_dims", made.buffers, made.calls)
    used = {n for task in program.tasks for n in task.reads | task.writes}
    return {s.name: s.shape for s in program.spaces if not s.pinned and s.number in used}


def in_grains(rows: int, channels: int, number: int) -> OperandBinding:
    """A view of ``[channels / 8, rows, 8]`` as ``[rows, channels]``."""
    return OperandBinding(number, (((rows, 8),), ((channels // 8, 8 * rows), (8, 1))))


def test_order_dims__grains_of_channels__become_rows():
    made = grains()
    before = form_after("drop_unread", made.buffers, made.calls)
    assert [s.shape for s in before.spaces if s.name == "middle"] == [(32, 16)]
    assert own_shapes(made) == {"middle": (16, 32)}


def test_order_dims__result__is_that_of_numpy():
    made, rng = grains(), np.random.default_rng(0)
    x, bias = rng.normal(size=(16, 32)).astype(np.float32), rng.normal(size=32).astype(np.float32)
    storage = {0: x, 1: bias, 2: np.zeros(16, np.float32)}
    run_plan(plan_native(made.buffers, made.calls), storage)
    np.testing.assert_allclose(storage[2], (x + bias) @ bias, rtol=1e-5)


def test_order_dims__the_callers_array__keeps_its_dims():
    made = Calls()
    x, y = made.buffer((16, 32), "x", True), made.buffer((4, 16, 8), "y", True)
    copy = nest({"b": 16, "c": 32}, store(1, ("b", "c"), load(0, "b", "c") * 2.0))
    kernel = HostKernel(((16, 32), (16, 32)), (f32,) * 2, 1, 1, (copy,))
    made.calls = [BoundKernel(kernel, (bind(x), in_grains(16, 32, y.id)), "double")]
    program = form_after("order_dims", made.buffers, made.calls)
    assert [s.shape for s in program.spaces] == [(16, 4, 8), (4, 16, 8)]


def test_order_dims__an_array_under_a_window__keeps_its_dims():
    made = Calls()
    x, y = made.buffer((6, 8, 10), "x", True), made.buffer((8, 6, 8), "y", True)
    middle = made.buffer((10, 6, 8), "middle")
    turn = nest({"b": 6, "c": 8, "w": 10}, store(1, ("w", "b", "c"), load(0, "b", "c", "w")))
    made.calls.append(
        BoundKernel(HostKernel((x.shape, middle.shape), (f32,) * 2, 1, 1, (turn,)), (bind(x), bind(middle)), "turn")
    )
    loops = {"w": 8, "b": 6, "c": 8, "k": 3}
    made.call("window", [middle], y, loops, ("w", "b", "c"), load(0, affine("w", "k"), "b", "c"), "add")
    assert own_shapes(made) == {"middle": (10, 6, 8)}


def test_order_dims__a_temporary_beside_arrays_in_grains__lies_as_they_do():
    made = Calls()
    x, y = made.buffer((4, 16, 8), "x", True), made.buffer((4, 16, 8), "y", True)
    first = nest({"b": 16, "c": 32}, store(2, ("b", "c"), load(0, "b", "c") * 2.0))
    second = nest({"b": 16, "c": 32, "k": 3}, store(1, ("b", "c"), load(2, affine("b", "k"), "c", fill=0.0), "add"))
    kernel = HostKernel(((16, 32),) * 3, (f32,) * 3, 1, 1, (first, second))
    made.calls = [BoundKernel(kernel, (in_grains(16, 32, x.id), in_grains(16, 32, y.id)), "twice")]
    assert own_shapes(made) == {"twice.2": (4, 16, 8)}


def test_order_dims__a_dim_that_an_array_has_twice__stays_where_it_is():
    made = Calls()
    x, y = made.buffer((12, 4), "x", True), made.buffer((12, 12), "y", True)
    gram = made.buffer((12, 12), "gram")
    loops = {"i": 12, "j": 12, "k": 4}
    made.call("gram", [x, x], gram, loops, ("j", "i"), load(0, "i", "k") * load(1, "j", "k"), "add")
    made.call("twice", [gram, gram], y, {"i": 12, "j": 12}, ("i", "j"), load(0, "i", "j") + load(1, "j", "i"))
    assert own_shapes(made) == {"gram": (12, 12)}
    rng = np.random.default_rng(1)
    storage = {0: rng.normal(size=(12, 4)).astype(np.float32), 1: np.zeros((12, 12), np.float32)}
    run_plan(plan_native(made.buffers, made.calls), storage)
    np.testing.assert_allclose(storage[1], 2 * storage[0] @ storage[0].T, rtol=1e-4, atol=1e-5)


def test_order_dims__beside_an_array_under_a_window__dims_lie_as_in_that_one():
    # The window runs over [b, w, c], and the calls' loops say [b, c, w]: its own result, and what is made of it, keep
    # channels innermost.
    made = Calls()
    x, taps = made.buffer((4, 10, 8), "x", True), made.buffer((3, 8, 8), "taps", True)
    first, second = made.buffer((4, 8, 8), "first"), made.buffer((4, 8, 8), "second")
    y = made.buffer((4, 8, 6), "y", True)
    for source, target, width in ((x, first, 8), (second, y, 6)):
        window = load(0, "b", affine("w", "k"), "c") * load(1, "k", "o", "c")
        shapes = (source.shape, taps.shape, (4, 8, width))
        loops = {"b": 4, "o": 8, "w": width, "c": 8, "k": 3}
        kernel = HostKernel(shapes, (f32,) * 3, 2, 1, (nest(loops, store(2, ("b", "o", "w"), window, "add")),))
        made.calls.append(BoundKernel(kernel, (bind(source), bind(taps), bind(target)), "window"))
        if target is first:
            twice = nest({"b": 4, "o": 8, "w": 8}, store(1, ("b", "w", "o"), load(0, "b", "o", "w") * 2.0))
            kernel = HostKernel(((4, 8, 8), (4, 8, 8)), (f32,) * 2, 1, 1, (twice,))
            made.calls.append(BoundKernel(kernel, (bind(first), bind(second)), "twice"))
    total = made.buffer((8,), "total", True)
    made.call("total", [first], total, {"o": 8, "b": 4, "w": 8}, ("o",), load(0, "b", "o", "w"), "add")
    program = form_after("order_dims", made.buffers, made.calls)
    results = [put.index for task in program.tasks for put in task.puts if not program.spaces[put.space].pinned]
    assert len(results) == 2
    assert all([str(position) for position in index] == ["b", "w", "o"] for index in results)
