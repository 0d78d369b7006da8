"""Nests that differ in the numbers of their random streams share code."""

import numpy as np
import pytest
from kernels_kit import form_after, run_plan

from abele.kernels import BoundKernel, Buffer, HostKernel, bind, evaluate, plan_native
from abele.kernels.nest.ir import Cast, Random, affine, load, nest, store
from abele.kernels.schedule.lift_integers import lifted_integers, lowered_integers
from abele.numerics import f32, u32

SHAPE = (24, 40)
SEED = np.array([7, 9], np.uint32)


def scaled_by_noise(modifier: int) -> HostKernel:
    noise = Cast(f32, Random(0, modifier, affine(("i", SHAPE[1]), "j")))
    body = nest({"i": SHAPE[0], "j": SHAPE[1]}, store(2, ("i", "j"), load(1, "i", "j") * noise))
    return HostKernel(((2,), SHAPE, SHAPE), (u32, f32, f32), 2, 1, (body,))


def layers(*modifiers: int) -> tuple[list[Buffer], list[BoundKernel]]:
    """Layer after layer, each with a random stream of its own; what each reads and writes is the caller's."""
    seed = Buffer(0, (2,), u32, name="seed")
    values = [Buffer(1 + n, SHAPE, f32, name=f"x{n}") for n in range(len(modifiers) + 1)]
    calls = [
        BoundKernel(scaled_by_noise(m), (bind(seed), bind(values[n]), bind(values[n + 1])), f"noise{n}")
        for n, m in enumerate(modifiers)
    ]
    return [seed, *values], calls


def functions_of(buffers, calls):
    program = form_after("generate_code", buffers, calls)
    return [function for leaf in program.leaves for function in leaf.functions]


def test_nests__of_streams_alone__run_the_same_code():
    # As on its own each function stays one, whatever the planner fuses.
    first, second = (functions_of(*layers(m))[0] for m in (3, 2**31 + 5))
    assert first.address == second.address
    assert (first.integers, second.integers) == ((3,), (2**31 + 5,))


@pytest.mark.parametrize("modifiers", [(3,), (3, 5), (5, 3, 2**32 - 1)])
def test_streams__as_arguments__give_the_reference_bits(modifiers):
    buffers, calls = layers(*modifiers)
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    storage = {b.id: np.zeros(b.shape, b.type.np) for b in buffers}
    storage[0][...], storage[1][...] = SEED, x
    run_plan(plan_native(buffers, calls), storage, threads=2)
    for number, call in enumerate(calls):
        (x,) = evaluate(call.kernel, [SEED, x])
        np.testing.assert_array_equal(storage[2 + number], x)


def test_integers__lifted_and_lowered__are_the_nest_again():
    (function,) = functions_of(*layers(11))
    nest_ = lowered_integers(function.nest, function.integers)
    assert nest_ != function.nest
    assert lifted_integers(nest_) == (function.nest, (11,))
    assert "hash(u32@" in str(nest_)
    assert ", 11, " in str(nest_)
