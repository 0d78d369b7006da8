"""Pooling and its gradient against PyTorch in 64 bits."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from poplibs_kit import TILES, Bench, assert_close

from abele.compiler import compile_program
from abele.compiler.cost import vertex_costs
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, walk
from abele.numerics import f16, f32
from abele.poplibs import popnn
from abele.poplibs.popnn import pool_layout
from abele.poplibs.popnn.pool_costs import PoolWork
from abele.poplibs.popnn.pool_layout import ChannelBlocks, create_blocks
from abele.poplibs.poputil import create_activations
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


@pytest.mark.parametrize("num_tiles", TILES)
@pytest.mark.parametrize("kind", ["max", "avg", "sum"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_pool__window_of_the_whole_field__is_a_reduction(num_tiles: int, kind: Any, dtype: str) -> None:
    bench, params = Bench(num_tiles), _params(kind, ((7, 6), (2, 1), (0, 0)), channels=48)
    x = bench.tensor(_distinct(params), dtype, "activations")
    g = bench.tensor(RNG.standard_normal(params.out_shape), dtype)
    y = popnn.pool(bench.graph, x, params, bench.prog)
    assert not any(
        "Pool" in v.codelet.name for s in walk(bench.prog) if isinstance(s, Execute) for v in s.compute_set.groups
    )
    gradient = popnn.pool_input_gradient(bench.graph, params, g, *([x, y] if kind == "max" else []), prog=bench.prog)
    leaf = torch.tensor(bench.values(x), requires_grad=True)
    wanted = _torch_pool(leaf, params)
    wanted.backward(torch.tensor(bench.values(g)))
    got, got_gradient = bench.run_both(y, gradient)
    assert_close(got, wanted.detach(), x.dtype)
    assert_close(got_gradient, leaf.grad, x.dtype)


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


FIRST_CASES = [
    ((7, 6), (2, 2), (2, 2), (0, 0)),
    ((9, 8), (3, 3), (2, 2), (1, 1)),
    ((9, 8), (3, 2), (1, 1), (1, 1)),
    ((11,), (4,), (3,), (2,)),
    ((4, 5, 6), (2, 2, 3), (1, 2, 2), (1, 0, 1)),
    ((6, 6), (6, 6), (1, 1), (0, 0)),
    ((5, 5), (2, 2), (3, 3), (0, 0)),
]


@pytest.mark.parametrize("is_special", [False, True])
@pytest.mark.parametrize(("field", "kernel", "stride", "pad"), FIRST_CASES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_max_pool_gradient__first_of_ties__is_pytorchs_to_the_bit(
    field: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    pad: tuple[int, ...],
    dtype: str,
    is_special: bool,
) -> None:
    params, rng = (
        popnn.PoolParams("max", field, kernel, stride, pad, pad, 16, 2, ties="first"),
        np.random.default_rng(3),
    )
    bench = Bench(16 if is_special else 4)
    elements = rng.integers(0, 3, params.in_shape).astype(np.float32)
    if is_special:  # windows with several NaN, and of nothing but infinities
        elements[rng.random(elements.shape) < 0.5] = -np.inf
        elements[rng.random(elements.shape) < 0.05] = np.nan
    x = bench.tensor(elements, dtype, "activations")
    g = bench.tensor(rng.integers(-4, 5, params.out_shape), dtype, "activations")
    leaf = torch.tensor(bench.data[x]).float().requires_grad_()
    wanted = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[len(field) - 1](leaf, kernel, stride, pad)
    wanted.backward(torch.tensor(bench.data[g]).float())
    y = bench.tensor(wanted.detach().numpy(), dtype, "activations")
    gradient = popnn.pool_input_gradient(bench.graph, params, g, x, y, prog=bench.prog)
    for mode in ("tiles", "native"):
        np.testing.assert_array_equal(bench.run(gradient, mode=mode)[0].astype(np.float32), leaf.grad)


@pytest.mark.parametrize("lies", ["activations", "linear"])
@pytest.mark.parametrize(("field", "kernel", "stride", "pad"), FIRST_CASES)
def test_max_pool_gradient__all_ties_of_any_numbers__are_added_as_vertices_do(
    field: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...], lies: str
) -> None:
    params, rng = popnn.PoolParams("max", field, kernel, stride, pad, pad, 16, 2), np.random.default_rng(4)
    bench, edge = Bench(4), [(0, 0), (0, 0), *zip(pad, pad, strict=True)]
    elements = rng.integers(0, 3, params.in_shape).astype(np.float32)
    elements[rng.random(elements.shape) < 0.1] = -np.inf
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(elements, edge, constant_values=-np.inf), kernel, axis=tuple(range(2, 2 + len(field)))
    )[(..., *(slice(None, None, s) for s in stride), *(slice(None) for _ in field))]
    # Sums of three and more of these depend on the order in which they are added.
    g = bench.tensor(rng.standard_normal(params.out_shape), "f32", lies)
    x = bench.tensor(elements, "f32", lies)
    y = bench.tensor(windows.max(tuple(range(-len(field), 0))), "f32", lies)
    gradient = popnn.pool_input_gradient(bench.graph, params, g, x, y, prog=bench.prog)
    tiles, native = (bench.run(gradient, mode=mode)[0] for mode in ("tiles", "native"))
    np.testing.assert_array_equal(native, tiles)


@pytest.mark.slow
def test_max_pool_gradient__more_positions_than_f16_counts__finds_the_first() -> None:
    params = popnn.PoolParams("max", (2600,), (2500,), (100,), (0,), (0,), 4, 1, ties="first")
    bench, elements = Bench(4), np.zeros(params.in_shape)
    elements[..., 2401:] = 1
    x, g = bench.tensor(elements, "f16"), bench.tensor(np.ones(params.out_shape), "f16")
    y = popnn.pool(bench.graph, x, params, bench.prog)
    gradient = popnn.pool_input_gradient(bench.graph, params, g, x, y, prog=bench.prog)
    for mode in ("tiles", "native"):
        got = bench.run(gradient, mode=mode)[0]
        assert (np.flatnonzero(got[0, 0]).tolist(), got[0, 0, 2401]) == ([2401], 2)


def test_pool_params__rules_for_ties_that_do_not_fit__are_refused() -> None:
    window = ((7, 6), (2, 2), (2, 2), (0, 0), (0, 0), 32, 3)
    with pytest.raises(InvalidOptionError, match="no rule for ties of a pooling 'frist'") as wrong:
        popnn.PoolParams("max", *window, ties="frist")  # type: ignore[arg-type]
    assert "did you mean 'first'?" in str(wrong.value)
    with pytest.raises(InvalidOptionError, match="only max pooling has ties, not avg"):
        popnn.PoolParams("avg", *window, ties="first")
    bench, params = Bench(4), popnn.PoolParams("max", *window, ties="first")
    x, y = bench.tensor(np.zeros(params.in_shape), "f32"), bench.tensor(np.zeros(params.out_shape), "f32")
    with pytest.raises(InvalidOptionError, match="the first maximum has alone cannot be shared"):
        popnn.pool_input_gradient(bench.graph, params, y, x, y, prog=bench.prog, use_scaled_gradient=True)


def test_pool_params__shared_ties__are_the_scaled_gradient() -> None:
    bench, one = Bench(4), popnn.PoolParams("max", (2, 2), (2, 2), (2, 2), (0, 0), (0, 0), 1, 1, ties="shared")
    x, g = bench.tensor(np.ones((1, 1, 2, 2)), "f32"), bench.tensor(np.full((1, 1, 1, 1), 3.0), "f32")
    y = popnn.pool(bench.graph, x, one, bench.prog)
    gradient = popnn.pool_input_gradient(bench.graph, one, g, x, y, prog=bench.prog)
    np.testing.assert_array_equal(bench.run_both(gradient)[0], np.full((1, 1, 2, 2), 0.75))


def test_pool__on_a_chip__one_vertex_a_tile_shares_its_rows() -> None:
    bench = Bench(1472)
    params = popnn.PoolParams("max", (8, 8), (2, 2), (2, 2), (0, 0), (0, 0), 32, 16)
    x = bench.tensor(np.zeros(params.in_shape), "f32", "activations")
    popnn.pool(bench.graph, x, params, bench.prog)
    (group,) = [g for s in walk(bench.prog) if isinstance(s, Execute) for g in s.compute_set.groups]
    per_tile = np.bincount(group.tile)
    assert set(per_tile[per_tile > 0]) == {1}
    assert (per_tile > 0).sum() > 512
    cycles = vertex_costs(group, bench.graph.system.ipu).amount
    # The busiest worker: one output of 4 window positions and 2 channels, one vector, which is set first.
    assert cycles.max() == 11 + 6 * (15 + 30 + 4 * (20 + 20) + 3 * 4 + 1)


@pytest.mark.parametrize("is_gradient", [False, True])
def test_pool_cost__blocks_inside_and_at_edges__count_every_piece_item_and_position(is_gradient: bool) -> None:
    ipu = Bench(4).graph.system.ipu
    work = PoolWork((3, 2), (2, 1), f32, compares=is_gradient, is_gradient=is_gradient)
    blocks = RNG.integers(1, 6, (40, 9)) * [1, 1, 4, 1, 1, 1, 1, 1, 1]
    blocks[:, [5, 8]] = RNG.integers(0 if is_gradient else -2, 3, (40, 2))

    def met(dim: int, at: int, k: int, extent: int, first: int) -> bool:
        if not is_gradient:
            return 0 <= first + at * work.stride[dim] + k < extent
        source, off = divmod(first + at - k, work.stride[dim])
        return off == 0 and 0 <= source < extent

    def slots(block: Any, worker: int) -> int:
        batch, groups, channels, in_0, out_0, first_0, in_1, out_1, first_1 = (int(n) for n in block)
        positions, vectors, total = batch * out_0 * out_1, groups * -(-channels // 2), 0
        own = range(worker * positions // 6, (worker + 1) * positions // 6)
        for row in {p // out_1 for p in own}:
            columns = [p % out_1 for p in own if p // out_1 == row]
            hits = [
                [c for c in columns if met(0, row % out_0, i, in_0, first_0) and met(1, c, j, in_1, first_1)]
                for i, j in itertools.product(range(3), range(2))
            ]
            total += 30 + (20 + 20 * vectors) * sum(map(bool, hits)) + vectors * len(columns)
            total += (5 if is_gradient else 3) * vectors * sum(map(len, hits))
        return total

    wanted = [11 + 6 * (15 + max(slots(b, w) for w in range(6))) for b in blocks]
    assert work.block_cycles(blocks, ipu).tolist() == wanted
    assert (work.least_cycles(blocks, ipu) <= wanted).all()


def test_pool_record__one_row_for_each_worker__has_its_lists_and_pointers() -> None:
    ipu = Bench(4).graph.system.ipu
    work = PoolWork((2, 2), (2, 2), f16, compares=False, is_gradient=False)
    block = np.array([[1, 3, 16, 12, 6, 0, 8, 4, 0]])  # six rows of four windows, three groups of channels
    pointers = 2 * (4 + 3 * 4)
    lists = 4 + 4 + 6 * (4 + 4 * 6)
    assert work.block_state_bytes(block, ipu).tolist() == [pointers + (4 + 6 * 2) + lists + 5 * 2 + 2]


def test_pool__channels_in_groups__blocks_cover_every_position_once() -> None:
    for channels, group in ((192, 8), (216, 8), (192, 16), (20, 20), (6, 6), (10, 5)):
        block = _blocks_of(channels, group)
        covered = np.zeros((channels // block.group, 35, 35), np.int64)
        for (c, _, y, x), (dc, _, dy, dx) in zip(block.start, block.size, strict=True):
            covered[c : c + dc, y : y + dy, x : x + dx] += 1
        assert (covered == 1).all()


def test_pool__groups_of_a_plan__are_whole_vectors_of_what_is_read_together() -> None:
    assert [_blocks_of(192, read).group for read in (4, 8)] == [4, 8]
    assert {_blocks_of(192, read).group for read in (16, 64, 192)} <= {4, 8, 16, 24, 32}
    # No whole number of vectors: as it comes.
    assert (_blocks_of(6, 6).group, _blocks_of(10, 5).group, _blocks_of(192, 1).group) == (6, 5, 1)


def test_pool__a_group_of_fewer_channels_than_preferred__saves_a_quarter() -> None:
    seen = set()
    for field, stride, channels in itertools.product((17, 28, 35, 56), (1, 2), (64, 192, 768)):
        params = popnn.PoolParams("max", (field, field), (3, 3), (stride,) * 2, (1, 1), (1, 1), channels, 1)
        graph = Bench(1472).graph
        cost = {}
        for group in (4, 8, 16):
            plan = pool_layout._Planning(graph.system.ipu, params, f16, group, group != 16, is_input=False)
            extents = (channels // group, 1, *params.out_shape[2:])
            cost[group] = pool_layout._parts(plan, extents, 1472, math.inf)[1]
        chosen = create_blocks(graph, f16, params, "x", group=16, is_input=False)[1].group
        least = min(cost, key=lambda group: cost[group])
        seen.add(chosen)
        assert chosen == (16 if cost[16] < 4 / 3 * cost[least] else least)
    assert len(seen) > 1


def _blocks_of(channels: int, group: int) -> ChannelBlocks:
    params = popnn.PoolParams("max", (35, 35), (3, 3), (1, 1), (1, 1), (1, 1), channels, 1)
    return create_blocks(Bench(1472).graph, f16, params, "x", group=group, is_input=False)[1]


def test_pool__more_samples__cost_more_and_no_less_than_what_moves() -> None:
    cycles = []
    for batch in (1, 2, 4, 16):
        params = popnn.PoolParams("max", (35, 35), (3, 3), (2, 2), (1, 1), (1, 1), 64, batch)
        bench = Bench(1472)
        x = create_activations(bench.graph, "f16", params.in_shape)
        popnn.pool(bench.graph, x, params, bench.prog)
        cycles.append(compile_program(bench.graph, bench.prog).report.cycles().total)
        assert cycles[-1] > x.size * 2 / 1472 / 4
    assert cycles == sorted(cycles)


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


def test_pool_params__lists__are_tuples_and_other_things_are_refused() -> None:
    zeros = (0, 0)
    assert popnn.PoolParams("max", [8, 8], [2, 2], [2, 2], zeros, zeros, 4, 1).kernel == (2, 2)  # type: ignore[arg-type]
    with pytest.raises(TensorError, match="pooling kernel must be whole numbers, one per field dimension, got 4"):
        popnn.PoolParams("max", (8, 8), 4, (2, 2), zeros, zeros, 4, 1)  # type: ignore[arg-type]
