"""PopLibs' losses, extremes with their indices, and softmax variants, against NumPy and PyTorch in 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from poplibs_kit import TILES, Bench, assert_close

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError, UnsupportedOpError
from abele.graph import Tensor
from abele.poplibs import popnn

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(21)
BATCH, CLASSES = 6, 10
LABELS = np.array([3, 0, -1, 9, 5, 5])


def _bench(num_tiles: int, dtype: str, label_type: str, scale: float = 1.0) -> tuple[Bench, list[Tensor]]:
    bench = Bench(num_tiles)
    values = torch.softmax(torch.tensor(RNG.standard_normal((BATCH, CLASSES))), -1).numpy()
    y = bench.tensor(values * scale, dtype)
    labels = bench.tensor(LABELS.astype(np.uint32 if label_type == "u32" else np.int32), label_type)
    loss, deltas = bench.tensor(np.zeros(BATCH), dtype), bench.tensor(np.zeros((BATCH, CLASSES)), dtype)
    return bench, [y, labels, loss, deltas]


@pytest.mark.parametrize("num_tiles", TILES)
@pytest.mark.parametrize(("dtype", "label_type"), [("f32", "u32"), ("f16", "i32")])
def test_calc_loss__squares__are_half_the_squared_distance(num_tiles: int, dtype: str, label_type: str) -> None:
    bench, (y, labels, loss, deltas) = _bench(num_tiles, dtype, label_type)
    right = bench.tensor(np.array(7, np.uint32), "u32")
    program = popnn.calc_loss(bench.graph, y, labels, loss, deltas, "SUM_SQUARED_LOSS", num_correct=right)
    bench.prog.add(program)
    leaf = torch.tensor(bench.values(y), requires_grad=True)
    truth = torch.tensor(np.eye(CLASSES)[LABELS])
    seen = torch.tensor((LABELS >= 0).astype(float))
    terms = (0.5 * (leaf - truth) ** 2).sum(1) * seen
    terms.sum().backward()
    got = bench.run_both(loss, deltas, right)
    assert_close(got[0], terms.detach(), y.dtype)
    assert_close(got[1], leaf.grad, y.dtype)
    assert got[2] == (bench.values(y).argmax(1) == LABELS).sum()


@pytest.mark.parametrize("num_tiles", TILES)
@pytest.mark.parametrize(("dtype", "label_type"), [("f32", "i32"), ("f16", "u32")])
@pytest.mark.parametrize("scaled", [False, True])
def test_calc_loss__cross_entropy__scales_as_poplibs_says(
    num_tiles: int, dtype: str, label_type: str, scaled: bool
) -> None:
    outputs, deltas_scale = (64.0, 8.0) if scaled else (1.0, 1.0)
    bench, (y, labels, loss, deltas) = _bench(num_tiles, dtype, label_type, outputs)
    scales: dict[str, Any] = {}
    if scaled:
        scales["deltas_scale"] = bench.tensor(np.array(deltas_scale), "f32")
        scales["model_output_scaling"] = bench.tensor(np.array(outputs), "f32")
    bench.prog.add(popnn.calc_loss(bench.graph, y, labels, loss, deltas, "CROSS_ENTROPY_LOSS", **scales))
    p, seen = bench.values(y) / outputs, LABELS >= 0
    wanted = np.where(seen, -np.log(p[np.arange(BATCH), LABELS]), 0.0)
    gradient = deltas_scale * (p - np.eye(CLASSES)[LABELS]) * seen[:, None]
    got = bench.run_both(loss, deltas)
    assert_close(got[0], wanted, y.dtype)
    assert_close(got[1], gradient, y.dtype, 4)


def test_cross_entropy_deltas__are_the_gradient_of_the_logits() -> None:
    bench = Bench(16)
    logits = bench.tensor(RNG.standard_normal((BATCH, CLASSES)), "f32")
    labels = bench.tensor(np.abs(LABELS).astype(np.int32), "i32")
    loss, deltas = bench.tensor(np.zeros(BATCH), "f32"), bench.tensor(np.zeros((BATCH, CLASSES)), "f32")
    y = popnn.non_linearity(bench.graph, "SOFTMAX_STABLE", logits, bench.prog)
    bench.prog.add(popnn.calc_loss(bench.graph, y, labels, loss, deltas, "CROSS_ENTROPY_LOSS"))
    leaf = torch.tensor(bench.values(logits), requires_grad=True)
    wanted = torch.nn.functional.cross_entropy(leaf, torch.tensor(np.abs(LABELS)), reduction="none")
    wanted.sum().backward()
    got = bench.run_both(loss, deltas)
    assert_close(got[0], wanted.detach(), logits.dtype)
    assert_close(got[1], leaf.grad, logits.dtype)


def test_calc_accuracy__masked_labels__are_never_right() -> None:
    bench = Bench(4)
    y = bench.tensor(np.array([[1, 2, 0], [5, 1, 1], [0, 0, 3]]), "f32")
    labels = bench.tensor(np.array([1, popnn.MASKED_LABEL_CODE, 2], np.uint32), "u32")
    right = bench.tensor(np.array([9], np.int32), "i32")
    bench.prog.add(popnn.calc_accuracy(bench.graph, y, labels, right))
    assert bench.run_both(right)[0] == [2]


@pytest.mark.parametrize("num_tiles", [4, 64, 1472])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
def test_extremes__with_their_index__are_numpys_first(num_tiles: int, dtype: str) -> None:
    bench = Bench(num_tiles)
    x = bench.tensor(RNG.integers(-5, 6, (3, 4, 37)), dtype)
    top, top_at = popnn.max_and_arg_max(bench.graph, x, bench.prog)
    low, low_at = popnn.min_and_arg_min(bench.graph, x, bench.prog)
    values = bench.values(x)
    assert (top.dtype, top_at.dtype.name) == (x.dtype, "u32")
    expected = values.max(-1), values.argmax(-1), values.min(-1), values.argmin(-1)
    for got, want in zip(bench.run_both(top, top_at, low, low_at), expected, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("num_tiles", TILES)
def test_top_k__rows__largest_first_with_positions(num_tiles: int) -> None:
    bench = Bench(num_tiles)
    x = bench.tensor(np.array([RNG.permutation(40) for _ in range(6)]).reshape(2, 3, 40), "f32")
    values, indices = popnn.top_k(bench.graph, x, 5, bench.prog)
    got = bench.run_both(values, indices)
    want = torch.topk(torch.tensor(bench.values(x)), 5)
    np.testing.assert_array_equal(got[0], want.values)
    np.testing.assert_array_equal(got[1], want.indices)


def test_scaled_softmax__half__is_multiplied_by_16384() -> None:
    bench = Bench(16)
    x, y = (bench.tensor(RNG.standard_normal((4, 20)), t) for t in ("f16", "f32"))
    half, factor = popnn.scaled_softmax_stable(bench.graph, x, bench.prog)
    whole, one = popnn.scaled_softmax_stable(bench.graph, y, bench.prog)
    assert (factor, one) == (16384.0, 1.0)
    got = bench.run_both(whole, popnn.softmax(bench.graph, y, bench.prog))
    np.testing.assert_array_equal(got[0], got[1])
    for mode in ("tiles", "native"):
        values = bench.run(half, mode=mode)[0].astype(np.float64)
        np.testing.assert_allclose(values / factor, torch.softmax(torch.tensor(bench.values(x)), -1), rtol=4e-3)


def test_scaled_softmax__in_place__overwrites() -> None:
    bench = Bench(4)
    x = bench.tensor(RNG.standard_normal((2, 8)), "f32")
    before = bench.values(x)
    popnn.non_linearity_in_place(bench.graph, "softmax_scaled", x, bench.prog)
    assert_close(bench.run_both(x)[0], torch.softmax(torch.tensor(before), -1), x.dtype)


@pytest.mark.parametrize("disabled", [False, True])
def test_spatial_softmax2d__is_the_mean_position(disabled: bool) -> None:
    bench = Bench(16)
    fields = bench.tensor(RNG.standard_normal((3, 5, 4)), "f32")
    places, heat = popnn.spatial_softmax2d(bench.graph, bench.prog, fields, 0.5, disabled)
    weights = bench.values(fields).reshape(3, -1)
    if not disabled:
        weights = torch.softmax(torch.tensor(weights / 0.5), -1).numpy()
    weights = weights.reshape(3, 5, 4)
    rows = (weights * np.linspace(-1, 1, 5)[:, None]).sum((1, 2))
    columns = (weights * np.linspace(-1, 1, 4)).sum((1, 2))
    assert_close(bench.run_both(places)[0], np.stack([rows, columns], 1), fields.dtype)
    assert heat.shape == ()


@pytest.mark.parametrize("kind", ["relu", "sigmoid", "tanh", "gelu", "gelu_erf", "swish", "hard_sigmoid"])
def test_named_non_linearity__is_the_general_one(kind: str) -> None:
    bench = Bench(4)
    x, y = (bench.tensor(np.linspace(-3, 3, 24), "f32") for _ in range(2))
    named = getattr(popnn, kind)(bench.graph, x, bench.prog)
    general = popnn.non_linearity(bench.graph, kind.upper(), x, bench.prog)
    getattr(popnn, f"{kind}_in_place")(bench.graph, y, bench.prog)
    one, other, third = bench.run_both(named, general, y)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(one, third)


def test_calc_loss__wrong_operands__are_named() -> None:
    bench, (y, labels, loss, deltas) = _bench(4, "f32", "i32")
    graph, scale = bench.graph, bench.tensor(np.array(2.0), "f32")
    with pytest.raises(InvalidOptionError, match="no loss 'CROSS_ENTROPY'"):
        popnn.calc_loss(graph, y, labels, loss, deltas, "CROSS_ENTROPY")
    with pytest.raises(InvalidOptionError, match="only CROSS_ENTROPY_LOSS takes"):
        popnn.calc_loss(graph, y, labels, loss, deltas, "SUM_SQUARED_LOSS", deltas_scale=scale)
    with pytest.raises(TensorError, match=r"loss .* has shape \[6, 10\], not \[6\]"):
        popnn.calc_loss(graph, y, labels, deltas, deltas, "SUM_SQUARED_LOSS")
    with pytest.raises(TensorError, match="is not one floating-point element"):
        popnn.calc_loss(graph, y, labels, loss, deltas, "CROSS_ENTROPY_LOSS", deltas_scale=loss)
    with pytest.raises(TypeMismatchError, match=r"labels .* are f32, not i32 or u32"):
        popnn.calc_accuracy(graph, y, loss, scale)
    with pytest.raises(TypeMismatchError, match=r"num_correct .* is f32"):
        popnn.calc_accuracy(graph, y, labels, scale)
    with pytest.raises(UnsupportedOpError, match="no gradient of softmax_scaled"):
        popnn.non_linearity_input_gradient(graph, "softmax_scaled", y, deltas, bench.prog)
    with pytest.raises(TypeMismatchError, match="an index is i32 or u32, not f32"):
        popnn.arg_max(graph, y, bench.prog, index_type=y.dtype)
    with pytest.raises(TensorError, match=r"is not \[fields, height, width\]"):
        popnn.spatial_softmax2d(graph, bench.prog, y, 1.0)
    with pytest.raises(TensorError, match="the temperature is 0"):
        popnn.spatial_softmax2d(graph, bench.prog, y.expand_dims(0), 0.0)
