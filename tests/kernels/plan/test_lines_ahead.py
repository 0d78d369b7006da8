"""Contractions ask ahead for lines that CPUs do not fetch early by themselves, and for no others."""

import numpy as np
import pytest
from kernels_kit import run_kernel

from abele.kernels import HostKernel
from abele.kernels.code.lines_ahead import ANSWER, lines_ahead
from abele.kernels.code.nests import generate
from abele.kernels.nest.ir import Apply, affine, load, nest, store
from abele.kernels.nest.loop_nest import Acc, ElementAccess, Fetch, LoopNest, NestReduction, Out
from abele.kernels.routines.costs import VARIABLE
from abele.kernels.schedule.schedule import NestSchedule
from abele.numerics import f32

RNG = np.random.default_rng(3)


def blocked(c1=48, n=3072, c0=16, tokens=64):
    """Sums over c1 and c0 of w[c1, n, c0] · x[c1, c0, t], as loops over flat memory."""
    w = ElementAccess(0, f32, affine("c0", ("n", c0), ("c1", n * c0)))
    x = ElementAccess(1, f32, affine("t", ("c0", tokens), ("c1", c0 * tokens)))
    y = ElementAccess(2, f32, affine("t", ("n", tokens)))
    sums = NestReduction("add", Apply("mul", (Fetch(w), Fetch(x))), f32)
    return LoopNest(
        parallel=(("t", tokens), ("n", n)),
        reduced=(("c1", c1), ("c0", c0)),
        accumulates=(sums,),
        outs=(Out(y, Acc(0)),),
        num_arrays=3,
    )


SCHEDULE = NestSchedule(("t", "n"), 2, ("c1", "c0"), "t", 8, (("t", 4), ("n", 3)))


def test_lines_ahead__of_weights_in_blocks__are_those_of_later_steps():
    (lines,) = lines_ahead(blocked(), SCHEDULE, None)["c1"]
    # Three rows of 16 elements, a line each; 192 vector operations a step.
    assert lines.offsets == (0, 16, 32)
    assert (lines.stride, lines.tile, lines.further) == (3072 * 16, 48, -(-ANSWER // 192))
    assert lines.first.address == affine(("n", 16))
    assert "llvm.prefetch" in str(generate(blocked(), SCHEDULE, "f"))


@pytest.mark.parametrize(
    "change",
    [
        {"n": 60},  # a few blocks, in the second-level cache
        {"c1": 1},  # one block, read in order
    ],
)
def test_lines_ahead__of_operands_near_or_in_order__are_none(change):
    made = blocked(**change)
    assert lines_ahead(made, SCHEDULE, None) == {}
    assert "llvm.prefetch" not in str(generate(made, SCHEDULE, "f"))


def test_lines_ahead__of_more_steps_than_there_are__stay_in_the_next_tile():
    (lines,) = lines_ahead(blocked(c1=3, n=20_000), SCHEDULE, None)["c1"]
    assert lines.further == 3


@pytest.mark.parametrize("tokens", [64, 37])
def test_product__of_large_weights_in_blocks__agrees_with_64_bits(monkeypatch, tokens):
    monkeypatch.setenv(VARIABLE, "loops")
    shapes = ((7, 130, 16, 16), (tokens, 7, 16), (130, 16, tokens))
    extents = {"n1": 130, "n0": 16, "t": tokens, "c1": 7, "c0": 16}
    value = load(0, "c1", "n1", "n0", "c0") * load(1, "t", "c1", "c0")
    kernel = HostKernel(shapes, (f32,) * 3, 2, 1, (nest(extents, store(2, ("n1", "n0", "t"), value, "add")),))
    w, x = (RNG.standard_normal(shape).astype(np.float32) for shape in shapes[:2])
    (got,) = run_kernel(kernel, [w, x], 2)
    wanted = np.einsum("cnlk,tck->nlt", w.astype(np.float64), x.astype(np.float64))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)
