"""Products and convolutions among tasks, as libraries name their shapes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import affine, load, nest, store
from abele.kernels.routines import costs
from abele.llvm.host import host_cpu
from abele.numerics import ElementType, bf16, f16, f32


def shapes_of(kernel: HostKernel) -> list[str]:
    """Shapes of the functions of its plan that have one."""
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    plan = plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "it")])
    parts = [part for number in range(len(plan.leaves)) for part in plan.parts(number)]
    return sorted({part.product for part in parts if part.product})


def summed(
    shapes: Sequence[tuple[int, ...]],
    loops: dict[str, int],
    left: tuple[object, ...],
    right: tuple[object, ...],
    out: tuple[str, ...],
    types: tuple[ElementType, ElementType] = (f32, f32),
) -> HostKernel:
    value = load(0, *left) * load(1, *right)
    return HostKernel(tuple(shapes), (*types, f32), 2, 1, (nest(loops, store(2, out, value, "add")),))


@pytest.mark.parametrize(
    ("types", "kind"), [((f32, f32), "f32"), ((bf16, bf16), "bf16"), ((f16, f32), "f32"), ((bf16, f32), "f32")]
)
def test_shape__of_a_product__has_rows_columns_and_summed(
    types: tuple[ElementType, ElementType], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(costs.VARIABLE, "packed")  # loops may read a copy that is widened
    loops = {"i": 24, "j": 40, "k": 56}
    kernel = summed([(24, 56), (40, 56), (24, 40)], loops, ("i", "k"), ("j", "k"), ("i", "j"), types)
    if kind == "bf16" and not host_cpu().multiplies_bf16_pairs:
        kind = "f32"  # such hosts widen them
    assert shapes_of(kernel) == [f"24x40x56 {kind}"]


def test_shape__of_a_batched_product__has_its_number() -> None:
    loops = {"b": 6, "i": 24, "j": 40, "k": 56}
    kernel = summed([(6, 24, 56), (6, 56, 40), (6, 24, 40)], loops, ("b", "i", "k"), ("b", "k", "j"), ("b", "i", "j"))
    assert shapes_of(kernel) == ["6 of 24x40x56 f32"]


@pytest.mark.parametrize("stride", [1, 2])
def test_shape__of_a_convolution__is_its_image_by_its_filters(stride: int) -> None:
    size = (5 - 1) * stride + 3
    loops = {"b": 4, "o": 16, "y": 5, "x": 5, "c": 8, "u": 3, "v": 3}
    image = ("b", "c", affine(("y", stride), "u"), affine(("x", stride), "v"))
    kernel = summed(
        [(4, 8, size, size), (16, 8, 3, 3), (4, 16, 5, 5)], loops, image, ("o", "c", "u", "v"), ("b", "o", "y", "x")
    )
    assert shapes_of(kernel) == [f"conv 4x8x{size}x{size} by 16x8x3x3 / {stride} f32"]


def test_shape__of_a_gradient_of_filters__is_that_of_the_weights() -> None:
    loops = {"o": 16, "c": 8, "u": 3, "v": 3, "b": 4, "y": 5, "x": 5}
    image = ("b", "c", affine(("y", 2), "u"), affine(("x", 2), "v"))
    kernel = summed(
        [(4, 8, 11, 11), (4, 16, 5, 5), (16, 8, 3, 3)], loops, image, ("b", "o", "y", "x"), ("o", "c", "u", "v")
    )
    assert shapes_of(kernel) == ["conv weights 4x8x11x11 by 16x8x3x3 / 2 f32"]


def test_shape__of_what_is_no_product__is_none() -> None:
    loops = {"i": 24, "j": 40}
    rows = HostKernel(((24, 40), (24,)), (f32, f32), 1, 1, (nest(loops, store(1, ("i",), load(0, "i", "j"), "add")),))
    assert shapes_of(rows) == []
    dots = summed([(24, 40), (24, 40), (24,)], loops, ("i", "j"), ("i", "j"), ("i",))
    assert shapes_of(dots) == []
