"""Orders of arguments in PopLibs' poputil headers that are not our own; see :mod:`abele.poplibs.poputil.arguments`.

Where only numbers tell one order from another, PopLibs' spelling of a name has PopLibs' order.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from abele.errors import TensorError
from abele.graph import Graph, Interval, Tensor
from abele.graph.mapping import TileMapping
from abele.machine import Target
from abele.numerics import ElementType, f16, f32
from abele.numerics.exponents import LARGEST_F16
from abele.poplibs.poputil.arguments import Forms
from abele.poplibs.poputil.mapping import calc_linear_tile_mapping_and_new_offset, set_mapping
from abele.poplibs.poputil.partition import Regions, split_regions

# Numbers that the device holds in fewer bits.


def cast_to_device_half_value(value: float) -> float:
    """``value`` as the device holds it in f16: to nearest even, infinite where it is too large."""
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def check_accuracy_when_cast(value: float, source: ElementType, target: ElementType, tolerance: float) -> bool:
    """True if ``value`` keeps its accuracy when cast from ``source`` to ``target``.

    Args:
        value: The number.
        source: f32 or f16.
        target: f32 or f16.
        tolerance: Largest relative error.
    """
    if source != f32 or target != f16:
        return True
    if not math.isfinite(value) or abs(value) > LARGEST_F16:
        return False
    error = abs(float(np.float16(value)) - value)
    return bool(error <= tolerance * abs(value)) and (value == 0 or abs(value) >= float(np.finfo(np.float16).tiny))


FORMS: Forms = {
    "clone_n": ("tensor count name:debug? =clone?",),
    "clone_to_ipu": ("tensor ipu name:debug? =clone?",),
    "copy_to_ipu": ("tensor prog ipu name:debug? =clone?",),
    "create_broadcast_operand": ("full dtype dim dither?",),
    "duplicate": ("tensor prog name:debug? =clone?",),
}


def mapTensorLinearlyWithOffset(graph: Graph, t: Tensor, *numbers: int, ascending: bool = True) -> Tensor:
    """``(graph, t, offset[, ascending])`` or ``(graph, t, minElementsPerTile, grainSize, offset[, ascending])``.

    Tiles ascend from ``offset``, or descend from as far before the last tile.

    Raises:
        TensorError: Other numbers.
        TileMappingError: A grain below 1, or a negative smallest chunk.
    """
    plain = [n for n in numbers if not isinstance(n, bool)]
    ascending = next((n for n in numbers if isinstance(n, bool)), ascending)
    if len(plain) not in (1, 3):
        raise TensorError(
            f"mapTensorLinearlyWithOffset: numbers {plain}",
            remedy="an offset, or minElementsPerTile, grainSize, offset",
        )
    smallest, grain, offset = plain if len(plain) == 3 else (None, None, plain[0])
    mapping, _ = calc_linear_tile_mapping_and_new_offset(graph, t, offset, smallest, grain)
    if not ascending:
        mapping = TileMapping(mapping.size, mapping.begin, (graph.num_tiles - 1 - mapping.tile).astype(np.int32))
    return set_mapping(graph, t, mapping)


def splitRegionsBetweenWorkers(
    target: Target | Graph,
    regions: Regions,
    grainSize: int,
    minElementsPerPartition: int = 0,
    maxElementsPerPartition: int | None = None,
) -> list[list[Interval]]:
    """As :func:`~abele.poplibs.poputil.partition.split_regions_between_workers`, for a target or a graph."""
    workers = target.system.ipu.num_workers
    return split_regions(regions, grainSize, workers, minElementsPerPartition, maxElementsPerPartition)


def castToDeviceHalfValue(*target_and_value: Any) -> float:
    """As :func:`~abele.poplibs.poputil.cpp_forms.cast_to_device_half_value`, perhaps after a target."""
    return cast_to_device_half_value(target_and_value[-1])


def checkAccuracyWhenCast(*target_and_more: Any) -> bool:
    """As :func:`~abele.poplibs.poputil.cpp_forms.check_accuracy_when_cast`, perhaps after a target."""
    value, source, target, tolerance = target_and_more[-4:]
    return check_accuracy_when_cast(value, source, target, tolerance)
