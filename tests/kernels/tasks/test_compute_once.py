"""Results that do not depend on a dim are computed once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import form_after, run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import Apply, load, nest, store
from abele.kernels.tasks.program import TaskProgram
from abele.numerics import f32
from support.examples import examples

RNG = np.random.default_rng(5)


def matrices(
    rows: int, tokens: int, n: int, m: int, *, kept: bool, then: str
) -> tuple[list[Buffer], list[BoundKernel]]:
    """d[s, t, i] = Σ g[s, j] · w[j, i], an array of the plan's own unless ``kept``; then z of d for every token."""
    product = nest(
        {"s": rows, "t": tokens, "i": m, "j": n}, store(2, "sti", load(0, "s", "j") * load(1, "j", "i"), "add")
    )
    over = {"s": rows, "t": tokens, "i": m}
    d, u = load(0, *"sti"), load(1, *"sti")
    after = {
        "map": nest(over, store(2, "sti", Apply("max", (d * u, d)))),
        "turned": nest(over, store(2, "sit", d + u)),
        "sum": nest(over, store(2, "ti", d * u, "add")),
        "last": nest(over, store(2, "sti", load(0, "s", "t", "i") * 2.0)),
    }[then]
    shapes = {"turned": (rows, m, tokens), "sum": (tokens, m)}
    big, last = (rows, tokens, m), shapes.get(then, (rows, tokens, m))
    buffers = [
        Buffer(0, (rows, n), f32, True, "g"),
        Buffer(1, (n, m), f32, True, "w"),
        Buffer(2, big, f32, kept, "d"),
        Buffer(3, big, f32, True, "u"),
        Buffer(4, last, f32, True, "z"),
    ]
    first = HostKernel(((rows, n), (n, m), big), (f32,) * 3, 2, 1, (product,))
    second = HostKernel((big, big, last), (f32,) * 3, 2, 1, (after,))
    calls = [
        BoundKernel(first, tuple(map(bind, buffers[:3])), "product"),
        BoundKernel(second, tuple(map(bind, buffers[2:])), then),
    ]
    return buffers, calls


def points_of_product(buffers: list[Buffer], calls: list[BoundKernel]) -> int:
    program = form_after("compute_once", buffers, calls)
    assert isinstance(program, TaskProgram)
    return next(task.points for task in program.tasks if task.name.startswith("product") and task.reductions)


@pytest.mark.parametrize("then", ["map", "turned", "sum", "last"])
@pytest.mark.parametrize("kept", [False, True])
def test_product__with_equal_operands_for_all_tokens__is_of_one(then: str, kept: bool) -> None:
    assert points_of_product(*matrices(2, 8, 32, 6, kept=kept, then=then)) == 2 * 32 * 6


def test_sum__of_few__for_somebody_else__stays_whole() -> None:
    assert points_of_product(*matrices(2, 8, 4, 6, kept=True, then="map")) == 2 * 8 * 4 * 6


@examples(5)
@given(
    st.integers(1, 3), st.integers(1, 9), st.integers(1, 40), st.integers(1, 20), st.booleans(),
    st.sampled_from(["map", "turned", "sum", "last"]),
)  # fmt: skip
def test_plan__of_what_is_computed_once__agrees_with_numpy_in_64_bits(
    rows: int, tokens: int, n: int, m: int, kept: bool, then: str
) -> None:
    buffers, calls = matrices(rows, tokens, n, m, kept=kept, then=then)
    storage = {b.id: RNG.standard_normal(b.shape).astype(np.float32) for b in buffers if b.pinned}
    before = {number: array.astype(np.float64) for number, array in storage.items()}
    d = np.broadcast_to((before[0] @ before[1])[:, None], (rows, tokens, m))
    wanted = {
        "map": lambda: np.maximum(d * before[3], d),
        "turned": lambda: (d + before[3]).transpose(0, 2, 1),
        "sum": lambda: (d * before[3]).sum(axis=0),
        "last": lambda: d * 2,
    }[then]()
    run_plan(plan_native(buffers, calls), storage, 2)
    np.testing.assert_allclose(storage[4], wanted, rtol=0, atol=1e-4)
    if kept:
        np.testing.assert_allclose(storage[2], d, rtol=0, atol=1e-4)


def test_products__one_after_the_other__lose_the_dim_in_turn() -> None:
    buffers, calls = matrices(2, 8, 32, 6, kept=False, then="map")
    buffers[4] = Buffer(4, (6, 5), f32, True, "v")
    buffers.append(Buffer(5, (2, 8, 5), f32, True, "z"))
    again = nest({"s": 2, "t": 8, "i": 6, "o": 5}, store(2, "sto", load(0, *"sti") * load(1, "i", "o"), "add"))
    buffers.append(Buffer(6, (2, 8, 5), f32, False, "e"))
    kernel = HostKernel(((2, 8, 6), (6, 5), (2, 8, 5)), (f32,) * 3, 2, 1, (again,))
    copy = nest({"s": 2, "t": 8, "o": 5}, store(1, "sto", load(0, *"sto") * 0.5))
    moved = HostKernel(((2, 8, 5), (2, 8, 5)), (f32, f32), 1, 1, (copy,))
    calls = [
        calls[0],
        BoundKernel(kernel, (bind(buffers[2]), bind(buffers[4]), bind(buffers[6])), "second"),
        BoundKernel(moved, (bind(buffers[6]), bind(buffers[5])), "copy"),
    ]
    program = form_after("compute_once", buffers, calls)
    assert [task.points for task in program.tasks if task.reductions] == [2 * 32 * 6, 2 * 6 * 5]
