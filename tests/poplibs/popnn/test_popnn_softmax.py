"""Softmax, log-softmax, losses and arg-max against PyTorch in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from poplibs_kit import TILES, Bench, assert_close

from abele.compiler import compile_program
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.numerics import ElementType, f16, f32, i32
from abele.poplibs import popnn, popops

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(4)


def _leaf(array: np.ndarray) -> object:
    return torch.tensor(array, requires_grad=True)


@pytest.mark.parametrize("num_tiles", TILES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("shape", [(5, 10), (2, 3, 81), (7,), (3, 1)])
def test_softmax_family__any_rank__is_pytorch(num_tiles: int, dtype: str, shape: tuple[int, ...]) -> None:
    bench = Bench(num_tiles)
    x = bench.tensor(RNG.standard_normal(shape) * 4, dtype)
    g = bench.tensor(RNG.standard_normal(shape), dtype)
    outs = []
    for forward, backward in (
        (popnn.softmax, popnn.softmax_input_gradient),
        (popnn.log_softmax, popnn.log_softmax_input_gradient),
    ):
        y = forward(bench.graph, x, bench.prog)
        outs += [y, backward(bench.graph, y, g, bench.prog)]
    got, exact = bench.run_both(*outs), bench.kernels(*outs)
    for i, function in enumerate((F.softmax, F.log_softmax)):
        leaf = _leaf(bench.values(x))
        value = function(leaf, -1)
        value.backward(torch.tensor(bench.values(g)))
        wanted = [value.detach().numpy(), leaf.grad.numpy()]
        for one, fine, want in zip(got[2 * i :], exact[2 * i :], wanted, strict=False):
            assert_close(one, want, x.dtype, factor=4)
            np.testing.assert_allclose(fine, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("types", [("f16", f32), ("f32", f16)])
def test_softmax_family__other_type_of_result__is_computed_in_f32_and_rounded_once(
    types: tuple[str, ElementType],
) -> None:
    bench, (dtype, out_type) = Bench(4), types
    x, g = (bench.tensor(RNG.standard_normal((5, 10)) * 4, dtype) for _ in range(2))
    pairs = []
    for forward in (popnn.softmax, popnn.log_softmax):
        wide = popops.cast(bench.graph, x, f32, bench.prog)
        apart = popops.cast(bench.graph, forward(bench.graph, wide, bench.prog), out_type, bench.prog)
        pairs.append((forward(bench.graph, x, bench.prog, out_type=out_type), apart))
    for backward in (popnn.softmax_input_gradient, popnn.log_softmax_input_gradient):
        wide_x, wide_g = (popops.cast(bench.graph, t, f32, bench.prog) for t in (x, g))
        apart = popops.cast(bench.graph, backward(bench.graph, wide_x, wide_g, bench.prog), out_type, bench.prog)
        pairs.append((backward(bench.graph, x, g, bench.prog, out_type=out_type), apart))
    got = bench.run_both(*(t for pair in pairs for t in pair))
    for joined, apart in zip(got[::2], got[1::2], strict=True):
        np.testing.assert_array_equal(joined, apart)


def test_softmax__result_of_integers__is_refused() -> None:
    bench = Bench(1)
    with pytest.raises(TypeMismatchError, match="makes floating-point elements, and no i32"):
        popnn.softmax(bench.graph, bench.tensor([[1.0]], "f32"), bench.prog, out_type=i32)


def test_softmax__huge_elements__stay_finite() -> None:
    bench = Bench(4)
    x = bench.tensor([[1e4, 1e4 - 1, -1e4], [-1e4, -1e4, -1e4]], "f32")
    y = popnn.softmax(bench.graph, x, bench.prog)
    assert_close(bench.run_both(y)[0], F.softmax(torch.tensor(bench.values(x)), -1), f32)


@pytest.mark.parametrize("num_tiles", TILES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_safe_softmax__rows_of_minus_infinity__are_zeros(num_tiles: int, dtype: str) -> None:
    bench, inf = Bench(num_tiles), np.inf
    rows = [[1.0, -inf, 2.0, -3.0], [-inf] * 4, [np.nan, 0.0, 0.0, 1.0], [-6e4, -6e4, -inf, -6e4], [inf, 0.0, 0.0, 0.0]]
    x = bench.tensor(rows, dtype)
    y = popnn.softmax(bench.graph, x, bench.prog, safe=True)
    wanted = F.softmax(torch.tensor(bench.values(x)), -1)
    wanted[1] = 0.0
    for got in bench.run_both(y):
        np.testing.assert_allclose(got, wanted, rtol=2e-3 if dtype == "f16" else 1e-6, equal_nan=True)


FAMILY = {"softmax": 5, "log_softmax": 5, "softmax_input_gradient": 3, "log_softmax_input_gradient": 2}


def _kinds(op: str, dtype: str, shape: tuple[int, int], *, by_rows: bool) -> list[str]:
    """Kinds of the steps of an operation on a whole chip, rows on tiles of their own or spread linearly."""
    bench = Bench(1472)
    tensors = [bench.graph.variable(dtype, shape, name=f"x{i}", map="linear") for i in range(1 + ("gradient" in op))]
    if by_rows:
        tensors = [t.map_rows(np.arange(shape[0]) * 1472 // shape[0]) for t in tensors]
    getattr(popnn, op)(bench.graph, *tensors, bench.prog)
    return [str(kind) for kind in compile_program(bench.graph, bench.prog).report.steps["kind"]]


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("op", FAMILY)
def test_softmax_family__rows_that_lie_on_one_tile__take_few_steps_and_no_exchange(op: str, dtype: str) -> None:
    assert _kinds(op, dtype, (2944, 64), by_rows=True) == ["compute"] * FAMILY[op]


@pytest.mark.parametrize("op", FAMILY)
def test_softmax_family__few_elements_of_cut_rows__need_no_arranging_copies(op: str) -> None:
    kinds = _kinds(op, "f16", (16, 1000), by_rows=False)
    assert "exchange" in kinds
    assert "copy" not in kinds


@pytest.mark.parametrize("by_rows", [False, True])
def test_softmax__many_classes_in_f16__is_right_to_its_rounding(by_rows: bool) -> None:
    bench = Bench(64)
    x, g = (bench.tensor(RNG.standard_normal((64, 3000)), "f16") for _ in range(2))
    if by_rows:
        x, g = x.map_rows(np.arange(64)), g.map_rows(np.arange(64))
    y = popnn.softmax(bench.graph, x, bench.prog)
    scaled, factor = popnn.scaled_softmax_stable(bench.graph, x, bench.prog)
    gradient = popnn.softmax_input_gradient(bench.graph, y, g, bench.prog)
    leaf = torch.tensor(bench.values(x), requires_grad=True)
    wanted = F.softmax(leaf, -1)
    wanted.backward(torch.tensor(bench.values(g)))
    got = bench.run_both(y, scaled, gradient)
    # Each of three roundings is half of the last of 11 bits; below 2^-14 the last bit is 2^-24.
    np.testing.assert_allclose(got[0], wanted.detach(), rtol=3 * 2**-11, atol=2 * 2.0**-24)
    np.testing.assert_allclose(np.float64(got[1]) / factor, wanted.detach(), rtol=3 * 2**-11, atol=2.0**-23)
    np.testing.assert_allclose(got[2], leaf.grad, rtol=6 * 2**-11, atol=6 * 2.0**-24)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("label_type", ["i32", "u32"])
def test_classification_losses__value_and_gradient__are_pytorchs(reduction: str, label_type: str) -> None:
    bench = Bench(16)
    logits = bench.tensor(RNG.standard_normal((6, 10)) * 3, "f32", "activations")
    labels = bench.tensor([3, 0, 9, 9, 1, 5], label_type)
    upstream = bench.tensor(0.7, "f32", 1)
    log_p = popnn.log_softmax(bench.graph, logits, bench.prog)
    nll = popnn.nll_loss(bench.graph, log_p, labels, bench.prog, reduction=reduction)
    nll_gradient = popnn.nll_loss_gradient(
        bench.graph, log_p, labels, bench.prog, gradient=upstream, reduction=reduction
    )
    entropy, saved = popnn.cross_entropy_loss(bench.graph, logits, labels, bench.prog, reduction=reduction)
    gradient = popnn.cross_entropy_loss_gradient(bench.graph, saved, labels, bench.prog, reduction=reduction)
    outs = (nll, nll_gradient, entropy, gradient)
    leaf, target = _leaf(bench.values(logits)), torch.tensor(bench.data[labels].astype(np.int64))
    log_leaf = _leaf(F.log_softmax(leaf, -1).detach().numpy())
    F.nll_loss(log_leaf, target, reduction=reduction).mul(float(bench.values(upstream))).backward()
    loss = F.cross_entropy(leaf, target, reduction=reduction)
    loss.backward()
    wanted = [loss.detach(), log_leaf.grad, loss.detach(), leaf.grad]
    for got, fine, want in zip(bench.run_both(*outs), bench.kernels(*outs), wanted, strict=True):
        assert_close(got, want.numpy(), f32, factor=2)
        np.testing.assert_allclose(fine, want.numpy(), rtol=1e-6, atol=1e-7)


def test_nll_loss__label_outside_the_classes__contributes_nothing() -> None:
    bench = Bench(4)
    log_p = bench.tensor(np.log(np.full((2, 4), 0.25)), "f32")
    labels = bench.tensor([1, 0xFFFFFFFF], "u32")
    loss = popnn.nll_loss(bench.graph, log_p, labels, bench.prog, reduction="sum")
    gradient = popnn.nll_loss_gradient(bench.graph, log_p, labels, bench.prog, reduction="sum")
    got, got_gradient = bench.run_both(loss, gradient)
    assert_close(got, np.log(4), f32)
    assert not got_gradient[1].any()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_mse_loss__value_and_gradient__are_pytorchs(reduction: str, dtype: str) -> None:
    bench = Bench(16)
    prediction, target = (bench.tensor(RNG.standard_normal((20, 2)), dtype) for _ in range(2))
    loss = popnn.mse_loss(bench.graph, prediction, target, bench.prog, reduction=reduction)
    gradient = popnn.mse_loss_gradient(bench.graph, prediction, target, bench.prog, reduction=reduction)
    leaf = _leaf(bench.values(prediction))
    wanted = F.mse_loss(leaf, torch.tensor(bench.values(target)), reduction=reduction)
    wanted.backward()
    got, got_gradient = bench.run_both(loss, gradient)
    assert loss.dtype == f32
    assert_close(got, wanted.detach(), prediction.dtype)
    assert_close(got_gradient, leaf.grad, prediction.dtype)


@pytest.mark.parametrize("num_tiles", TILES)
def test_arg_max__ties__the_first_wins(num_tiles: int) -> None:
    bench = Bench(num_tiles)
    values = RNG.integers(0, 5, (9, 12)).astype(np.float32)
    x = bench.tensor(values)
    highest = popnn.arg_max(bench.graph, x, bench.prog)
    lowest = popnn.arg_min(bench.graph, x, bench.prog)
    got, got_lowest = bench.run_both(highest, lowest)
    np.testing.assert_array_equal(got, values.argmax(-1))
    np.testing.assert_array_equal(got_lowest, values.argmin(-1))


def test_losses__wrong_operands__are_named() -> None:
    bench = Bench(4)
    values, labels = bench.tensor(np.zeros((3, 4)), "f32"), bench.tensor([0, 1], "i32")
    with pytest.raises(TensorError, match=r"got \[3, 4\] and \[2\]"):
        popnn.nll_loss(bench.graph, values, labels, bench.prog)
    floats = bench.tensor(np.zeros(3), "f32")
    with pytest.raises(TypeMismatchError, match="integer labels, got f32 and f32"):
        popnn.nll_loss(bench.graph, values, floats, bench.prog)
    with pytest.raises(TensorError, match=r"the prediction has shape \[3, 4\], the target \[3\]"):
        popnn.mse_loss(bench.graph, values, floats, bench.prog)
    three = bench.tensor([0, 1, 2], "i32")
    with pytest.raises(InvalidOptionError, match="no loss reduction 'average'"):
        popnn.nll_loss(bench.graph, values, three, bench.prog, reduction="average")  # type: ignore[arg-type]


def test_softmax__integers_or_a_scalar__are_refused() -> None:
    bench = Bench(4)
    with pytest.raises(TypeMismatchError, match="softmax takes floating-point elements, got i32"):
        popnn.softmax(bench.graph, bench.tensor([1, 2], "i32"), bench.prog)
    with pytest.raises(TensorError, match="at least one dimension"):
        popnn.softmax(bench.graph, bench.tensor(1.0, "f32", 0), bench.prog)
