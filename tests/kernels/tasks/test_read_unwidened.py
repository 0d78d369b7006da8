"""Products of operands widened from bf16 read the bf16 itself where that gives the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from kernels_kit import form_after, run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, evaluate, plan_native
from abele.kernels.nest.ir import Cast, load, nest, store
from abele.kernels.routines.blocking import blocking
from abele.kernels.routines.costs import ProductCosts
from abele.kernels.target import HostTarget
from abele.kernels.tasks.program import TaskProgram
from abele.numerics import ElementType, bf16, f16, f32

M, N, K = 40, 33, 29
SIZES, PAIRS = (blocking(16, 32, 1 << 15, 1 << 20, word=word) for word in (1, 2))
CPU = HostTarget(16, products=ProductCosts(SIZES, PAIRS))
RNG = np.random.default_rng(3)


def change(source: Buffer, result: Buffer, order: str = "ij", *, said: bool = False) -> BoundKernel:
    """``result`` is ``source`` in its own type, transposed where ``order`` says so; by a cast if that is ``said``."""
    extents = dict(zip("ij", result.shape, strict=True))
    value = load(0, *order)
    body = nest(extents, store(1, ("i", "j"), Cast(result.type, value) if said else value))
    kernel = HostKernel((source.shape, result.shape), (source.type, result.type), 1, 1, (body,))
    return BoundKernel(kernel, (bind(source), bind(result)), f"change {result.name}")


class Widened:
    """A product of two operands, each widened before it; ``right`` says how the second lies before that."""

    def __init__(self, types: tuple[ElementType, ElementType] = (bf16, bf16), right: str = "jk", out: str = "") -> None:
        self.x = Buffer(0, (M, K), types[0], name="x")
        self.w = Buffer(1, (N, K) if right == "jk" else (K, N), types[1], name="w")
        self.wide_x, self.wide_w = (Buffer(2 + n, s, f32, False, f"wide{n}") for n, s in enumerate([(M, K), (N, K)]))
        self.y, self.other = Buffer(4, (M, N), f32, name="y"), Buffer(5, (M, K), bf16, name="other")
        self.buffers = [self.x, self.w, self.wide_x, self.wide_w, self.y, self.other]
        self.widening = [
            change(self.x, self.wide_x, said=True),
            change(self.w, self.wide_w, "ij" if right == "jk" else "ji"),
        ]
        body = store(2, ("i", "j"), load(0, "i", "k") * load(1, "j", "k"), "add")
        dot = HostKernel(((M, K), (N, K), (M, N)), (f32,) * 3, 2, 1, (nest({"i": M, "j": N, "k": K}, body),))
        self.product = BoundKernel(dot, (bind(self.wide_x), bind(self.wide_w), bind(self.y)), "dot")

    @property
    def calls(self) -> list[BoundKernel]:
        return [*self.widening, self.product]


def types_read(program: TaskProgram) -> list[str]:
    (task,) = (t for t in program.tasks if t.reductions)
    return sorted(program.spaces[ref.space].type.name for ref in task.refs)


@pytest.mark.parametrize("right", ["jk", "kj"])
def test_product__of_two_widened_operands__reads_bf16_and_copies_are_dropped(right: str) -> None:
    made = Widened(right=right)
    program = form_after("drop_unread", made.buffers, made.calls, CPU)
    assert types_read(program) == ["bf16", "bf16"]
    assert len(program.tasks) == 1


@pytest.mark.parametrize("types", [(bf16, f16), (f16, bf16), (f16, f16)])
def test_product__of_other_operands__reads_the_copies(types: tuple[ElementType, ElementType]) -> None:
    made = Widened(types)
    assert types_read(form_after("read_unwidened", made.buffers, made.calls, CPU)) == ["f32", "f32"]


@pytest.mark.parametrize("target", [HostTarget(16), replace(CPU, products=ProductCosts(SIZES))])
def test_product__on_a_cpu_without_pairs__reads_the_copies(target: HostTarget) -> None:
    made = Widened()
    assert types_read(form_after("read_unwidened", made.buffers, made.calls, target)) == ["f32", "f32"]


@pytest.mark.parametrize("right", ["jk", "kj"])
def test_product__of_two_widened_operands__gives_what_the_calls_give(right: str) -> None:
    made = Widened(right=right)
    storage = {b.id: RNG.standard_normal(b.shape).astype(b.type.np) for b in made.buffers}
    wide = storage[1].astype(np.float64)
    wanted = storage[0].astype(np.float64) @ (wide.T if right == "jk" else wide)
    run_plan(plan_native(made.buffers, made.calls), storage, 2)
    np.testing.assert_allclose(storage[4], wanted, rtol=0, atol=1e-4)


def test_product__after_what_was_widened_has_changed__reads_the_copies() -> None:
    made = Widened()
    calls = [*made.widening, change(made.other, made.x), made.product]
    assert types_read(form_after("read_unwidened", made.buffers, calls, CPU)) == ["f32", "f32"]
    storage = {b.id: RNG.standard_normal(b.shape).astype(b.type.np) for b in made.buffers}
    wanted = storage[0].astype(np.float64) @ storage[1].astype(np.float64).T
    run_plan(plan_native(made.buffers, calls), storage)
    np.testing.assert_allclose(storage[4], wanted, rtol=0, atol=1e-4)
    assert np.array_equal(storage[0], storage[5])


def test_product__whose_results_replace_an_operand__reads_the_copies() -> None:
    # x = x · w, rounded: the product is fused with what writes x.
    square = HostKernel(
        ((M, K), (K, K), (M, K)),
        (f32,) * 3,
        2,
        1,
        (nest({"i": M, "j": K, "k": K}, store(2, ("i", "j"), load(0, "i", "k") * load(1, "j", "k"), "add")),),
    )
    x, w = Buffer(0, (M, K), bf16, name="x"), Buffer(1, (K, K), bf16, name="w")
    wide_x, wide_w = Buffer(2, (M, K), f32, False, "wide_x"), Buffer(3, (K, K), f32, False, "wide_w")
    y = Buffer(4, (M, K), f32, False, "y")
    buffers = [x, w, wide_x, wide_w, y]
    calls = [
        change(x, wide_x),
        change(w, wide_w),
        BoundKernel(square, (bind(wide_x), bind(wide_w), bind(y)), "square"),
        change(y, x),
    ]
    storage = {b.id: RNG.standard_normal(b.shape).astype(b.type.np) for b in (x, w)}
    (wanted,) = evaluate(square, [storage[0].astype(np.float32), storage[1].astype(np.float32)])
    run_plan(plan_native(buffers, calls), storage, 3)
    np.testing.assert_allclose(storage[0].astype(np.float32), wanted, rtol=2.0**-7, atol=1e-3)
