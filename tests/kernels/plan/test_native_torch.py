"""Native kernels of the usual layers, forward and backward, against PyTorch in float64."""

from __future__ import annotations

import numpy as np
import pytest
from kernels_kit import run_kernel

from abele.kernels import HostKernel
from abele.kernels.nest.ir import Cast, Const, Index, Nest, Random, affine, apply, load, nest, select, store
from abele.kernels.nest.reference import evaluate
from abele.numerics import ElementType, f32, i32, u32

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = pytest.mark.torch


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).normal(size=shape).astype(np.float32)


def double(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(array, dtype=torch.float64)


def kernel_of(inputs: list[np.ndarray], outputs: list[tuple[int, ...]], *nests: Nest, temporaries=()) -> HostKernel:
    kinds: dict[str, ElementType] = {"f": f32, "i": i32, "u": u32}
    types = [kinds[a.dtype.kind] for a in inputs] + [f32] * (len(outputs) + len(temporaries))
    shapes = tuple(a.shape for a in inputs) + tuple(outputs) + tuple(temporaries)
    return HostKernel(shapes, tuple(types), len(inputs), len(outputs), nests)


def check(kernel: HostKernel, inputs: list[np.ndarray], *expected: torch.Tensor) -> None:
    for got, wanted in zip(run_kernel(kernel, inputs), expected, strict=True):
        scale = max(1.0, float(wanted.detach().abs().max()))
        np.testing.assert_allclose(got / scale, wanted.detach().numpy() / scale, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (5, 7, 3), (64, 48, 100), (33, 130, 17), (2, 300, 1), (200, 3, 65)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul__any_shape__matches_torch(m, n, k, transposed):
    a, b = random(m, k), random(n, k) if transposed else random(k, n, seed=1)
    right = load(1, "n", "k") if transposed else load(1, "k", "n")
    body = store(2, ("m", "n"), load(0, "m", "k") * right, "add")
    kernel = kernel_of([a, b], [(m, n)], nest({"m": m, "n": n, "k": k}, body))
    check(kernel, [a, b], double(a) @ (double(b).T if transposed else double(b)))


CONVS = [
    (20, 3, 5, 8, 3, 1, 1),
    (16, 8, 16, 7, 3, 1, 0),
    (2, 4, 6, 9, 3, 2, 1),
    (1, 3, 4, 12, 5, 2, 2),
    (9, 6, 2, 5, 1, 1, 0),
]


@pytest.mark.parametrize(("b", "c", "o", "h", "k", "stride", "pad"), CONVS)
def test_conv__forward_and_gradients__match_torch(b, c, o, h, k, stride, pad):
    x, w = random(b, c, h, h), random(o, c, k, k)
    tx, tw = double(x).requires_grad_(), double(w).requires_grad_()
    y = functional.conv2d(tx, tw, stride=stride, padding=pad)
    dy = random(*y.shape, seed=2)
    y.backward(double(dy))
    out = y.shape[-1]
    loops = {"b": b, "o": o, "i": out, "j": out, "c": c, "p": k, "q": k}
    row, column = affine(("i", stride), "p", const=-pad), affine(("j", stride), "q", const=-pad)
    window, at = load(0, "b", "c", row, column, fill=0.0), ("b", "o", "i", "j")
    forward = store(2, at, window * load(1, "o", "c", "p", "q"), "add")
    check(kernel_of([x, w], [tuple(y.shape)], nest(loops, forward)), [x, w], y)
    weights = store(2, ("o", "c", "p", "q"), window * load(1, *at), "add")
    check(kernel_of([x, dy], [w.shape], nest(loops, weights)), [x, dy], tw.grad)
    scatter = store(2, ("b", "c", row, column), load(0, *at) * load(1, "o", "c", "p", "q"), "add")
    check(kernel_of([dy, w], [x.shape], nest(loops, scatter)), [dy, w], tx.grad)
    if stride == 1:
        back = load(0, "b", "o", affine("i", ("p", -1), const=pad), affine("j", ("q", -1), const=pad), fill=0.0)
        gather = store(2, ("b", "c", "i", "j"), back * load(1, "o", "c", "p", "q"), "add")
        loops = {"b": b, "c": c, "i": h, "j": h, "o": o, "p": k, "q": k}
        check(kernel_of([dy, w], [x.shape], nest(loops, gather)), [dy, w], tx.grad)


@pytest.mark.parametrize(("b", "h", "k", "stride"), [(18, 8, 2, 2), (3, 9, 3, 2), (1, 7, 3, 1)])
def test_max_pool__forward_and_gradient__match_torch(b, h, k, stride):
    x = random(b, 5, h, h)
    tx = double(x).requires_grad_()
    y = functional.max_pool2d(tx, k, stride)
    out = y.shape[-1]
    dy = random(*y.shape, seed=3)
    y.backward(double(dy))
    loops = {"b": b, "c": 5, "i": out, "j": out, "p": k, "q": k}
    at, cell = ("b", "c", affine(("i", stride), "p"), affine(("j", stride), "q")), ("b", "c", "i", "j")
    check(kernel_of([x], [tuple(y.shape)], nest(loops, store(1, cell, load(0, *at), "max"))), [x], y)
    top = y.detach().numpy().astype(np.float32)
    value = select(load(0, *at).eq(load(1, *cell)), load(2, *cell), 0.0)
    check(kernel_of([x, top, dy], [x.shape], nest(loops, store(3, at, value, "add"))), [x, top, dy], tx.grad)


@pytest.mark.parametrize(("b", "c"), [(20, 10), (3, 130), (1, 7)])
def test_log_softmax_nll__forward_and_gradient__match_torch(b, c):
    x, label = random(b, c), np.arange(b, dtype=np.int32) % c
    tx = double(x).requires_grad_()
    loss = functional.cross_entropy(tx, torch.tensor(label).long())
    loss.backward()
    loops, row, cell = {"b": b, "c": c}, ("b",), ("b", "c")
    top, power = load(4, *row), apply("exp", load(0, *cell) - load(4, *row))
    picked = Index(affine("c")).eq(load(1, *row))
    log_p = load(0, *cell) - top - apply("log", load(5, *row))
    gradient = (power / load(5, *row) - select(picked, 1.0, 0.0)) * (1.0 / b)
    nests = (
        nest(loops, store(4, row, load(0, *cell), "max")),
        nest(loops, store(5, row, power, "add")),
        nest(loops, store(2, (), select(picked, log_p * (-1.0 / b), 0.0), "add"), store(3, cell, gradient)),
    )
    kernel = kernel_of([x, label], [(), (b, c)], *nests, temporaries=((b,), (b,)))
    check(kernel, [x, label], loss, tx.grad)


def test_dropout__rate__keeps_what_the_reference_keeps():
    x, seed = random(24, 50), np.array([1, 2], np.uint32)
    keep = Random(1, 3, affine(("b", 50), "k")) >= Const(2**30, u32)
    body = store(2, ("b", "k"), select(keep, load(0, "b", "k") * 2.0, 0.0))
    kernel = kernel_of([x, seed], [(24, 50)], nest({"b": 24, "k": 50}, body))
    got = run_kernel(kernel, [x, seed])[0]
    np.testing.assert_array_equal(got, evaluate(kernel, [x, seed])[0])
    assert 0.7 < (got != 0).mean() < 0.8


@pytest.mark.parametrize("shape", [(), (5,), (33, 70)])
def test_adam__three_steps_in_place__match_torch(shape):
    w, rate = np.asarray(random(*shape), np.float32), 1e-2
    parameter = double(w).requires_grad_()
    optimiser = torch.optim.Adam([parameter], lr=rate)
    names = [f"d{n}" for n in range(len(shape))]
    g, m, v = load(1, *names), load(2, *names) * 0.9, load(3, *names) * 0.999
    m, v = m + load(1, *names) * 0.1, v + g * g * 0.001
    new = load(0, *names) - load(4) * m / (apply("sqrt", v) * load(5) + 1e-8)
    body = (store(6, names, new), store(7, names, m), store(8, names, v))
    first, second = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for step in (1, 2, 3):
        gradient = np.asarray(random(*shape, seed=step), np.float32)
        parameter.grad = double(gradient)
        optimiser.step()
        scales = [np.float32(rate / (1 - 0.9**step)), np.float32((1 - 0.999**step) ** -0.5)]
        inputs = [w, gradient, first, second, *map(np.asarray, scales)]
        kernel = kernel_of(inputs, [shape] * 3, nest(dict(zip(names, shape, strict=True)), *body))
        w, first, second = run_kernel(kernel, inputs)
    np.testing.assert_allclose(w, parameter.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_cast__labels_to_one_hot__counts_each_class():
    label = np.array([0, 2, 2, 1, 2], np.int32)
    value = Cast(f32, Index(affine("c")).eq(load(0, "b")))
    kernel = kernel_of([label], [(3,)], nest({"b": 5, "c": 3}, store(1, ("c",), value, "add")))
    np.testing.assert_array_equal(run_kernel(kernel, [label])[0], [1, 1, 3])
