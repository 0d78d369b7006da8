"""Region alignment against weights of every pixel, from hat functions, in 64 bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from poplibs_kit import Bench, assert_close

from abele.compiler import compile_program
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Graph, Sequence
from abele.poplibs import popnn
from abele.poplibs.popnn import RoiAlignParams

RNG = np.random.default_rng(12)
IMAGES, CHANNELS, HEIGHT, WIDTH = 2, 7, 9, 12
ROIS = np.array(
    [[1, 2, 9, 7], [-6, -3, 4, 4], [0, 0, 0.25, 0.5], [5, 5, 20, 14], [3.3, 1.2, 3.6, 8.9], [30, 30, 40, 40]]
)
INDEX = np.array([0, 1, 1, 0, 1, 0])


def _along(start: float, size: float, bins: int, ratio: int, extent: int) -> np.ndarray:
    """Mean share of every pixel in every bin, [bins, extent]."""
    samples = ratio or math.ceil(size / bins)
    shares = np.zeros((bins, extent))
    for b in range(bins):
        for s in range(samples):
            at = start + (b + (s + 0.5) / samples) * size / bins
            if -1 <= at <= extent:
                shares[b] += np.maximum(1 - abs(np.clip(at, 0, extent - 1) - np.arange(extent)), 0) / samples
    return shares


def _weights(params: RoiAlignParams) -> np.ndarray:
    """Share of every pixel in every bin of every region, [regions, rows, columns, height, width]."""
    half, least = (0.5, 0.0) if params.aligned else (0.0, 1.0)
    all_weights = []
    for left, top, right, bottom in ROIS * params.spatial_scale - half:
        wide, tall = max(right - left, least), max(bottom - top, least)
        down = _along(top, tall, params.aligned_height, params.sampling_ratio, HEIGHT)
        across = _along(left, wide, params.aligned_width, params.sampling_ratio, WIDTH)
        all_weights.append(np.einsum("ry,cx->rcyx", down, across))
    return np.array(all_weights)


@pytest.mark.parametrize("num_tiles", [4, 64, 1472])
@pytest.mark.parametrize(
    "params",
    [
        RoiAlignParams(2, 3, 2),
        RoiAlignParams(3, 2, 0, 0.5),
        RoiAlignParams(4, 4, 0, 1.0, aligned=True),
        RoiAlignParams(1, 1, 3, 0.75, aligned=True),
    ],
)
def test_roi_align__value_and_gradient__are_weighted_pixels(num_tiles: int, params: RoiAlignParams) -> None:
    bench = Bench(num_tiles)
    dtype = "f16" if num_tiles == 64 else "f32"
    data = bench.tensor(RNG.standard_normal((IMAGES, CHANNELS, HEIGHT, WIDTH)), dtype, "activations")
    rois, index = bench.tensor(ROIS, "f32"), bench.tensor(INDEX, "i32" if num_tiles == 4 else "u32")
    y = popnn.roi_align_fwd(bench.graph, data, rois, index, params, bench.prog)
    g = bench.tensor(RNG.standard_normal(y.shape), dtype)
    gradient = popnn.roi_align_input_gradient(bench.graph, g, data, rois, index, params, bench.prog)
    got, got_gradient = bench.run_both(y, gradient)
    weights = _weights(params)
    wanted = np.einsum("nrcyx,nkyx->nkrc", weights, bench.values(data)[INDEX])
    wanted_gradient = np.zeros(data.shape)
    np.add.at(wanted_gradient, INDEX, np.einsum("nrcyx,nkrc->nkyx", weights, bench.values(g)))
    assert_close(got, wanted, data.dtype)
    assert_close(got_gradient, wanted_gradient, data.dtype)


def test_roi_align__image_that_there_is_not_or_no_region__gives_nothing() -> None:
    bench = Bench(4)
    data = bench.tensor(np.ones((1, 2, 4, 4)), "f32")
    rois = bench.tensor([[0.0, 0, 3, 3], [0, 0, 3, 3], [0, 0, 3, 3]], "f32")
    index = bench.tensor([0, 1, -1], "i32")
    params = RoiAlignParams(2, 2, 1)
    y = popnn.roi_align_fwd(bench.graph, data, rois, index, params, bench.prog)
    gradient = popnn.roi_align_input_gradient(bench.graph, y, data, rois, index, params, bench.prog)
    none = popnn.roi_align_input_gradient(bench.graph, y[:0], data, rois[:0], index[:0], params, bench.prog)
    got, got_gradient, got_none = bench.run_both(y, gradient, none)
    assert got[0].all()
    assert not got[1:].any()
    assert got_gradient.sum() == pytest.approx(got.sum())
    assert not got_none.any()
    assert popnn.roi_align_fwd(bench.graph, data, rois[:0], index[:0], params, bench.prog).shape == (0, 2, 2, 2)


def test_roi_align__on_a_chip__spreads_channels_and_regions_and_costs_by_samples() -> None:
    cycles = []
    for ratio in (1, 2, 4):
        bench = Bench(1472)
        data = bench.graph.variable("f16", (1, 256, 50, 50), name="data", map="linear")
        rois = bench.graph.variable("f16", (300, 4), name="rois", map="linear")
        index = bench.graph.variable("u32", (300,), name="index", map="linear")
        popnn.roi_align_fwd(bench.graph, data, rois, index, RoiAlignParams(7, 7, ratio), bench.prog)
        report = compile_program(bench.graph, bench.prog).report
        assert report.steps["active_tiles"].max() == 256 * (1472 // 256)
        cycles.append(report.cycles().compute)
    assert 2 < cycles[1] / cycles[0] < 4
    assert 3 < cycles[2] / cycles[1] < 4


def test_roi_align__large_images__tiles_take_fewer_channels() -> None:
    bench = Bench(64)
    data = bench.graph.variable("f16", (1, 24, 180, 180), name="data", map="linear")
    rois = bench.graph.variable("f16", (8, 4), name="rois", map="linear")
    index = bench.graph.variable("u32", (8,), name="index", map="linear")
    g = bench.graph.variable("f16", (8, 24, 7, 7), name="g", map="linear")
    popnn.roi_align_input_gradient(bench.graph, g, data, rois, index, RoiAlignParams(7, 7, 2), bench.prog)
    compile_program(bench.graph, bench.prog)  # Six channels of f32 would not fit a tile.


def test_roi_align__operands_that_do_not_fit__are_named() -> None:
    graph, prog, params = Graph("bow-2000:1"), Sequence(), RoiAlignParams(2, 2)
    data = graph.variable("f32", (1, 4, 8, 8), name="data", map="linear")
    rois = graph.variable("f32", (3, 4), name="rois", map="linear")
    index = graph.variable("u32", (3,), name="index", map="linear")
    with pytest.raises(TensorError, match=r"roi_align: .*'rois'.* is not \[images, channels, height, width\]"):
        popnn.roi_align_fwd(graph, rois, rois, index, params, prog)
    with pytest.raises(TensorError, match=r"'data'.* is not \[regions, 4\]"):
        popnn.roi_align_fwd(graph, data, data, index, params, prog)
    with pytest.raises(TensorError, match=r"'index'.* does not have one image for each of 3 regions"):
        popnn.roi_align_fwd(graph, data, rois, index[:2], params, prog)
    with pytest.raises(TypeMismatchError, match=r"'rois'.* is neither i32 nor u32"):
        popnn.roi_align_fwd(graph, data, rois, rois[:, 0], params, prog)
    with pytest.raises(TypeMismatchError, match="holds no floating-point elements"):
        popnn.roi_align_fwd(graph, data, index.expand_dims(1).broadcast_to((3, 4)), index, params, prog)
    with pytest.raises(TensorError, match=r"the gradient .* does not have the shape of regions, \[3, 4, 2, 2\]"):
        popnn.roi_align_input_gradient(graph, data, data, rois, index, params, prog)
    half = graph.variable("f16", (3, 4, 2, 2), name="half", map="linear")
    with pytest.raises(TypeMismatchError, match=r"the gradient .* is not f32, as the images are"):
        popnn.roi_align_input_gradient(graph, half, data, rois, index, params, prog)


def test_roi_align_params__impossible_ones__are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="regions of 0 by 2 bins have none"):
        RoiAlignParams(0, 2)
    with pytest.raises(InvalidOptionError, match="a sampling ratio of -1 is negative"):
        RoiAlignParams(1, 2, -1)
    with pytest.raises(InvalidOptionError, match="a spatial scale of 0 is not above 0"):
        RoiAlignParams(1, 2, 1, 0)
