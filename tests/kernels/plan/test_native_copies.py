"""Contractions whose operands are copied: panel by panel, with the zeros around them, or widened."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from guarded_memory import check, values
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import form_after, run_kernel, run_plan
from small_programs import Calls

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import Affine, Load, affine, load, nest, select, store
from abele.kernels.plan.passes import form_text
from abele.kernels.routines.costs import VARIABLE
from abele.kernels.target import HostTarget
from abele.llvm.host import host_cpu
from abele.numerics import ElementType, f16, f32
from support.examples import examples

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products run as loops, which copy operands in ways of their own."""
    monkeypatch.setenv(VARIABLE, "loops")


def product(m: int, k: int, n: int, type_: ElementType = f32, transposed: bool = False) -> HostKernel:
    b_shape, b_index = ((n, k), ("j", "k")) if transposed else ((k, n), ("k", "j"))
    body = nest({"i": m, "j": n, "k": k}, store(2, ("i", "j"), load(0, "i", "k") * load(1, *b_index), "add"))
    return HostKernel(((m, k), b_shape, (m, n)), (type_,) * 3, 2, 1, (body,))


def window(batch: int, ci: int, co: int, field: int, kernel: int, stride: int, pad: int) -> HostKernel:
    out = (field + 2 * pad - kernel) // stride + 1
    extents = {"b": batch, "co": co, "y": out, "x": out, "ci": ci, "u": kernel, "v": kernel}
    rows, columns = (Affine(((o, stride), (k, 1)), -pad) for o, k in (("y", "u"), ("x", "v")))
    image = Load(0, (affine("b"), affine("ci"), rows, columns), 0.0)
    body = nest(extents, store(2, ("b", "co", "y", "x"), image * load(1, "co", "ci", "u", "v"), "add"))
    shapes = ((batch, ci, field, field), (co, ci, kernel, kernel), (batch, co, out, out))
    return HostKernel(shapes, (f32,) * 3, 2, 1, (body,))


def listing(kernel: HostKernel) -> str:
    buffers = [Buffer(n, kernel.shapes[n], kernel.types[n], True, f"b{n}") for n in range(3)]
    return plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "test")]).listing


@pytest.mark.parametrize("shape", [(331, 700, 1100), (233, 1500, 1030), (512, 640, 1024)])
@pytest.mark.parametrize("transposed", [False, True])
def test_panel__of_a_long_product__agrees_with_64_bits(shape: tuple[int, int, int], transposed: bool) -> None:
    m, k, n = shape
    a, b = RNG.standard_normal((m, k)), RNG.standard_normal((n, k) if transposed else (k, n))
    kernel = product(m, k, n, transposed=transposed)
    # Vectors of four fill from rows at nearly no cost.
    assert "in panels of" in listing(kernel) or host_cpu().vector_bytes == 16
    a, b = a.astype(np.float32), b.astype(np.float32)
    (got,) = run_kernel(kernel, [a, b])
    wanted = a.astype(np.float64) @ (b.T if transposed else b).astype(np.float64)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("type_", [f32, f16], ids=str)
@pytest.mark.parametrize(("m", "k", "n"), [(513, 512, 64), (401, 256, 77), (385, 328, 70)])
def test_panel__of_rows_across_the_lanes__agrees_beside_forbidden_pages(
    m: int, k: int, n: int, type_: ElementType
) -> None:
    # Vectors that the columns do not fill, and rows that cache lines do not divide.
    kernel = product(m, k, n, type_, transposed=True)
    buffers = [Buffer(n, kernel.shapes[n], type_) for n in range(3)]
    call = BoundKernel(kernel, tuple(map(bind, buffers)))
    assert "in panels of" in form_text(form_after("choose_schedules", buffers, [call], HostTarget(8, registers=16)))
    inputs = [values(shape, type_, seed) for seed, shape in enumerate(kernel.shapes[:2])]
    for at_end in (False, True):
        check(kernel, inputs, at_end=at_end)


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_panel__units_split_over_threads__same_bits(threads: int) -> None:
    kernel = product(331, 700, 1100)
    inputs = [RNG.standard_normal(s).astype(np.float32) for s in kernel.shapes[:2]]
    np.testing.assert_array_equal(run_kernel(kernel, inputs, threads)[0], run_kernel(kernel, inputs)[0])


def test_widened_copy__of_a_product_of_halves__agrees_with_64_bits() -> None:
    kernel = product(130, 300, 270, f16)
    assert "f32[130, 300]" in listing(kernel)
    a, b = (RNG.standard_normal(s).astype(np.float16) for s in kernel.shapes[:2])
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(run_kernel(kernel, [a, b], 2)[0], wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "sizes", [(1, 3, 64, 40, 7, 2, 3), (1, 32, 48, 14, 3, 1, 1), (2, 16, 40, 17, 3, 2, 1), (1, 8, 64, 9, 5, 1, 4)]
)
def test_padded_copy__window_over_the_edge__agrees_with_torch(sizes: tuple[int, ...]) -> None:
    kernel = window(*sizes)
    image, weights = (RNG.standard_normal(s).astype(np.float32) for s in kernel.shapes[:2])
    (got,) = run_kernel(kernel, [image, weights], 2)
    doubles = (torch.from_numpy(v.astype(np.float64)) for v in (image, weights))
    wanted = torch.nn.functional.conv2d(*doubles, stride=sizes[5], padding=sizes[6]).numpy()
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_padded_copy__of_few_uses__is_not_made() -> None:
    assert "padded" in listing(window(1, 16, 64, 14, 3, 1, 1))
    assert "padded" not in listing(window(1, 64, 1, 6, 3, 1, 1))


def fields(batch: int, channels: int, size: int) -> HostKernel:
    """A window of 3 × 3 over fields of channels in groups of 16, as networks have them."""
    groups = channels // 16
    extents = {"b": batch, "o": groups, "p": 16, "y": size, "x": size, "i": groups, "u": 3, "v": 3, "c": 16}
    rows, columns = (Affine(((o, 1), (k, 1)), -1) for o, k in (("y", "u"), ("x", "v")))
    image = Load(0, (affine("i"), affine("b"), rows, columns, affine("c")), 0.0)
    weights = load(1, "o", "i", "u", "v", "p", "c")
    body = nest(extents, store(2, ("o", "b", "y", "x", "p"), image * weights, "add"))
    shape = (groups, batch, size, size, 16)
    return HostKernel((shape, (groups, groups, 3, 3, 16, 16), shape), (f32,) * 3, 2, 1, (body,))


@pytest.mark.parametrize(("batch", "size", "whole"), [(1, 14, False), (16, 7, True)])
def test_guards__that_shorten_loops__stay_where_tiles_need_no_zeros(batch: int, size: int, whole: bool) -> None:
    kernel = fields(batch, 64, size)
    shown = listing(kernel)
    # Tiles along the columns of one field need zeros beside them; tiles over many fields need none.
    assert f"0 ≤ u + y - 1 < {size}" in shown
    assert ("padded" not in shown) == whole
    x, w = (RNG.standard_normal(s).astype(np.float32) for s in kernel.shapes[:2])
    images = torch.from_numpy(x).double().permute(1, 0, 4, 2, 3).reshape(batch, 64, size, size)
    taps = torch.from_numpy(w).double().permute(0, 4, 1, 5, 2, 3).reshape(64, 64, 3, 3)
    wanted = torch.nn.functional.conv2d(images, taps, padding=1)
    wanted = wanted.reshape(batch, 4, 16, size, size).permute(1, 0, 3, 4, 2).numpy()
    for threads in (1, 3):
        np.testing.assert_allclose(run_kernel(kernel, [x, w], threads)[0], wanted, rtol=1e-4, atol=1e-4)


@examples(4)
@given(
    step=st.integers(-3, 3).filter(bool),
    shift=st.integers(-4, 9),
    across=st.integers(-2, 2).filter(bool),
    extents=st.tuples(st.integers(1, 7), st.integers(1, 6), st.integers(1, 11)),
)
def test_guards__over_any_steps__leave_out_what_lies_outside(
    step: int, shift: int, across: int, extents: tuple[int, int, int]
) -> None:
    outs, taps, size = extents
    sizes = {"o": outs, "n": 40, "k": taps, "c": 24}
    image = Load(0, (Affine((("k", step), ("o", across)), shift), affine("c")), 0.0)
    body = nest(sizes, store(2, ("o", "n"), image * load(1, "k", "c", "n"), "add"))
    kernel = HostKernel(((size, 24), (taps, 24, 40), (outs, 40)), (f32,) * 3, 2, 1, (body,))
    x, w = (RNG.standard_normal(s).astype(np.float32) for s in kernel.shapes[:2])
    wanted = np.zeros((outs, 40))
    for o, k in np.ndindex(outs, taps):
        place = step * k + across * o + shift
        if 0 <= place < size:
            wanted[o] += x[place].astype(np.float64) @ w[k].astype(np.float64)
    np.testing.assert_allclose(run_kernel(kernel, [x, w])[0], wanted, rtol=1e-4, atol=1e-4)


def test_padded_copy__of_a_depthwise_window__is_made_where_it_stays_in_caches() -> None:
    def depthwise(batch: int) -> HostKernel:
        extents = {"b": batch, "y": 28, "x": 28, "c": 32, "u": 3, "v": 3}
        rows, columns = (Affine(((o, 1), (k, 1)), -1) for o, k in (("y", "u"), ("x", "v")))
        image = Load(0, (affine("b"), rows, columns, affine("c")), 0.0)
        body = nest(extents, store(2, ("b", "y", "x", "c"), image * load(1, "u", "v", "c"), "add"))
        shape = (batch, 28, 28, 32)
        return HostKernel((shape, (3, 3, 32), shape), (f32,) * 3, 2, 1, (body,))

    assert "padded" in listing(depthwise(1))
    assert "padded" not in listing(depthwise(32))
    x, w = (RNG.normal(size=shape).astype(np.float32) for shape in ((4, 28, 28, 32), (3, 3, 32)))
    (got,) = run_kernel(depthwise(4), [x, w])
    images, taps = torch.from_numpy(x).movedim(-1, 1), torch.from_numpy(w).movedim(-1, 0)[:, None]
    wanted = torch.nn.functional.conv2d(images, taps, padding=1, groups=32).movedim(1, -1)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_lanes__over_places_far_apart__are_not_chosen() -> None:
    # Gradients of weights of 7 by 100 channels, the latter in groups of four: lanes along the groups would gather each
    # of their elements from a page of its own.
    extents = {"b": 7, "g": 25, "c": 4, "i": 8192}
    body = nest(extents, store(2, ("g", "b", "c"), load(0, "i", "b") * load(1, "g", "i", "c"), "add"))
    kernel = HostKernel(((8192, 7), (25, 8192, 4), (25, 7, 4)), (f32,) * 3, 2, 1, (body,))
    assert "lanes g" not in listing(kernel)


def test_rows__reduced_one_by_one__are_read_along() -> None:
    body = nest({"i": 640, "j": 512}, store(1, ("i",), load(0, "i", "j"), "add"))
    kernel = HostKernel(((640, 512), (640,)), (f32,) * 2, 1, 1, (body,))
    values = RNG.standard_normal((640, 512)).astype(np.float32)
    (got,) = run_kernel(kernel, [values], 2)
    np.testing.assert_allclose(got, values.astype(np.float64).sum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(333, 260), (40, 1031)])
def test_columns__reduced_one_by_one__agree_with_64_bits(shape: tuple[int, int]) -> None:
    rows, columns = shape
    body = nest({"i": rows, "j": columns}, store(1, ("j",), load(0, "i", "j"), "add"))
    kernel = HostKernel((shape, (columns,)), (f32,) * 2, 1, 1, (body,))
    values = RNG.standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(
        run_kernel(kernel, [values], 2)[0], values.astype(np.float64).sum(0), rtol=1e-4, atol=1e-4
    )


def test_padded_copy__of_a_convolution_with_an_activation__is_made_and_agrees_with_torch() -> None:
    made = Calls()
    x, w = made.buffer((2, 14, 32), "x", True), made.buffer((32, 3, 32), "w", True)
    y, z = made.buffer((2, 14, 32), "y"), made.buffer((2, 14, 32), "z", True)
    window = load(0, "b", affine("i", "k", const=-1), "c", fill=0.0) * load(1, "o", "k", "c")
    loops = {"b": 2, "i": 14, "o": 32, "k": 3, "c": 32}
    made.call("conv", [x, w], y, loops, ("b", "i", "o"), window, "add")
    rows = {"b": 2, "i": 14, "o": 32}
    made.call("relu", [y], z, rows, ("b", "i", "o"), select(load(0, "b", "i", "o") > 0.0, load(0, "b", "i", "o"), 0.0))
    # Whether the copy pays depends on the CPU: with vectors of 16 it does.
    program = form_after("copy_operands", made.buffers, made.calls, HostTarget(16))
    assert [task.name for leaf in program.leaves for task in leaf.tasks] == ["copy", "conv+relu"]
    rng = np.random.default_rng(0)
    storage = {b.id: rng.normal(size=b.shape).astype(np.float32) for b in made.buffers if b.pinned}
    run_plan(plan_native(made.buffers, made.calls), storage)
    wanted = torch.nn.functional.conv1d(
        torch.from_numpy(storage[0]).movedim(-1, 1), torch.from_numpy(storage[1]).movedim(-1, 1), padding=1
    )
    np.testing.assert_allclose(storage[3], wanted.relu().movedim(1, -1), rtol=1e-4, atol=1e-4)


def test_lanes__of_a_sum_that_ends_within_a_vector__leave_out_what_lies_beyond() -> None:
    # Rows of 14 lie in rows of 20 whose other elements are infinite: a lane too many would make every sum NaN.
    extents = {"i": 8, "j": 8, "n": 40, "k": 14}
    body = nest(extents, store(2, ("i", "j"), load(0, "i", "n", "k") * load(1, "j", "n", "k"), "add"))
    kernel = HostKernel(((8, 40, 20), (8, 40, 20), (8, 8)), (f32,) * 3, 2, 1, (body,))
    assert "lanes k" in listing(kernel)
    a, b = (RNG.standard_normal((8, 40, 20)).astype(np.float32) for _ in range(2))
    a[:, :, 14:], b[:, :, 14:] = np.inf, -np.inf
    wanted = np.einsum("ink,jnk->ij", *(v[:, :, :14].astype(np.float64) for v in (a, b)))
    np.testing.assert_allclose(run_kernel(kernel, [a, b])[0], wanted, rtol=1e-4, atol=1e-4)
