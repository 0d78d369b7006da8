"""Norms against PyTorch in 64 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from poplibs_kit import Bench, assert_close

from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.poplibs import popnn
from abele.poplibs.poplin import norms as poplin_norms

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(11)
EPS = 1e-3


def _grouped(x: Any, kind: str, groups: int, strided: bool) -> Any:
    """[statistics, elements] in PyTorch, and how to get back."""
    batch, channels = x.shape[:2]
    if kind == "batch":
        return x.transpose(0, 1).reshape(channels, -1), lambda y: y.reshape(channels, batch, *x.shape[2:]).transpose(
            0, 1
        )
    if strided:
        seen = x.reshape(batch, channels // groups, groups, -1).transpose(1, 2)
        return seen.reshape(batch * groups, -1), lambda y: y.reshape(seen.shape).transpose(1, 2).reshape(x.shape)
    return x.reshape(batch * groups, -1), lambda y: y.reshape(x.shape)


def _oracle(x: Any, gamma: Any, beta: Any, kind: str, groups: int, strided: bool, unbiased: bool = False) -> Any:
    seen, back = _grouped(x, kind, groups, strided)
    mean, variance = seen.mean(1), seen.var(1, unbiased=unbiased)
    deviation = (variance + EPS).rsqrt()
    whitened = back((seen - mean[:, None]) * deviation[:, None])
    shape = (1, -1, *(1,) * (x.ndim - 2))
    return mean, deviation, whitened, whitened * gamma.reshape(shape) + beta.reshape(shape)


CASES = [
    ("batch", 0, True, (4, 16, 3, 5)),
    ("batch", 0, True, (6, 10)),
    ("group", 4, True, (3, 16, 5)),
    ("group", 4, False, (3, 16, 5)),
    ("group", 3, True, (2, 6, 2, 2)),
    ("layer", 1, True, (7, 24)),
    ("instance", 8, True, (2, 8, 3, 4)),
]


def _call(kind: str, what: str) -> Any:
    return getattr(popnn, f"{kind}_{what}")


def _options(kind: str, strided: bool) -> dict[str, Any]:
    return {} if kind == "batch" else {"options": {"groupNormStridedChannelGrouping": strided}}


@pytest.mark.parametrize(("num_tiles", "dtype", "stable"), [(4, "f32", False), (64, "f16", True)])
@pytest.mark.parametrize(("kind", "groups", "strided", "shape"), CASES)
def test_norm__values_and_gradients__are_pytorchs(
    num_tiles: int, dtype: str, stable: bool, kind: str, groups: int, strided: bool, shape: tuple[int, ...]
) -> None:
    bench, options = Bench(num_tiles), _options(kind, strided)
    graph, prog = bench.graph, bench.prog
    x = bench.tensor(RNG.standard_normal(shape) + 0.5, dtype, "activations")
    gamma = bench.tensor(RNG.uniform(0.5, 1.5, shape[1]), dtype)
    beta = bench.tensor(RNG.standard_normal(shape[1]), dtype)
    g = bench.tensor(RNG.standard_normal(shape), dtype, "activations")
    number = [groups] if kind == "group" else []
    mean, deviation = _call(kind, "norm_statistics")(graph, x, EPS, prog, *number, stable=stable, **options)
    y, white = _call(kind, "normalise")(graph, x, gamma, beta, mean, deviation, prog, **options)
    alone = _call(kind, "norm_whiten")(graph, x, mean, deviation, prog, **options)
    dgamma, dbeta = _call(kind, "norm_param_gradients")(graph, white, g, prog, **options)
    dx = _call(kind, "norm_gradients")(graph, white, g, deviation, gamma, prog, **options)
    dx_of_acts = _call(kind, "norm_gradients")(graph, x, g, deviation, gamma, prog, mean=mean, **options)
    leaves = [torch.tensor(bench.values(t), requires_grad=True) for t in (x, gamma, beta)]
    wanted = _oracle(*leaves, kind, groups, strided)
    wanted[-1].backward(torch.tensor(bench.values(g)))
    expected = [*(w.detach() for w in wanted), wanted[2].detach(), *(leaf.grad for leaf in leaves), leaves[0].grad]
    outs = [mean, deviation, white, y, alone, dx, dgamma, dbeta, dx_of_acts]
    for got, want in zip(bench.run_both(*outs), expected, strict=True):
        assert_close(got, want, x.dtype, 5)
    for got, want in zip(bench.kernels(*outs), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-10)


def test_group_norm__by_default__takes_every_gth_channel() -> None:
    bench = Bench(4)
    x = bench.tensor(np.arange(4, dtype=np.float32).reshape(1, 4), "f32")
    strided, _ = popnn.group_norm_statistics(bench.graph, x, EPS, bench.prog, 2)
    together, _ = popnn.group_norm_statistics(
        bench.graph, x, EPS, bench.prog, 2, options={"groupNormStridedChannelGrouping": "false"}
    )
    got = bench.run_both(strided, together)
    np.testing.assert_allclose(got[0], [1.0, 2.0])
    np.testing.assert_allclose(got[1], [0.5, 2.5])


@pytest.mark.parametrize("stable", [False, True])
def test_norm_statistics__unbiased__divides_by_one_fewer(stable: bool) -> None:
    bench = Bench(16)
    x = bench.tensor(RNG.standard_normal((5, 8, 3)), "f32")
    mean, deviation = poplin_norms.norm_statistics(bench.graph, x, EPS, bench.prog, unbiased=True, stable=stable)
    wanted = _oracle(torch.tensor(bench.values(x)), torch.ones(8), torch.zeros(8), "batch", 0, True, unbiased=True)
    for got, want in zip(bench.run_both(mean, deviation), wanted, strict=False):
        assert_close(got, want, x.dtype)


def test_norm_statistics__large_mean__is_exact_when_stable() -> None:
    bench = Bench(16)
    x = bench.tensor(RNG.standard_normal((64, 4)) * 0.1 + 300, "f32")
    _, deviation = poplin_norms.norm_statistics(bench.graph, x, EPS, bench.prog, stable=True)
    wanted = 1 / np.sqrt(bench.values(x).var(0) + EPS)
    np.testing.assert_allclose(bench.run_both(deviation)[0], wanted, rtol=1e-3)


def test_poplin_norms__step_by_step__are_the_batch_norm() -> None:
    bench, shape = Bench(16), (4, 8, 3)
    graph, prog = bench.graph, bench.prog
    x, g = (bench.tensor(RNG.standard_normal(shape), "f32", "activations") for _ in range(2))
    gamma, beta = (bench.tensor(RNG.standard_normal(8), "f32") for _ in range(2))
    mean, deviation = poplin_norms.norm_statistics(graph, x, EPS, prog)
    white = poplin_norms.norm_whiten(graph, x, mean, deviation, prog)
    y = poplin_norms.normalise(graph, white, gamma, beta, prog)
    dgamma, dbeta = poplin_norms.norm_param_gradients(graph, white, g, prog)
    scaled = poplin_norms.norm_gradients(graph, g, gamma, prog)
    dx = poplin_norms.norm_statistics_gradients(graph, white, scaled, deviation, prog)
    leaves = [torch.tensor(bench.values(t), requires_grad=True) for t in (x, gamma, beta)]
    wanted = _oracle(*leaves, "batch", 0, True)[-1]
    wanted.backward(torch.tensor(bench.values(g)))
    for got, want in zip(
        bench.run_both(y, dx, dgamma, dbeta), [wanted.detach(), *(t.grad for t in leaves)], strict=True
    ):
        assert_close(got, want, x.dtype, 5)


@pytest.mark.parametrize("stable", [False, True])
def test_distributed_batch_norm__two_equal_replicas__is_that_of_all_samples(stable: bool) -> None:
    """The all-reduce of replicas with the same samples doubles every sum."""
    bench, groups = Bench(16), []
    graph, prog = bench.graph, bench.prog

    def doubled(graph: Any, tensors: Any, prog: Any, group: int) -> list[Any]:
        from abele.poplibs import popops

        groups.append(group)
        return [popops.map(graph, popops._1 * 2.0, [t], prog) for t in tensors]

    x, g = (bench.tensor(RNG.standard_normal((4, 8, 3)), "f32", "activations") for _ in range(2))
    gamma = bench.tensor(RNG.standard_normal(8), "f32")
    mean, deviation = popnn.distributed_batch_norm_statistics(graph, x, EPS, prog, doubled, 8, stable=stable)
    white = popnn.batch_norm_whiten(graph, x, mean, deviation, prog)
    dx = popnn.distributed_batch_norm_gradients(graph, white, g, deviation, gamma, prog, doubled, 8)
    leaf = torch.tensor(bench.values(x), requires_grad=True)
    wanted = _oracle(leaf, torch.tensor(bench.values(gamma)), torch.zeros(8), "batch", 0, True)
    wanted[-1].backward(torch.tensor(bench.values(g)))
    expected = wanted[0].detach(), wanted[1].detach(), leaf.grad
    for got, want in zip(bench.run_both(mean, deviation, dx), expected, strict=True):
        assert_close(got, want, x.dtype, 5)
    assert set(groups) == {2}


def test_batch_normalise__for_inference__is_one_step() -> None:
    bench = Bench(16)
    x = bench.tensor(RNG.standard_normal((2, 16, 4)), "f16", "activations")
    factor, addend = (bench.tensor(RNG.standard_normal(16), "f16") for _ in range(2))
    y = popnn.batch_normalise_inference(bench.graph, x, factor, addend, bench.prog)
    wanted = bench.values(x) * bench.values(factor)[:, None] + bench.values(addend)[:, None]
    assert_close(bench.run_both(y)[0], wanted, x.dtype)
    assert len(bench.prog) == 1


def test_norm_param_update__scale__multiplies_both_deltas() -> None:
    bench = Bench(4)
    gamma, beta, one, two = (bench.tensor(RNG.standard_normal(6), "f32") for _ in range(4))
    popnn.layer_norm_param_update(bench.graph, one, two, -0.5, gamma, beta, bench.prog)
    got = bench.run_both(gamma, beta)
    assert_close(got[0], bench.values(gamma) - 0.5 * bench.values(one), gamma.dtype)
    assert_close(got[1], bench.values(beta) - 0.5 * bench.values(two), gamma.dtype)


def test_norm__operands_that_do_not_fit__are_named() -> None:
    bench = Bench(4)
    graph, prog = bench.graph, bench.prog
    x, six = bench.tensor(np.zeros((2, 6, 3)), "f32"), bench.tensor(np.zeros(6), "f32")
    with pytest.raises(TensorError, match="6 channels do not divide into 4 groups"):
        popnn.group_norm_statistics(graph, x, EPS, prog, 4)
    with pytest.raises(TensorError, match=r"has shape \[6\], not \[2\]"):
        popnn.layer_norm_whiten(graph, x, six, six, prog)
    with pytest.raises(TensorError, match="need mean and inv_std_dev"):
        popnn.batch_norm_param_gradients(graph, x, x, prog, mean=six)
    with pytest.raises(TensorError, match="has no channels"):
        popnn.batch_norm_statistics(graph, six, EPS, prog)
    with pytest.raises(TensorError, match="5 samples that share statistics are no multiple of the 2 here"):
        popnn.distributed_batch_norm_statistics(graph, x, EPS, prog, lambda *a: [], 5)
    with pytest.raises(TypeMismatchError, match="holds no floating-point elements"):
        popnn.batch_norm_statistics(graph, bench.tensor(np.zeros((2, 2)), "i32"), EPS, prog)
    with pytest.raises(InvalidOptionError, match="has no option 'strided'"):
        popnn.layer_norm_statistics(graph, x, EPS, prog, options={"strided": True})
