"""Pooling and its gradient against PyTorch in 64 bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from poplibs_kit import TILES, Bench, assert_close

from abele.compiler.cost import vertex_costs
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, walk
from abele.poplibs import popnn
from abele.poplibs.poputil.order import storage_order

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(5)

WINDOWS = [
    ((2, 2), (2, 2), (0, 0)),
    ((3, 2), (2, 1), (1, 0)),
    ((3, 3), (1, 1), (1, 1)),
    ((2, 3), (3, 2), (1, 2)),
    ((1, 2), (2, 3), (0, 0)),
]


def _params(kind: Any, window: tuple[tuple[int, ...], ...], channels: int = 32, batch: int = 3) -> popnn.PoolParams:
    kernel, stride, pad = window
    return popnn.PoolParams(kind, (7, 6), kernel, stride, pad, pad, channels, batch)


def _torch_pool(x: Any, params: popnn.PoolParams) -> Any:
    pad = [p for d in (1, 0) for p in (params.padding_lower[d], params.padding_upper[d])]
    padded = F.pad(x, pad, value=-math.inf if params.kind == "max" else 0.0)
    if params.kind == "max":
        windows = padded.unfold(2, params.kernel[0], params.stride[0]).unfold(3, params.kernel[1], params.stride[1])
        return windows.amax((-2, -1))
    area = math.prod(params.kernel)
    total = F.avg_pool2d(padded, params.kernel, params.stride) * area
    if params.kind == "sum":
        return total
    return total / (F.avg_pool2d(F.pad(torch.ones_like(x), pad), params.kernel, params.stride) * area)


def _distinct(params: popnn.PoolParams) -> np.ndarray:
    """Numbers without ties in any field, also in f16: PyTorch treats ties in another way."""
    fields = [RNG.permutation(math.prod(params.field)) for _ in range(params.batch * params.channels)]
    return np.array(fields).reshape(params.in_shape) / 8 - 2


@pytest.mark.parametrize("num_tiles", TILES)
@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
@pytest.mark.parametrize("window", WINDOWS)
def test_pool__value_and_gradient__are_pytorchs(num_tiles: int, kind: str, window: Any) -> None:
    dtype = "f32" if num_tiles == 4 else "f16"
    bench, params = Bench(num_tiles), _params(kind, window)
    x = bench.tensor(_distinct(params), dtype, "activations")
    g = bench.tensor(RNG.standard_normal(params.out_shape), dtype)
    y = popnn.pool(bench.graph, x, params, bench.prog)
    saved = [x, y] if kind == "max" else []
    gradient = popnn.pool_input_gradient(bench.graph, params, g, *saved, prog=bench.prog)
    leaf = torch.tensor(bench.values(x), requires_grad=True)
    wanted = _torch_pool(leaf, params)
    wanted.backward(torch.tensor(bench.values(g)))
    got, got_gradient = bench.run_both(y, gradient)
    assert_close(got, wanted.detach(), x.dtype)
    assert_close(got_gradient, leaf.grad, x.dtype)
    exact, exact_gradient = bench.kernels(y, gradient)
    np.testing.assert_allclose(exact, wanted.detach(), rtol=1e-9)
    np.testing.assert_allclose(exact_gradient, leaf.grad, rtol=1e-9, atol=1e-12)


def test_pool__channels_that_form_no_group__work() -> None:
    bench, params = Bench(16), _params("max", WINDOWS[0], channels=10)
    x = bench.tensor(RNG.standard_normal(params.in_shape), "f32", "activations")
    y = popnn.pool(bench.graph, x, params, bench.prog)
    assert_close(bench.run_both(y)[0], _torch_pool(torch.tensor(bench.values(x)), params), x.dtype)


def test_pool__one_and_three_field_dimensions__work() -> None:
    bench = Bench(16)
    line = bench.tensor(RNG.standard_normal((2, 8, 9)), "f32", "activations")
    cube = bench.tensor(RNG.standard_normal((2, 4, 4, 5, 6)), "f32")
    one = popnn.PoolParams("max", (9,), (3,), (2,), (1,), (1,), 8, 2)
    three = popnn.PoolParams("avg", (4, 5, 6), (2, 2, 2), (2, 1, 2), (0, 1, 0), (0, 1, 0), 4, 2)
    outs = popnn.pool(bench.graph, line, one, bench.prog), popnn.pool(bench.graph, cube, three, bench.prog)
    got = bench.run_both(*outs)
    assert_close(got[0], F.max_pool1d(torch.tensor(bench.values(line)), 3, 2, 1), line.dtype)
    wanted = F.avg_pool3d(torch.tensor(bench.values(cube)), 2, (2, 1, 2), (0, 1, 0), count_include_pad=False)
    assert_close(got[1], wanted, cube.dtype)


def test_max_pool_gradient__ties__all_receive_it() -> None:
    bench = Bench(4)
    params = popnn.PoolParams("max", (2, 2), (2, 2), (2, 2), (0, 0), (0, 0), 1, 1)
    x, g = bench.tensor(np.ones((1, 1, 2, 2)), "f32"), bench.tensor(np.full((1, 1, 1, 1), 3.0), "f32")
    y = popnn.pool(bench.graph, x, params, bench.prog)
    gradient = popnn.pool_input_gradient(bench.graph, params, g, x, y, prog=bench.prog)
    np.testing.assert_array_equal(bench.run_both(gradient)[0], np.full((1, 1, 2, 2), 3.0))


def test_pool__on_a_chip__one_vertex_a_tile_shares_its_rows() -> None:
    bench = Bench(1472)
    params = popnn.PoolParams("max", (8, 8), (2, 2), (2, 2), (0, 0), (0, 0), 32, 16)
    x = bench.tensor(np.zeros(params.in_shape), "f32", "activations")
    popnn.pool(bench.graph, x, params, bench.prog)
    (group,) = [g for s in walk(bench.prog) if isinstance(s, Execute) for g in s.compute_set.groups]
    per_tile = np.bincount(group.tile)
    assert set(per_tile[per_tile > 0]) == {1}
    assert (per_tile > 0).sum() == 512
    cycles = vertex_costs(group, bench.graph.system.ipu).amount
    # Each worker: one output of 4 window positions and 16 channels, in vectors of 2.
    assert cycles.max() == 6 * (30 + 4 * 20 + 3 * 4 * 8)


def test_pool__windows_of_padding_only__give_nothing() -> None:
    outs, wanted, bench = [], [], Bench(16)
    x = bench.tensor(RNG.standard_normal((2, 4, 5)), "f32")
    g = bench.tensor(RNG.standard_normal((2, 4, 6)), "f32")
    leaf = torch.tensor(bench.values(x), requires_grad=True)
    for kind in ("max", "avg", "sum"):
        params = popnn.PoolParams(kind, (5,), (2,), (2,), (4,), (3,), 4, 2)
        y = popnn.pool(bench.graph, x, params, bench.prog)
        saved = [x, y] if kind == "max" else []
        outs += [y, popnn.pool_input_gradient(bench.graph, params, g, *saved, prog=bench.prog)]
        edges = [slice(max(s, 0), max(min(s + 2, 5), 0)) for s in range(-4, 7, 2)]
        reduced = [
            leaf[..., e].amax(-1) if kind == "max" else leaf[..., e].mean(-1) if kind == "avg" else leaf[..., e].sum(-1)
            for e in edges
            if e.stop > e.start
        ]
        value = torch.zeros(2, 4, 6, dtype=torch.float64)
        value[..., [i for i, e in enumerate(edges) if e.stop > e.start]] = torch.stack(reduced, -1)
        leaf.grad = None
        value.backward(torch.tensor(bench.values(g)))
        wanted += [value.detach().clone(), leaf.grad.clone()]
    for got, want in zip(bench.run_both(*outs), wanted, strict=True):
        assert_close(got, want, x.dtype)


@pytest.mark.parametrize("num_tiles", TILES)
def test_max_pool_gradient__scaled__is_shared_by_ties(num_tiles: int) -> None:
    bench, params = Bench(num_tiles), _params("max", WINDOWS[2], channels=8, batch=2)
    x = bench.tensor(RNG.integers(0, 3, params.in_shape), "f32", "activations")
    g = bench.tensor(RNG.standard_normal(params.out_shape), "f32")
    y = popnn.pool(bench.graph, x, params, bench.prog)
    dx = popnn.pool_input_gradient(bench.graph, params, g, x, y, prog=bench.prog, use_scaled_gradient=True)
    # PyTorch's amax shares its gradient evenly.
    leaf = torch.tensor(bench.values(x), requires_grad=True)
    _torch_pool(leaf, params).backward(torch.tensor(bench.values(g)))
    assert_close(bench.run_both(dx)[0], leaf.grad, x.dtype)


def test_pool_gradient__channels_per_group_given__lie_together() -> None:
    bench, params = Bench(16), _params("avg", WINDOWS[1])
    g = bench.tensor(RNG.standard_normal(params.out_shape), "f32")
    eight = popnn.pool_input_gradient(bench.graph, params, g, prog=bench.prog, fwd_chans_per_group=8)
    sixteen = popnn.pool_input_gradient(bench.graph, params, g, prog=bench.prog)
    assert storage_order(eight).extents[-1] == 8
    got = bench.run_both(eight, sixteen)
    assert_close(got[0], got[1], g.dtype)


def test_create_pool_input__any_grouping__has_the_shape_of_the_input() -> None:
    bench, params = Bench(64), _params("max", WINDOWS[0])
    x = popnn.create_pool_input(bench.graph, "f16", params, group=8)
    assert (x.shape, x.dtype.name, storage_order(x).extents[-1]) == (params.in_shape, "f16", 8)
    with pytest.raises(TensorError, match="32 channels do not divide into groups of 5"):
        popnn.create_pool_input(bench.graph, "f16", params, group=5)


def test_pool_gradient__scaled_average__is_refused() -> None:
    bench, params = Bench(4), _params("avg", WINDOWS[0])
    g = bench.tensor(np.zeros(params.out_shape), "f32")
    with pytest.raises(InvalidOptionError, match="only max pooling has a scaled gradient, not avg"):
        popnn.pool_input_gradient(bench.graph, params, g, prog=bench.prog, use_scaled_gradient=True)


def test_pool_params__impossible_ones__are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="no pooling 'mean'"):
        _params("mean", WINDOWS[0])
    with pytest.raises(TensorError, match="is negative"):
        _params("max", ((2, 2), (1, 1), (-1, 0)))
    with pytest.raises(TensorError, match="is larger than the padded field"):
        _params("max", ((9, 2), (1, 1), (0, 0)))
    with pytest.raises(TensorError, match="differ in their number of field dimensions"):
        _params("max", ((2,), (1, 1), (0, 0)))


def test_pool__operands_that_do_not_fit__are_named() -> None:
    bench, params = Bench(4), _params("max", WINDOWS[0])
    wrong = bench.tensor(np.zeros((3, 32, 7, 7)), "f32")
    with pytest.raises(
        TensorError, match=r"the input .* has shape \[3, 32, 7, 7\], the parameters say \[3, 32, 7, 6\]"
    ):
        popnn.pool(bench.graph, wrong, params, bench.prog)
    g = bench.tensor(np.zeros(params.out_shape), "f32")
    with pytest.raises(TensorError, match="needs the pooling's input and output"):
        popnn.pool_input_gradient(bench.graph, params, g, prog=bench.prog)
    x, y = bench.tensor(np.zeros(params.in_shape), "f16"), bench.tensor(np.zeros(params.out_shape), "f16")
    with pytest.raises(TypeMismatchError, match="is f16, the gradient is f32"):
        popnn.pool_input_gradient(bench.graph, params, g, x, y, prog=bench.prog)
