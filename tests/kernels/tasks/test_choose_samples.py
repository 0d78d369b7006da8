"""Choice of running a program by blocks of samples."""

from __future__ import annotations

import pytest
from kernels_kit import form_after
from products_kit import linear

from abele.kernels import BoundKernel, Buffer, HostKernel, bind
from abele.kernels.nest.ir import affine, load, nest, select, store
from abele.kernels.target import HostTarget
from abele.kernels.tasks.program import TaskProgram
from abele.numerics import f32

TARGET = HostTarget(16)
TOKENS = 20


def product_of_all_but_the_first_token(batch: int, width: int) -> TaskProgram:
    """A product, its tokens from the second on through an activation, and another product."""
    shapes = {
        "x": (batch, TOKENS, width),
        "w": (width, width),
        "y": (batch, TOKENS, width),
        "z": (batch, TOKENS - 1, width),
        "out": (batch, TOKENS - 1, width),
    }
    x, w, y, z, out = (
        Buffer(n, shape, f32, pinned=name in ("x", "w", "out"), name=name)
        for n, (name, shape) in enumerate(shapes.items())
    )

    def product(tokens: int) -> HostKernel:
        loops = {"b": batch, "t": tokens, "n": width, "k": width}
        body = store(2, ("b", "t", "n"), load(0, "b", "t", "k") * load(1, "n", "k"), "add")
        return HostKernel(
            ((batch, tokens, width), (width, width), (batch, tokens, width)), (f32,) * 3, 2, 1, (nest(loops, body),)
        )

    later = load(0, "b", affine("t", const=1), "n")
    relu = nest({"b": batch, "t": TOKENS - 1, "n": width}, store(1, ("b", "t", "n"), select(later > 0.0, later, 0.0)))
    calls = [
        BoundKernel(product(TOKENS), (bind(x), bind(w), bind(y)), "first"),
        BoundKernel(HostKernel((y.shape, z.shape), (f32,) * 2, 1, 1, (relu,)), (bind(y), bind(z)), "relu"),
        BoundKernel(product(TOKENS - 1), (bind(z), bind(w), bind(out)), "second"),
    ]
    return form_after("choose_samples", [x, w, y, z, out], calls, TARGET)


@pytest.mark.parametrize(("batch", "block"), [(32, 16), (64, 16)])
def test_choose_samples__batch_that_fills_lanes__is_run_by_blocks(batch: int, block: int) -> None:
    program = product_of_all_but_the_first_token(batch, 48)
    assert program.samples is not None
    assert (program.samples.extent, program.block) == (batch, block)


@pytest.mark.parametrize("batch", [4, 6, 9, 16, 20])
def test_choose_samples__few_samples_between_large_products__leaves_lanes_to_other_dims(batch: int) -> None:
    assert product_of_all_but_the_first_token(batch, 192).samples is None


@pytest.mark.parametrize("batch", [6, 16])
def test_choose_samples__few_samples_between_small_products__are_run_by_blocks(batch: int) -> None:
    # Barriers between tasks would cost more than empty lanes.
    program = product_of_all_but_the_first_token(batch, 8)
    assert program.samples is not None
    assert program.samples.extent == batch


@pytest.mark.parametrize(("rows", "columns"), [(8, 768), (2, 768), (8, 64), (3, 5)])
def test_choose_samples__product_by_itself_summed_over_samples__runs_whole(rows: int, columns: int) -> None:
    kernel = linear(rows, columns, 768, left="ki", right="kj")
    buffers = [Buffer(n, shape, f32, True, f"b{n}") for n, shape in enumerate(kernel.shapes)]
    program = form_after("choose_samples", buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "p")], TARGET)
    assert program.samples is None


def layers_and_a_gradient(batch: int, width: int, points: int, target: HostTarget) -> TaskProgram:
    """Two products at every point of a sample, and the gradient of the first one's weights: a sum over samples."""
    data, weights = (batch, points, width), (width, width)
    shapes = {"x": data, "w": weights, "y": data, "z": data, "g": weights}
    x, w, y, z, g = (
        Buffer(n, shape, f32, pinned=name in ("x", "w", "g"), name=name)
        for n, (name, shape) in enumerate(shapes.items())
    )
    loops = {"b": batch, "t": points, "n": width, "k": width}
    product = nest(loops, store(2, ("b", "t", "n"), load(0, "b", "t", "k") * load(1, "n", "k"), "add"))
    gradient = nest(loops, store(2, ("n", "k"), load(0, "b", "t", "n") * load(1, "b", "t", "k"), "add"))
    layer = HostKernel((data, weights, data), (f32,) * 3, 2, 1, (product,))
    calls = [
        BoundKernel(layer, (bind(x), bind(w), bind(y)), "first"),
        BoundKernel(layer, (bind(y), bind(w), bind(z)), "second"),
        BoundKernel(HostKernel((data, data, weights), (f32,) * 3, 2, 1, (gradient,)), (bind(z), bind(x), bind(g)), "g"),
    ]
    return form_after("choose_samples", [x, w, y, z, g], calls, target)


@pytest.mark.parametrize(("width", "by_blocks"), [(8, True), (128, False)])
def test_choose_samples__gradient_of_large_weights__is_summed_whole(width: int, by_blocks: bool) -> None:
    # Each block would fold a vector for every weight: of 128 x 128, four times the multiply-adds.
    assert (layers_and_a_gradient(128, width, 1, TARGET).samples is not None) is by_blocks


@pytest.mark.parametrize(("own_bytes", "by_blocks"), [(1 << 18, True), (1 << 22, False)])
def test_choose_samples__values_beyond_the_second_level_cache__stay_in_blocks(own_bytes: int, by_blocks: bool) -> None:
    program = layers_and_a_gradient(64, 32, 64, HostTarget(16, own_bytes=own_bytes))
    assert (program.samples is not None) is by_blocks
