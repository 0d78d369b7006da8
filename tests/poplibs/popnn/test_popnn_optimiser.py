"""Optimiser updates against torch.optim in 64 bits, several steps of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from poplibs_kit import Bench, assert_close

from abele.errors import TensorError
from abele.graph import Repeat, Sequence
from abele.numerics import f16, f32
from abele.poplibs import popnn

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(6)
STEPS = 3


def _torch_steps(kind: Any, parameter: np.ndarray, gradient: np.ndarray, **options: Any) -> np.ndarray:
    leaf = torch.tensor(parameter, requires_grad=True)
    optimiser = kind([leaf], **options)
    for _ in range(STEPS):
        leaf.grad = torch.tensor(gradient)
        optimiser.step()
    return leaf.detach().numpy()


def _repeated(bench: Bench) -> Sequence:
    inner = Sequence()
    bench.prog.add(Repeat(STEPS, inner))
    return inner


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd__rates_on_the_device__is_pytorchs(momentum: float, nesterov: bool) -> None:
    bench = Bench(16)
    p, g = (bench.tensor(RNG.standard_normal((7, 12)), "f32") for _ in range(2))
    velocity = bench.tensor(np.zeros((7, 12)), "f32") if momentum else None
    lr = bench.tensor(0.1, "f32", 1)
    options = {"momentum": momentum, "weight_decay": 0.01, "nesterov": nesterov}
    popnn.sgd_update(bench.graph, p, g, _repeated(bench), lr=lr, velocity=velocity, **options)
    wanted = _torch_steps(torch.optim.SGD, bench.values(p), bench.values(g), lr=0.1, **options)
    assert_close(bench.run_both(p)[0], wanted, f32)


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam__bias_correction_on_the_device__is_pytorchs(decoupled: bool) -> None:
    bench = Bench(16)
    p, g = (bench.tensor(RNG.standard_normal((5, 30)), "f32") for _ in range(2))
    m, s = (bench.tensor(np.zeros((5, 30)), "f32") for _ in range(2))
    step, c1, c2 = bench.tensor(0, "i32", 0), bench.tensor(0.0, "f32", 0), bench.tensor(0.0, "f32", 0)
    lr = bench.tensor(0.05, "f32", 1)
    prog = _repeated(bench)
    popnn.adam_bias_correction(bench.graph, step, c1, c2, prog)
    popnn.adam_update(
        bench.graph, p, g, m, s, prog, lr=lr, weight_decay=0.1, decoupled=decoupled, correction1=c1, correction2=c2
    )
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    wanted = _torch_steps(kind, bench.values(p), bench.values(g), lr=0.05, weight_decay=0.1)
    got, count, correction = bench.run_both(p, step, c2)
    assert_close(got, wanted, f32, factor=3)
    assert count == STEPS
    np.testing.assert_allclose(correction, 1 - 0.999**STEPS, rtol=1e-6)


def test_adam__f16_parameter__keeps_f32_moments() -> None:
    bench = Bench(16)
    p, g = bench.tensor(RNG.standard_normal(40), "f16"), bench.tensor(RNG.standard_normal(40), "f16")
    m, s = bench.tensor(np.zeros(40), "f32"), bench.tensor(np.zeros(40), "f32")
    popnn.adam_update(bench.graph, p, g, m, s, bench.prog, lr=0.1)
    got, moment = bench.run_both(p, m)
    grad = bench.values(g)
    assert_close(moment, 0.1 * grad, f32)
    assert_close(got, bench.values(p) - 0.1 * 0.1 * grad / (np.sqrt(0.001 * grad**2) + 1e-8), f16)


def test_optimiser__operands_that_do_not_fit__are_named() -> None:
    bench = Bench(4)
    p, g, lr = bench.tensor(np.zeros(4), "f32"), bench.tensor(np.zeros(5), "f32"), bench.tensor([0.1, 0.2], "f32")
    with pytest.raises(TensorError, match=r"sgd: the parameter .* has shape \[4\], .* has \[5\]"):
        popnn.sgd_update(bench.graph, p, g, bench.prog, lr=0.1)
    with pytest.raises(TensorError, match=r"momentum 0.9 needs a velocity"):
        popnn.sgd_update(bench.graph, p, p, bench.prog, lr=0.1, momentum=0.9)
    with pytest.raises(TensorError, match="has 2 elements, it must be one"):
        popnn.sgd_update(bench.graph, p, p, bench.prog, lr=lr)
