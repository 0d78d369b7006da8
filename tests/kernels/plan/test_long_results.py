"""Results that take long code are made in a loop over the rows of a tile."""

import numpy as np
import pytest
import torch
from kernels_kit import run_kernel

from abele.kernels import HostKernel
from abele.kernels.code import nests
from abele.kernels.code.nests import generate
from abele.kernels.nest.ir import Apply, affine, load, nest, store
from abele.kernels.nest.loop_nest import Acc, ElementAccess, Fetch, LoopNest, NestReduction, Out
from abele.kernels.routines.costs import VARIABLE
from abele.kernels.schedule.schedule import NestSchedule
from abele.numerics import f32

RNG = np.random.default_rng(3)
SCHEDULE = NestSchedule(("i", "j"), 1, ("k",), "j", 8, (("i", 6), ("j", 2)))


def with_error_function(m: int, n: int, k: int = 5) -> LoopNest:
    """erf(a · b) of matrices in rows, as loops over flat memory."""
    a, b = ElementAccess(0, f32, affine(("i", k), "k")), ElementAccess(1, f32, affine(("k", n), "j"))
    sums = NestReduction("add", Apply("mul", (Fetch(a), Fetch(b))), f32)
    out = Out(ElementAccess(2, f32, affine(("i", n), "j")), Apply("erf", (Acc(0),)))
    return LoopNest((("i", m), ("j", n)), (("k", k),), (sums,), (out,), 3)


@pytest.mark.parametrize(("m", "n"), [(12, 32), (13, 32), (12, 27), (7, 19)])
def test_results__written_out_or_in_a_loop__have_code_of_all_vectors_or_of_a_row(
    monkeypatch: pytest.MonkeyPatch, m: int, n: int
) -> None:
    made = with_error_function(m, n)
    lengths = []
    for most in (1 << 20, 0):
        monkeypatch.setattr(nests, "MAX_STRAIGHT", most)
        lengths.append(len(str(generate(made, SCHEDULE, "f"))))
    assert lengths[1] < 0.7 * lengths[0]


@pytest.mark.parametrize("shape", [(29, 70, 40), (64, 64, 64), (3, 33, 17), (50, 7, 31)])
def test_product__with_a_long_function_of_its_results__agrees_with_pytorch(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]
) -> None:
    monkeypatch.setenv(VARIABLE, "loops")
    m, n, k = shape
    point = ("i", "j")
    u, y = load(2, *point), load(3, *point)
    slope = Apply("erf", (u * 0.5,)) + u * Apply("exp", (u * u * -0.5,)) + Apply("tanh", (y,)) * Apply("erf", (y,))
    dot = nest({"i": m, "j": n, "k": k}, store(3, point, load(0, "i", "k") * load(1, "k", "j"), "add"))
    after = nest({"i": m, "j": n}, store(4, point, y * slope))
    kernel = HostKernel(((m, k), (k, n), (m, n), (m, n), (m, n)), (f32,) * 5, 3, 2, (dot, after))
    x, w, u_ = (RNG.standard_normal(size).astype(np.float32) for size in ((m, k), (k, n), (m, n)))
    _, got = run_kernel(kernel, [x, w, u_], 2)
    wide = torch.from_numpy(u_).double()
    sums = torch.from_numpy(x).double() @ torch.from_numpy(w).double()
    slopes = torch.erf(wide * 0.5) + wide * torch.exp(wide * wide * -0.5) + torch.tanh(sums) * torch.erf(sums)
    np.testing.assert_allclose(got, (sums * slopes).numpy(), rtol=0, atol=2e-4)
