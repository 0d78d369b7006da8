"""Plans and modules for AArch64, made on any machine: every object is there, and multiplies in NEON's vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import small_programs
from kernels_kit import run_plan
from products_kit import expected, linear, values
from random_programs import Maker

from abele.kernels import BoundKernel, Buffer, HostKernel, NativePlan, bind, plan_native
from abele.kernels.routines import costs
from abele.kernels.target import host_target
from abele.llvm.cpus import cpu_named
from abele.llvm.host import code_for
from abele.llvm.jit import ForeignCode, assembly, foreign_symbol
from abele.numerics import bf16, f16, f32
from abele.runtime.control.primitives import copy_elements, find_nonfinite, module_text, move_rows, primitives
from support import emulator

CPU = cpu_named("neoverse-n1")
assert CPU is not None
FMLA = ((0xFFE0FC00, 0x4E20CC00), (0xFFC0F400, 0x4F801000))
"""Masks and bits of ``fmla v.4s, v.4s, v.4s`` and of that by element. Source: Arm ARM, C7.2."""
PROGRAMS = ("training_step", "convolution", "long_product", "softmax", "attention", "causal_shares", "packed_shares")
PROGRAMS += ("narrow_gradient", "half_histogram", "large_map", "token_norm", "samples_in_blocks")


@pytest.fixture(autouse=True)
def on_arm() -> Iterator[None]:
    assert CPU is not None
    with code_for(CPU):
        yield


def fused_steps(codes: Sequence[object]) -> int:
    """Instructions that multiply and add four lanes."""
    count = 0
    for code in codes:
        if isinstance(code, ForeignCode):
            words = np.frombuffer(code.data[: len(code.data) // 4 * 4], np.uint32)
            count += sum(int(((words & mask) == bits).sum()) for mask, bits in FMLA)
    return count


def owned(plan: NativePlan) -> list[object]:
    assert isinstance(plan.keep, tuple)
    return list(plan.keep)


def planned(kernel: HostKernel) -> NativePlan:
    buffers = [Buffer(n, s, t, True, f"b{n}") for n, (s, t) in enumerate(zip(kernel.shapes, kernel.types, strict=True))]
    return plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "product")])


def test_target__of_arm__is_neon_and_nothing_is_measured() -> None:
    target = host_target()
    assert (target.lanes, target.registers) == (4, 32)
    assert target.products is not None
    assert target.products.library is None
    assert target.products.rates is None


@pytest.mark.parametrize("way", ["loops", "packed"])
@pytest.mark.parametrize("type_", [f32, f16, bf16])
def test_product__of_each_kind__multiplies_in_vectors(way: str, type_: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(costs.VARIABLE, way)
    plan = planned(linear(67, 130, 200, right="jk", types=(type_, type_, f32)))
    assert fused_steps(owned(plan)) >= 16


@pytest.mark.parametrize("name", PROGRAMS)
def test_program__small__has_code_for_every_leaf(name: str) -> None:
    made = getattr(small_programs, name)()
    plan = plan_native(made.buffers, made.calls)
    assert plan.leaves
    assert all(foreign_symbol(leaf.address) is not None for leaf in plan.leaves)


def test_control_program__and_its_leaves__are_made() -> None:
    assert "fpcr" in assembly(module_text(), speed=1).lower()
    made = {primitives().run, copy_elements(4), move_rows(), find_nonfinite("f16")}
    assert len(made) == 4


@pytest.mark.slow
@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "there is one")
@pytest.mark.parametrize("way", ["auto", "packed"])
@pytest.mark.parametrize("orders", [("ik", "kj", "ij"), ("ki", "jk", "ij"), ("ik", "jk", "ji")])
def test_product__in_the_emulator__agrees_with_64_bits(way, orders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(costs.VARIABLE, way)
    left, right, out = orders
    kernel = linear(67, 50, 301, left=left, right=right, out=out)
    arrays = values(kernel)
    storage = dict(enumerate([*arrays, np.zeros(kernel.shapes[2], np.float32)]))
    run_plan(planned(kernel), storage, 3)
    np.testing.assert_allclose(storage[2], expected(kernel, arrays, *orders), rtol=1e-5, atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(bool(emulator.missing()), reason=emulator.missing() or "there is one")
@pytest.mark.parametrize("seed", range(6))
def test_random_program__in_the_emulator__is_numpy_s(seed: int) -> None:
    maker = Maker(seed, 8)
    x = maker.source((8, 4, 6))
    for _ in range(4):
        x = maker.step(x)
    maker.finish(x)
    storage = maker.storage()
    run_plan(plan_native([t.buffer for t in maker.tensors], maker.calls), storage, 2)
    for tensor in maker.tensors:
        if tensor.buffer.pinned and tensor.value is not None:
            np.testing.assert_allclose(tensor.read(storage[tensor.buffer.id]), tensor.value, rtol=2e-4, atol=2e-4)
