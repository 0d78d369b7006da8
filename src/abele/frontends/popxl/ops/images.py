"""Ops on images: other sizes, and regions."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.regions import roi_align as aligned_regions
from abele.network.ops.resizing import Resizing

_MODES = ("nearest", "linear", "cubic")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "pytorch")
_COORDINATES = {name: name for name in ("half_pixel", "align_corners", "asymmetric")} | {
    "pytorch_half_pixel": "half_pixel_but_single"
}


def _word(kind: str, what: str, given: Any, allowed: Collection[str]) -> str:
    word = str(getattr(given, "name", given)).lower()
    if word not in allowed:
        raise GraphArgumentError(f"{kind} has the {what} {given!r}: {', '.join(allowed)}")
    return word


def interpolate(
    t: Tensor,
    scale_factor: Any = (1.0, 1.0, 1.0, 1.0),
    mode: str = "nearest",
    nearest_mode: str = "pytorch",
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    """It at another size of the field: each dimension becomes ⌊n · factor⌋.

    Args:
        t: [batch, channels, *field].
        scale_factor: A factor for the field, for each of its dimensions, or for all dimensions.
        mode: ``nearest``, ``linear`` or ``cubic``.
        nearest_mode: Rounding of places; ``pytorch`` takes element ⌊i / factor⌋ as PyTorch's ``nearest``.
        coordinate_transformation_mode: Place of each result in the operand, by ONNX's names.
    """
    checked("interpolate", t)
    kind = _word("interpolate", "mode", mode, _MODES)
    nearest = _word("interpolate", "nearest_mode", nearest_mode, _NEAREST)
    places = _word("interpolate", "coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES)
    given = [float(s) for s in scale_factor] if isinstance(scale_factor, list | tuple) else None
    factors = [1.0, 1.0, *([float(scale_factor)] * (t.rank - 2))] if given is None else given
    if len(factors) == t.rank - 2:
        factors = [1.0, 1.0, *factors]
    if len(factors) != t.rank or min(factors) <= 0:
        raise GraphArgumentError(f"interpolate has scale_factor {scale_factor} for {list(t.shape)}")
    sizes = [math.floor(n * s) for n, s in zip(t.shape, factors, strict=True)]
    if kind == "nearest" and nearest == "pytorch":
        how = Resizing(kind, "asymmetric", "floor")
    else:
        how = Resizing(kind, _COORDINATES[places], nearest)

    def meaning(net: BlockBuilder, v: Value) -> Value:
        # Dimensions that shrink come first, so that the others have less to do.
        for dim in sorted(range(v.ndim), key=lambda d: factors[d]):
            if factors[dim] != 1.0:
                v = build.resample(net, v, dim, how.matrix(v.shape[dim], sizes[dim], factors[dim]))
        return v

    return emit("interpolate", meaning, t)


def roi_align(
    t: Tensor,
    rois: Tensor,
    batch_index: Tensor,
    output_size: Sequence[int] = (1, 1),
    spatial_scale: float = 1.0,
    sampling_ratio: int = 1,
    aligned: bool = False,
) -> Tensor:
    """Means of samples in each cell of regions of images, [regions, channels, *output_size].

    Args:
        t: Images [batch, channels, height, width].
        rois: Regions [regions, 4]: x and y of one corner, then of the other.
        batch_index: Image of each region [regions].
        output_size: Cells of a region, down and across.
        spatial_scale: Factor from regions to elements.
        sampling_ratio: Samples of a cell in each direction.
        aligned: True to move places by half an element, as middles of elements have it.
    """
    checked("roi_align", t, rois, batch_index)
    if t.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or batch_index.shape != rois.shape[:1]:
        shapes = [list(v.shape) for v in (t, rois, batch_index)]
        raise GraphArgumentError(f"roi_align takes images, regions [n, 4] and n image numbers, not {shapes}")
    if sampling_ratio < 1:
        raise GraphArgumentError(
            f"roi_align has the sampling_ratio {sampling_ratio}: the number of samples has to be known",
            remedy="sampling_ratio=2, as torchvision's models have",
        )
    cells = (int(output_size[0]), int(output_size[1]))
    how: dict[str, Any] = {
        "ratio": int(sampling_ratio),
        "scale": float(spatial_scale),
        "offset": 0.5 if aligned else 0.0,
    }

    def meaning(net: BlockBuilder, v: Value, regions: Value, images: Value) -> Value:
        return aligned_regions(net, v, regions, images, cells=cells, **how)

    return emit("roi_align", meaning, t, rois, batch_index)


__all__ = ["interpolate", "roi_align"]
