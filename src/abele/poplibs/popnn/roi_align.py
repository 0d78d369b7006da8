"""Regions of images, aligned: every bin of a region is the mean of samples between pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, TensorError, TypeMismatchError
from abele.graph import Execute, Graph, Regions, Tensor, TileMapping, boxes
from abele.graph.program import Sequence
from abele.numerics import f32, i32, u32
from abele.poplibs.popnn.roi_codelets import align_codelet, align_gradient_codelet
from abele.poplibs.popops.elementwise.map import emit_map
from abele.poplibs.popops.expr import _1
from abele.poplibs.popops.reductions.codelets import Finish
from abele.poplibs.popops.reductions.ops import find_reduce_op
from abele.poplibs.popops.reductions.reduction import Reduction
from abele.poplibs.poputil.layout import create_output_like
from abele.poplibs.poputil.mapping import set_mapping

IMAGE_PROPORTION = 0.25
"""Share of a tile's memory that its channels of the images may take, where it could have fewer channels. Half the
memory would leave no room for the same elements elsewhere in the program."""


@dataclass(frozen=True)
class RoiAlignParams:
    """Grid of bins, sampling and coordinates of an alignment of regions.

    Attributes:
        aligned_height: Rows of bins of a region.
        aligned_width: Columns of bins.
        sampling_ratio: Samples of a bin along each dimension; 0 for as many as it has pixels, rounded up.
        spatial_scale: Pixels of the image for one unit of the regions' coordinates.
        aligned: True if coordinates are of the corners of pixels, so that pixels lie at their centres, half a pixel on.
            Otherwise regions are at least one pixel wide and high.

    Raises:
        InvalidOptionError: No bins, a negative ratio, or a scale that is not above 0.
    """

    aligned_height: int
    aligned_width: int
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    aligned: bool = False

    def __post_init__(self) -> None:
        if min(self.aligned_height, self.aligned_width) < 1:
            raise InvalidOptionError(f"regions of {self.aligned_height} by {self.aligned_width} bins have none")
        if self.sampling_ratio < 0:
            raise InvalidOptionError(f"a sampling ratio of {self.sampling_ratio} is negative", remedy="0 for automatic")
        if not self.spatial_scale > 0:
            raise InvalidOptionError(f"a spatial scale of {self.spatial_scale} is not above 0")


def roi_align_fwd(
    graph: Graph,
    data: Tensor,
    rois: Tensor,
    batch_index: Tensor,
    params: RoiAlignParams,
    prog: Sequence,
    name: str = "roi_align",
) -> Tensor:
    """Aligned regions, [regions, channels, aligned_height, aligned_width].

    Samples more than a pixel outside the image, and regions of an image that there is not, are 0.

    Args:
        graph: Graph in which vertices and the result are made.
        data: Images, [images, channels, height, width], floating point.
        rois: Regions, [regions, 4]: left, top, right, bottom; floating point.
        batch_index: The image of each, [regions], i32 or u32.
        params: Numbers of bins and samples, scale.
        prog: Sequence that the step is appended to.
        name: Name of the step.

    Raises:
        TensorError: Operands of other shapes.
        TypeMismatchError: Operands of other types.
    """
    _check(data, rois, batch_index, name)
    shape = (rois.shape[0], data.shape[1], params.aligned_height, params.aligned_width)
    # One channel per tile where there are tiles for it: a region may need any part of the image, so a tile has all of
    # it.
    cut = _Cut.of(graph, data, shape[0], most=1)
    out = graph.variable(data.dtype, shape, name=f"{name}/out")
    if not out.size:
        return graph.map(out, 0)
    cut.place_regions(graph, out)
    call = graph.library_call(
        prog,
        "popnn.roi_align",
        inputs=(data, rois, batch_index),
        outputs=(out,),
        kernel=None,
        flops=8 * out.size * max(params.sampling_ratio, 1) ** 2,
        debug_name=name,
    )
    with call as body:
        step, workers = graph.compute_set("align"), graph.system.ipu.num_workers
        step.vertices(
            align_codelet(data.dtype, rois.dtype, batch_index.dtype, workers),
            x=_boxes(data.transpose((1, 0, 2, 3)), cut.own_channels),
            y=_boxes(out, cut.own_regions, cut.own_channels),
            **_common(params, data, rois, batch_index, cut),
        )
        body.add(Execute(step))
    return out


def roi_align_input_gradient(
    graph: Graph,
    out_gradient: Tensor,
    data: Tensor,
    rois: Tensor,
    batch_index: Tensor,
    params: RoiAlignParams,
    prog: Sequence,
    name: str = "roi_align_gradient",
) -> Tensor:
    """Gradient of the images of :func:`roi_align_fwd`, laid out as they are. Regions get none.

    Args:
        graph: Graph in which vertices and the result are made.
        out_gradient: Gradient of the aligned regions, of the type of ``data``.
        data: The images, for their shape and layout.
        rois: As for :func:`roi_align_fwd`.
        batch_index: As for :func:`roi_align_fwd`.
        params: As for :func:`roi_align_fwd`.
        prog: Sequence that the steps are appended to.
        name: Name of the steps.

    Raises:
        TensorError: Operands of other shapes.
        TypeMismatchError: Operands of other types.
    """
    _check(data, rois, batch_index, name)
    channels, regions = data.shape[1], rois.shape[0]
    wanted = (regions, channels, params.aligned_height, params.aligned_width)
    if out_gradient.shape != wanted:
        raise TensorError(f"{name}: the gradient {out_gradient!r} does not have the shape of regions, {list(wanted)}")
    if out_gradient.dtype != data.dtype:
        raise TypeMismatchError(f"{name}: the gradient {out_gradient!r} is not {data.dtype}, as the images are")
    out = create_output_like(graph, [data], data.shape, data.dtype, f"{name}/out")
    cut = _Cut.of(graph, data, regions, most=graph.system.ipu.num_workers)
    call = graph.library_call(
        prog,
        "popnn.roi_align_gradient",
        inputs=(out_gradient, rois, batch_index),
        outputs=(out,),
        kernel=None,
        flops=8 * out_gradient.size * max(params.sampling_ratio, 1) ** 2,
        debug_name=name,
    )
    with call as body:
        images = (channels, data.shape[0], *data.shape[2:])
        # Regions overlap, and where they lie is known only at run time: each part adds into a plane of its own, in f32,
        # and the planes are summed in a second step.
        partials = graph.variable(f32, (cut.tile.shape[1], *images), name=f"{name}/partials")
        cut.place_parts(graph, partials)
        step, workers = graph.compute_set("scatter"), graph.system.ipu.num_workers
        step.vertices(
            align_gradient_codelet(data.dtype, rois.dtype, batch_index.dtype, workers),
            g=_boxes(out_gradient, cut.own_regions, cut.own_channels),
            y=_boxes(partials, cut.own_parts, cut.own_channels),
            **_common(params, data, rois, batch_index, cut),
        )
        body.add(Execute(step))
        _add_up(graph, body, partials, out.transpose((1, 0, 2, 3)), name)
    return out


def _add_up(graph: Graph, body: Sequence, partials: Tensor, out: Tensor, name: str) -> None:
    if partials.shape[0] == 1:
        emit_map(graph, body, [_1], [partials.reshape(out.shape)], [out], "narrow")
        return
    kept = tuple(range(1, partials.ndim))
    Reduction(
        graph,
        tensor=partials,
        kept=kept,
        op=find_reduce_op("ADD"),
        finish=Finish(out.dtype),
        scale=None,
        name=f"{name}/sum",
        between=f32,
    ).emit(body, out)


@dataclass(frozen=True)
class _Cut:
    """Tiles of channels and regions: every part of the channels meets every part of the regions.

    Attributes:
        tile: Tile of each pair of parts, int64[channel parts, region parts].
        channels: First channel of each part, and the end of the last.
        regions: First region of each part, and the end of the last.
    """

    tile: Int64
    channels: Int64
    regions: Int64

    @classmethod
    def of(cls, graph: Graph, data: Tensor, regions: int, *, most: int) -> _Cut:
        """Up to ``most`` channels per tile, fewer where they would fill it; regions over the tiles that are left."""
        tiles, channels = graph.system.num_tiles, data.shape[1]
        image_bytes = data.size // channels * f32.bytes
        fits = max(int(graph.system.ipu.tile.total_bytes * IMAGE_PROPORTION) // image_bytes, 1)
        # As many channels as the tiles demand, at least; otherwise up to `most`, if that many fit.
        channel_parts = -(-channels // max(-(-channels // tiles), min(most, fits)))
        region_parts = max(min(regions, tiles // channel_parts), 1)
        number = np.arange(channel_parts * region_parts)
        tile = number * tiles // max(len(number), tiles)
        return cls(
            tile.reshape(channel_parts, region_parts),
            np.arange(channel_parts + 1) * channels // channel_parts,
            np.arange(region_parts + 1) * regions // region_parts,
        )

    @property
    def own_channels(self) -> tuple[Int64, Int64]:
        """First channel and number of channels of each pair of parts, int64[n] each."""
        parts = self.tile.shape[1]
        return np.repeat(self.channels[:-1], parts), np.repeat(np.diff(self.channels), parts)

    @property
    def own_regions(self) -> tuple[Int64, Int64]:
        """First region and number of regions of each pair of parts, int64[n] each."""
        parts = self.tile.shape[0]
        return np.tile(self.regions[:-1], parts), np.tile(np.diff(self.regions), parts)

    @property
    def own_parts(self) -> tuple[Int64, Int64]:
        """Part of the regions of each pair of parts, and 1."""
        parts = np.tile(np.arange(self.tile.shape[1]), self.tile.shape[0])
        return parts, np.ones_like(parts)

    def place_regions(self, graph: Graph, tensor: Tensor) -> None:
        """Map a tensor [regions, channels, …] to the tiles that have them."""
        self._place(graph, tensor, np.repeat(self._tile_of_channels().T, np.diff(self.regions), axis=0))

    def place_parts(self, graph: Graph, tensor: Tensor) -> None:
        """Map a tensor [parts of the regions, channels, …] to the tiles that have them."""
        self._place(graph, tensor, self._tile_of_channels().T)

    def _tile_of_channels(self) -> Int64:
        return np.repeat(self.tile, np.diff(self.channels), axis=0)

    def _place(self, graph: Graph, tensor: Tensor, tile: Int64) -> None:
        each = tensor.size // tile.size
        flat = tile.reshape(-1)
        first = np.flatnonzero(np.append(True, flat[1:] != flat[:-1]))
        set_mapping(graph, tensor, TileMapping(tensor.size, first * each, flat[first].astype(np.int32)))


def _boxes(tensor: Tensor, *spans: tuple[Int64, Int64]) -> Regions:
    """Regions of each vertex: its part of the first dimensions, and all of the others."""
    whole = np.array(tensor.shape[len(spans) :], np.int64)
    rows = len(spans[0][0])
    start = np.stack([s[0] for s in spans], axis=1)
    size = np.stack([s[1] for s in spans], axis=1)
    start = np.concatenate([start, np.zeros((rows, len(whole)), np.int64)], axis=1)
    return boxes(tensor, start, np.concatenate([size, np.broadcast_to(whole, (rows, len(whole)))], axis=1))


def _common(params: RoiAlignParams, data: Tensor, rois: Tensor, batch_index: Tensor, cut: _Cut) -> dict[str, Any]:
    """Fields that both vertices have."""
    images, _, height, width = data.shape
    return {
        "tile": cut.tile.reshape(-1),
        "boxes": _boxes(rois, cut.own_regions),
        "image": _boxes(batch_index, cut.own_regions),
        "channels": cut.own_channels[1],
        "images": images,
        "height": height,
        "width": width,
        "rows": params.aligned_height,
        "columns": params.aligned_width,
        "ratio": params.sampling_ratio,
        "scale": params.spatial_scale,
        "offset": 0.5 if params.aligned else 0.0,
        "least": 0.0 if params.aligned else 1.0,
    }


def _check(data: Tensor, rois: Tensor, batch_index: Tensor, name: str) -> None:
    if data.ndim != 4 or not data.size:
        raise TensorError(f"{name}: {data!r} is not [images, channels, height, width] with pixels")
    if rois.ndim != 2 or rois.shape[1] != 4:
        raise TensorError(f"{name}: {rois!r} is not [regions, 4]")
    if batch_index.shape != rois.shape[:1]:
        raise TensorError(f"{name}: {batch_index!r} does not have one image for each of {rois.shape[0]} regions")
    for tensor in (data, rois):
        if not tensor.dtype.is_float:
            raise TypeMismatchError(f"{name}: {tensor!r} holds no floating-point elements")
    if batch_index.dtype not in (i32, u32):
        raise TypeMismatchError(f"{name}: {batch_index!r} is neither i32 nor u32")
