"""Search of a plan over all grids of a chip.

Parts of each dimension that leave cells as large as fewer parts do are left out, which leaves some ten thousand grids;
all are costed at once. A chip of 1,472 tiles takes some 40 ms.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from abele.arrays import Int64
from abele.errors import InvalidOptionError, SparsePatternError, TypeMismatchError
from abele.machine.system import System
from abele.numerics import ElementType, f16, f32
from abele.poplibs.popsparse.dynamic.candidates import GridCandidates
from abele.poplibs.popsparse.dynamic.options import DynamicOptions
from abele.poplibs.popsparse.dynamic.params import DynamicFullyConnectedParams
from abele.poplibs.popsparse.dynamic.plan import DynamicPlan, device_block, fast_edge, z_grain
from abele.poplibs.popsparse.float8 import check_chip


class SparseMemoryWarning(UserWarning):
    """A plan that takes more memory than ``availableMemoryProportion`` allows, since none takes less."""


def find_plan(
    layer: DynamicFullyConnectedParams, dtype: ElementType, system: System, options: DynamicOptions
) -> DynamicPlan:
    """The plan with the fewest estimated cycles over all passes.

    Raises:
        TypeMismatchError: Elements of another type than f16 and f32; 8-bit floats without a vertex.
        SparsePatternError: The batch is off the grain, or no grid has offsets of 16 bits.
        InvalidOptionError: No memory is allowed, or a grid is asked for that the chip does not have.
    """
    _check(layer, dtype, system, options)
    tiles = system.ipu.num_tiles // layer.numGroups
    if not tiles:
        raise SparsePatternError(
            f"{layer.numGroups:,} groups need as many tiles, {system.name} has {system.ipu.num_tiles:,} per IPU",
            remedy="fewer groups, one product after the other",
        )
    found = _grids(layer, dtype, system, options, tiles)
    within = found.chosen(found.fits_u16)
    if not len(within.px):
        raise SparsePatternError(
            f"no grid of {tiles:,} tiles leaves cells of {layer.shape[0]:,} x {layer.shape[1]:,} elements and "
            f"{layer.batchSize:,} columns with offsets of 16 bits",
            remedy="a smaller matrix or batch, or a finer partition in planConstraints",
        )
    return _cheapest(within, system)


def _check(layer: DynamicFullyConnectedParams, dtype: ElementType, system: System, options: DynamicOptions) -> None:
    if dtype.is_quarter:
        _check_quarters(layer, dtype, system, options)
    elif dtype not in (f16, f32):
        raise TypeMismatchError(f"dynamic sparse products are of f16, f32 or 8-bit floats, not {dtype}")
    if options.proportion <= 0:
        raise InvalidOptionError(
            "option 'availableMemoryProportion' of 0 leaves no plan of a dynamic sparse product",
            remedy="a share of a tile's memory above 0, such as 0.6",
        )
    grain = z_grain(dtype)
    if device_block(layer.sparsity.blockDimensions, dtype) == (1, 1) and layer.batchSize % grain:
        raise SparsePatternError(
            f"{layer.batchSize:,} dense columns (batch) are no multiple of {grain}, the grain of {dtype} by elements",
            remedy=f"pad to {-(-layer.batchSize // grain) * grain:,} columns",
        )


def _check_quarters(
    layer: DynamicFullyConnectedParams, dtype: ElementType, system: System, options: DynamicOptions
) -> None:
    """Refuse 8-bit floats where there is nothing that multiplies them."""
    check_chip("a dynamic sparse product", dtype, system)
    high, wide = layer.sparsity.blockDimensions
    if not fast_edge(device_block((high, wide), dtype), dtype):
        raise TypeMismatchError(
            f"dynamic sparse products of {dtype} in blocks of {high} x {wide} have no vertex",
            because="the matrix units take 8 values of a row at a time, and vector units take no 8-bit floats",
            remedy="square blocks of a multiple of 8 · values and dense operand of half",
        )
    if options.grad_a or options.grad_w:
        option = "doGradAPass" if options.grad_a else "doGradWPass"
        raise TypeMismatchError(
            f"dynamic sparse products of {dtype} have no gradients, {option!r} is set",
            because="blocks of 8-bit floats are not transposed on tiles, and gradients of values are wider than values",
            remedy=f"{option!r} false · values of half",
        )


def _grids(
    layer: DynamicFullyConnectedParams, dtype: ElementType, system: System, options: DynamicOptions, tiles: int
) -> GridCandidates:
    """All grids that the options allow."""
    block = device_block(layer.sparsity.blockDimensions, dtype)
    grain = 1 if block != (1, 1) else z_grain(dtype)
    sizes = {
        "x": layer.outputChannelsPerGroup // block[0],
        "y": layer.inputChannelsPerGroup // block[1],
        "z": layer.batchSize // grain,
    }
    given = dict(options.parts)
    if math.prod(given.values()) > tiles:
        wanted = " x ".join(f"{n} parts of {dim}" for dim, n in given.items())
        raise InvalidOptionError(f"option 'planConstraints' asks for {wanted}; there are {tiles:,} tiles")
    ways = {dim: np.array([given[dim]]) if dim in given else _distinct(size, tiles) for dim, size in sizes.items()}
    px, py = (a.reshape(-1) for a in np.meshgrid(ways["x"], ways["y"], indexing="ij"))
    few = px * py <= tiles
    px, py = px[few], py[few]
    pz = np.tile(ways["z"], len(px))
    px, py = np.repeat(px, len(ways["z"])), np.repeat(py, len(ways["z"]))
    few = px * py * pz <= tiles
    return GridCandidates(layer, dtype, options, system.ipu, px=px[few], py=py[few], pz=pz[few])


def _distinct(size: int, tiles: int) -> Int64:
    """Numbers of parts, each the fewest for its largest part."""
    parts = np.arange(1, min(size, tiles) + 1)
    return np.unique(-(-size // -(-size // parts)))


def _cheapest(candidates: GridCandidates, system: System) -> DynamicPlan:
    """The grid with the fewest cycles within the memory allowed; that grows until a grid fits."""
    tile = system.ipu.tile.usable_bytes
    proportion = candidates.options.proportion
    bound, needed = proportion * tile, candidates.temporary_bytes
    allowed = needed <= bound
    while not allowed.any():
        bound = bound * 2 if bound * 2 <= 2 * tile else math.inf
        allowed = needed <= bound
    if bound > proportion * tile:
        warnings.warn(
            f"a dynamic sparse product takes {int(needed.min()):,} B of temporaries per tile at least, "
            f"{int(proportion * tile):,} B are allowed (availableMemoryProportion {proportion:g})",
            SparseMemoryWarning,
            stacklevel=4,
        )
    within = candidates.chosen(allowed)
    stages = within.stages()
    total = np.sum([cycles for _, _, cycles in stages], axis=0)
    best = int(np.argmin(total))
    one = within.chosen(np.array([best]))
    return DynamicPlan(
        layer=one.layer,
        dtype=one.dtype,
        options=one.options,
        block=one.block,
        parts=(int(one.px[0]), int(one.py[0]), int(one.pz[0])),
        nz_slots=int(one.nz_slots[0]),
        meta_slots=int(one.meta_slots[0]),
        grad_a_slots=int(one.grad_a_slots[0]),
        moves_buckets=bool(one.moves_buckets[0]),
        amp_grad_w=bool(one.amp_grad_w[0]),
        cycles=tuple((of, stage, int(np.asarray(cycles)[best])) for of, stage, cycles in stages),
        temporary_bytes=int(one.temporary_bytes[0]),
        bound_bytes=int(min(bound, needed.max())),
    )
