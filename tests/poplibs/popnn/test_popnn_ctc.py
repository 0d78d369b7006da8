"""CTC loss and gradient against PyTorch in 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from poplibs_kit import Bench

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Copy, Execute, Repeat, walk
from abele.poplibs.popnn import ctc
from support.examples import examples

TIMES, COUNTS = [9, 5, 9, 7], [4, 2, 0, 3]
LABELS = [[1, 1, 2, 1], [3, 4, 0, 0], [2, 2, 2, 2], [2, 2, 2, 1]]


def _oracle(data: np.ndarray, labels: Any, times: Any, counts: Any, blank: int, *, zero: bool, softmax: bool) -> Any:
    """Losses and gradients; with ``softmax`` data are logits or, which is the same, log-probabilities."""
    x = torch.tensor(data.astype(np.float64), requires_grad=True)
    log_probs = torch.log_softmax(x, -1) if softmax else x
    loss = torch.nn.functional.ctc_loss(
        log_probs, torch.tensor(labels), torch.tensor(times), torch.tensor(counts), blank, "none", zero
    )
    loss.sum().backward()
    assert x.grad is not None
    return loss.detach().numpy(), x.grad.numpy()


def _run(
    data: np.ndarray,
    labels: Any,
    times: Any,
    counts: Any,
    blank: int = 0,
    *,
    tiles: int = 64,
    logits: bool = True,
    out: str = "f32",
    gradient: bool = True,
    mode: str = "tiles",
    options: dict[str, str] | None = None,
) -> list[np.ndarray]:
    bench = Bench(tiles)
    steps, batch, classes = data.shape
    in_type = "f16" if data.dtype == np.float16 else "f32"
    plan = ctc.plan(bench.graph, in_type, out, batch, steps, np.shape(labels)[1], classes, options=options)
    made = ctc.create_data_input(bench.graph, in_type, batch, steps, classes, plan)
    truth = ctc.create_labels_input(bench.graph, "u32", batch, np.shape(labels)[1], plan)
    lengths = (bench.tensor(np.asarray(times, np.uint32)), bench.tensor(np.asarray(counts, np.uint32)))
    placed = bench.tensor(data)
    bench.data[truth] = np.asarray(labels, np.uint32)

    bench.prog.add(Copy(placed, made))
    kind = ("calc_loss_and_gradient_" if gradient else "calc_ctc_loss_") + ("logits" if logits else "log_probabilities")
    calc = getattr(ctc, kind)
    results = calc(bench.graph, out, made, truth, *lengths, bench.prog, blank, plan, options=options)
    return bench.run(*(results if gradient else (results,)), mode=mode)


def _logits(shape: tuple[int, int, int], seed: int = 3) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 2).astype(np.float32)


@pytest.mark.parametrize("tiles", [4, 64, 1472])
@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_ctc__repeated_empty_and_short_sequences__are_pytorchs(tiles: int, mode: str) -> None:
    data = _logits((9, 4, 5))
    wanted = _oracle(data, LABELS, TIMES, COUNTS, 0, zero=False, softmax=True)
    for got, right in zip(_run(data, LABELS, TIMES, COUNTS, tiles=tiles, mode=mode), wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=2e-5, atol=2e-5)


def test_ctc__log_probabilities__have_the_gradient_of_logits() -> None:
    logits = _logits((9, 4, 5))
    data = torch.log_softmax(torch.tensor(logits), -1).numpy()
    labels = np.asarray(LABELS) % 4
    wanted = _oracle(logits, labels, TIMES, COUNTS, 4, zero=True, softmax=True)
    got = _run(data, labels, TIMES, COUNTS, 4, logits=False, options={"zeroInfinity": "true"})
    for one, right in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, right, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_ctc__without_softmax_gradient__differs_by_the_probabilities(mode: str) -> None:
    data = torch.log_softmax(torch.tensor(_logits((9, 4, 5))), -1).numpy()
    whole = _run(data, LABELS, TIMES, COUNTS, logits=False, mode=mode)[1]
    options = {"includeSoftmaxGradient": "false"}
    alone = _run(data, LABELS, TIMES, COUNTS, logits=False, mode=mode, options=options)[1]
    inside = np.arange(9)[:, None] < np.asarray(TIMES)
    np.testing.assert_allclose(whole - alone, np.exp(data) * inside[:, :, None], atol=1e-5)


@pytest.mark.parametrize("mode", ["tiles", "native"])
@pytest.mark.parametrize("zero", [False, True])
def test_ctc__impossible_labels__are_infinite_or_zero(zero: bool, mode: str) -> None:
    data, times, counts = _logits((9, 4, 5)), [9, 3, 9, 4], [4, 2, 0, 3]
    labels = [[1, 1, 2, 1], [3, 3, 0, 0], [2, 2, 2, 2], [2, 2, 2, 1]]
    loss, gradient = _run(data, labels, times, counts, mode=mode, options={"zeroInfinity": str(zero).lower()})
    wanted = _oracle(data, labels, times, counts, 0, zero=zero, softmax=True)
    assert loss[3] == (0 if zero else np.inf)
    np.testing.assert_allclose(loss, wanted[0], rtol=2e-5)
    np.testing.assert_allclose(gradient[:, :3], wanted[1][:, :3], atol=2e-5)
    assert np.all(gradient[:4, 3] == 0) if zero else np.all(np.isnan(gradient[:4, 3]))
    assert np.all(gradient[4:, 3] == 0)


@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_ctc__no_steps_and_labels_out_of_range__are_impossible(mode: str) -> None:
    loss = _run(_logits((3, 3, 3)), [[1], [7], [1]], [0, 3, 0], [0, 1, 1], gradient=False, mode=mode)[0]
    assert loss.tolist() == [0.0, np.inf, np.inf]


@pytest.mark.parametrize("logits", [False, True])
def test_ctc__loss_alone__is_the_same(logits: bool) -> None:
    data = torch.log_softmax(torch.tensor(_logits((9, 4, 5))), -1).numpy()
    both = _run(data, LABELS, TIMES, COUNTS, logits=logits)[0]
    np.testing.assert_array_equal(_run(data, LABELS, TIMES, COUNTS, logits=logits, gradient=False)[0], both)


@pytest.mark.parametrize("mode", ["tiles", "native"])
def test_ctc__half_data_and_results__are_within_half_precision(mode: str) -> None:
    data = _logits((9, 4, 5)).astype(np.float16)
    loss, gradient = _run(data, LABELS, TIMES, COUNTS, out="f16", mode=mode)
    assert loss.dtype == gradient.dtype == np.float16
    wanted = _oracle(data, LABELS, TIMES, COUNTS, 0, zero=False, softmax=True)
    np.testing.assert_allclose(loss, wanted[0], rtol=2e-3)
    np.testing.assert_allclose(gradient, wanted[1], atol=2e-3)


def test_ctc__little_memory__spreads_data_in_parts() -> None:
    data = _logits((9, 4, 5))
    wanted = _run(data, LABELS, TIMES, COUNTS)
    few = _run(data, LABELS, TIMES, COUNTS, options={"availableMemoryProportion": "0.0001"})
    for one, other in zip(few, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@examples(4)
@given(data=st.data())
def test_ctc__any_sizes__are_pytorchs(data: st.DataObject) -> None:
    steps, batch, classes, most = (data.draw(st.integers(a, b)) for a, b in ((1, 12), (1, 3), (2, 6), (1, 5)))
    blank = data.draw(st.integers(0, classes - 1))
    others = st.sampled_from([c for c in range(classes) if c != blank])
    labels = [[data.draw(others) for _ in range(most)] for _ in range(batch)]
    times = [data.draw(st.integers(1, steps)) for _ in range(batch)]
    counts = [data.draw(st.integers(0, most)) for _ in range(batch)]
    values = _logits((steps, batch, classes), data.draw(st.integers(0, 99)))
    got = _run(values, labels, times, counts, blank, tiles=4, options={"zeroInfinity": "true"})
    wanted = _oracle(values, labels, times, counts, blank, zero=True, softmax=True)
    for one, right in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, right, rtol=3e-5, atol=3e-5)


def test_ctc__more_sequences_than_tiles__are_pytorchs() -> None:
    data, labels = _logits((7, 6, 4)), np.random.default_rng(1).integers(1, 4, (6, 3))
    times, counts = [7, 6, 5, 7, 7, 7], [3, 2, 1, 0, 3, 3]
    wanted = _oracle(data, labels, times, counts, 0, zero=True, softmax=True)
    got = _run(data, labels, times, counts, tiles=4, options={"zeroInfinity": "true"})
    for one, right in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, right, rtol=2e-5, atol=2e-5)


def test_ctc__long_sequence__is_as_near_as_pytorch_in_single_precision() -> None:
    data, labels = _logits((400, 1, 5)), np.random.default_rng(1).integers(1, 5, (1, 150))
    wanted = _oracle(data, labels, [400], [150], 0, zero=False, softmax=True)
    x = torch.tensor(data, requires_grad=True)
    loss = torch.nn.functional.ctc_loss(
        torch.log_softmax(x, -1), torch.tensor(labels), torch.tensor([400]), torch.tensor([150]), 0, "none"
    )
    loss.sum().backward()
    assert x.grad is not None
    got = _run(data, labels, [400], [150], tiles=1472)
    np.testing.assert_allclose(got[0], wanted[0], rtol=1e-5)
    assert np.abs(got[1] - wanted[1]).max() < 3 * np.abs(x.grad.numpy() - wanted[1]).max()


def test_ctc__virtual_graph__everything_stays_inside() -> None:
    bench = Bench(16)
    part = bench.graph.virtual(8, 16)
    plan = ctc.plan(part, "f32", "f32", 4, 9, 4, 5)
    data = ctc.create_data_input(part, "f32", 4, 9, 5, plan)
    labels = ctc.create_labels_input(part, "u32", 4, 4, plan)
    times, counts = (bench.tensor(np.asarray(n, np.uint32)) for n in (TIMES, COUNTS))
    bench.data[labels] = np.asarray(LABELS, np.uint32)
    bench.prog.add(Copy(bench.tensor(_logits((9, 4, 5))), data))
    results = ctc.calcLossAndGradientLogits(part, "f32", data, labels, times, counts, bench.prog, 0, plan)
    assert all(group.tile.min() >= 8 for cs in bench.graph.compute_sets for group in cs.groups)
    wanted = _oracle(_logits((9, 4, 5)), LABELS, TIMES, COUNTS, 0, zero=False, softmax=True)
    for one, right in zip(bench.run(*results), wanted, strict=True):
        np.testing.assert_allclose(one, right, rtol=2e-5, atol=2e-5)


def test_ctc__both_sweeps__share_one_compute_set_a_step() -> None:
    bench = Bench(64)
    plan = ctc.plan(bench.graph, "f32", "f32", 2, 8, 5, 4)
    data = ctc.create_data_input(bench.graph, "f32", 2, 8, 4, plan)
    labels = ctc.create_labels_input(bench.graph, "u32", 2, 5, plan)
    lengths = bench.graph.map(bench.graph.variable("u32", (2,)), 0)
    ctc.calc_loss_and_gradient_logits(bench.graph, "f32", data, labels, lengths, lengths, bench.prog, 0, plan)

    (loop,) = [node for node in walk(bench.prog) if isinstance(node, Repeat)]
    assert loop.count == 4
    assert [type(node) for node in walk(loop) if isinstance(node, Execute)] == [Execute, Execute]


def test_ctc__bad_arguments__are_refused() -> None:
    graph = Bench(4).graph
    with pytest.raises(TensorError, match="at least one sequence"):
        ctc.plan(graph, "f32", "f32", 0, 8, 5, 4)
    with pytest.raises(TypeMismatchError, match="takes f32 or f16, got i32"):
        ctc.plan(graph, "i32", "f32", 1, 8, 5, 4)
    with pytest.raises(InvalidOptionError):
        ctc.plan(graph, "f32", "f32", 1, 8, 5, 4, options={"zeroInfinit": "true"})
    plan = ctc.plan(graph, "f32", "f32", 1, 8, 5, 4)
    with pytest.raises(TensorError, match="does not fit the plan"):
        ctc.create_data_input(graph, "f32", 1, 9, 4, plan)
    with pytest.raises(TensorError, match="does not fit the plan"):
        ctc.create_labels_input(graph, "u32", 1, 6, plan)
    with pytest.raises(TypeMismatchError, match="labels are u32"):
        ctc.create_labels_input(graph, "i32", 1, 5, plan)


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"out_type": "f16"}, TypeMismatchError, "as planned"),
        ({"data": ("f32", (7, 2, 4))}, TensorError, "does not fit the plan"),
        ({"labels": ("u32", (2, 4))}, TensorError, "do not fit the plan"),
        ({"labels": ("i32", (2, 5))}, TypeMismatchError, "u32 labels and lengths"),
        ({"times": ("u32", (3,))}, TensorError, "lengths of 2 sequences"),
        ({"blank": 4}, InvalidOptionError, "the blank class 4 is none of the 4 classes"),
    ],
)
def test_ctc__operands_that_do_not_fit__are_refused(change: dict[str, Any], kind: type, text: str) -> None:
    bench = Bench(4)
    plan = ctc.plan(bench.graph, "f32", "f32", 2, 8, 5, 4)
    shapes = {"data": ("f32", (8, 2, 4)), "labels": ("u32", (2, 5)), "times": ("u32", (2,)), "counts": ("u32", (2,))}
    shapes |= {n: v for n, v in change.items() if n in shapes}
    data, labels, times, counts = (bench.graph.variable(dtype, shape, name=n) for n, (dtype, shape) in shapes.items())
    out_type, blank = change.get("out_type", "f32"), change.get("blank", 0)
    with pytest.raises(kind, match=text):
        ctc.calc_ctc_loss_logits(bench.graph, out_type, data, labels, times, counts, bench.prog, blank, plan)
