"""Non-linearities and their gradients against PyTorch in 64 bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from poplibs_kit import Bench, assert_close

from abele.errors import InvalidOptionError, TensorError
from abele.numerics import f32
from abele.poplibs import popnn

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(3)

TORCH: dict[str, Callable[[object], object]] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "swish": F.silu,
    "hard_sigmoid": lambda x: torch.clamp(0.2 * x + 0.5, 0, 1),
    "softmax": lambda x: F.softmax(x, -1),
}
TAKES_INPUT = ("gelu", "gelu_erf", "swish")


def _gradient(function: Callable[[object], object], x: np.ndarray, g: np.ndarray) -> np.ndarray:
    leaf = torch.tensor(x, requires_grad=True)
    function(leaf).backward(torch.tensor(g))  # type: ignore[attr-defined]
    return leaf.grad.numpy()


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("kind", TORCH)
def test_non_linearity__value_and_gradient__are_pytorchs(kind: str, dtype: str) -> None:
    bench = Bench(16)
    # Sixteenths that no kink of a function falls on, even when its output is rounded to f16.
    x = bench.tensor(RNG.integers(-40, 40, (6, 32)) / 8 + 1 / 16, dtype, "activations")
    g = bench.tensor(RNG.standard_normal((6, 32)), dtype)
    y = popnn.non_linearity(bench.graph, kind, x, bench.prog)
    saved = x if kind in TAKES_INPUT else y
    gradient = popnn.non_linearity_input_gradient(bench.graph, kind, saved, g, bench.prog)
    got, got_gradient = bench.run_both(y, gradient)
    assert_close(got, TORCH[kind](torch.tensor(bench.values(x))), x.dtype)
    wanted = _gradient(TORCH[kind], bench.values(x), bench.values(g))
    assert_close(got_gradient, wanted, x.dtype, factor=3)
    exact, exact_gradient = bench.kernels(y, gradient)
    np.testing.assert_allclose(exact, TORCH[kind](torch.tensor(bench.values(x))), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(exact_gradient, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["relu", "softmax"])
def test_non_linearity_in_place__activation__is_overwritten(kind: str) -> None:
    bench = Bench(16)
    x = bench.tensor(RNG.standard_normal((6, 10)), "f32")
    popnn.non_linearity_in_place(bench.graph, kind, x, bench.prog)
    assert_close(bench.run_both(x)[0], TORCH[kind](torch.tensor(bench.values(x))), f32)


def test_leaky_relu__value_and_gradient__are_pytorchs() -> None:
    bench = Bench(16)
    x, g = (bench.tensor(RNG.standard_normal((4, 16, 3, 3)), "f32", "activations") for _ in range(2))
    y = popnn.leaky_relu(bench.graph, x, 0.01, bench.prog)
    gradient = popnn.leaky_relu_input_gradient(bench.graph, x, g, 0.01, bench.prog)
    got, got_gradient = bench.run_both(y, gradient)
    assert_close(got, F.leaky_relu(torch.tensor(bench.values(x)), 0.01), f32)
    wanted = _gradient(lambda v: F.leaky_relu(v, 0.01), bench.values(x), bench.values(g))
    assert_close(got_gradient, wanted, f32)


def test_non_linearity__unknown_kind__suggests_the_nearest() -> None:
    bench = Bench(4)
    with pytest.raises(InvalidOptionError, match="no non-linearity 'sigmoyd'") as caught:
        popnn.non_linearity(bench.graph, "sigmoyd", bench.tensor(np.zeros(4), "f32"), bench.prog)
    assert "'sigmoid'" in str(caught.value)


def test_non_linearity_gradient__shapes_differ__names_both() -> None:
    bench = Bench(4)
    x, g = bench.tensor(np.zeros(4), "f32"), bench.tensor(np.zeros(5), "f32")
    with pytest.raises(TensorError, match=r"activation .* has shape \[4\], the output gradient \[5\]"):
        popnn.non_linearity_input_gradient(bench.graph, "relu", x, g, bench.prog)
