"""Records and code: bytes that the library's hand-written vertices keep on their tile for themselves.

The vertices here are told by one vector of numbers how to walk their slices, whatever these look like. Those on the
machine have a pointer for every group of channels instead, a few 16-bit numbers, and lists of work: for each worker,
and kernel position, which outputs it sums and from which inputs. The lists are counted here; on the machine they are
constants of the tile.

Source of the fields: declarations of PopLibs' codelets (docs/library_vertices.md). Check: products of a BERT-Large
layer have 59 bytes per tile, sums included (POPLINER; machine.md §6).
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.work import Work

_NUMBER_BYTES = 2
"""``useLimitedVer``: sizes and strides of 16 bits, as nearly all of a tile's slice have."""
_POINTER_BYTES = 4
_LIST_BYTES = 4
"""Bytes of a ``VectorList`` per row: its begin and length, in one word."""
_ITEM_BYTES = 3 * _NUMBER_BYTES
"""An item of work: first output, number of outputs, first input."""
AMP_CODE_BYTES = 1337
REDUCE_ADD_CODE_BYTES = 415
"""Code of a product on the matrix units, and of the sum of its partials. Source: POPLINER, derived.

A grouped product of a BERT-Large layer has 65,536 B of state and 1,794,048 B of code: 64 and 1,752 B on each of 1,024
tiles, for both vertices. Its other products have 86,272 B and 2,372,928 B: the same on 1,472 tiles, of which 976 sum,
as a record of ReduceAdd has 16 B. Guessed: products over a field have as much.
"""
CAST_CODE_BYTES = 540
"""Code of a conversion. Source: POPLINER, one on each of 4 tiles has 2,160 B."""


def amp_1x1(work: Work, pointer_bytes: int, out_group: int = cost.OUT_GROUP) -> Int64:
    """ConvPartial1x1Out: pointers, six 16-bit numbers, a stride, and one item of work for each worker."""
    numbers = 6 * _NUMBER_BYTES + 4 + _POINTER_BYTES
    return _whole(_slices(work, 1, out_group, pointer_bytes) + numbers + cost.WORKERS * _ITEM_BYTES)


def amp_nx1(work: Work, height: int, pointer_bytes: int, out_group: int = cost.OUT_GROUP) -> Int64:
    """ConvPartialnx1: pointers, eight 16-bit numbers, four words, and lists of work for each kernel position."""
    return _whole(
        _slices(work, height, out_group, pointer_bytes) + 8 * _NUMBER_BYTES + 4 * 4 + _worklists(work, height)
    )


def mac(work: Work, pointer_bytes: int) -> Int64:
    """The horizontal, vertical and SLIC vertices, whose fields are those of ConvPartialnx1 but for a few numbers."""
    return amp_nx1(work, 1, pointer_bytes)


def outer_product(work: Work) -> Int64:
    """OuterProduct: a vector, a pointer, one more for each group's output, and the channels of a group."""
    return _whole(8 + _POINTER_BYTES + _POINTER_BYTES * (1 + work.groups) + 4)


def reduce_add(depth: Int64) -> Int64:
    """ReduceAdd of ``depth`` partials that lie apart: a pointer to each, and to the output, and two 16-bit numbers."""
    return _whole(_POINTER_BYTES * (1 + depth) + _POINTER_BYTES + 2 * _NUMBER_BYTES)


def reduce_add_rows(shares: Int64) -> Int64:
    """ReduceAdd of rows beside an initial partial: three pointers and two 16-bit numbers, for each of ``shares``."""
    return np.full(len(shares), 3 * _POINTER_BYTES + 2 * _NUMBER_BYTES, dtype=np.int64)


def transpose(boxes: Int64) -> Int64:
    """Bytes of the record of a transpose of boxes of one shape: pointers to source and target of each, and their sizes.

    Several boxes on a tile have lists of pointers (Transpose2D).
    """
    return _whole(8 + 2 * _POINTER_BYTES * boxes)


def transpose_run(boxes: Int64) -> Int64:
    """Bytes of the record of a transpose of boxes that follow each other: two pointers and four 16-bit numbers.

    Source of the fields: PopLibs' Transpose1D, which counts its transpositions.
    """
    return np.full(np.shape(boxes), 2 * _POINTER_BYTES + 4 * _NUMBER_BYTES, dtype=np.int64)


def expand(numbers: Int64) -> Int64:
    """Bytes of the record of windows that are written out: two pointers, and 16-bit extents, strides and offsets.

    A guess: PopLibs writes windows out by copies, and no vertex of it is public. Slices have under 65,536 elements.
    """
    return _whole(2 * _POINTER_BYTES + _NUMBER_BYTES * numbers)


def _slices(work: Work, height: int, out_group: int, pointer_bytes: int) -> Int64:
    """Lists of pointers to inputs, weights and outputs, one for each of their groups of channels."""
    in_groups, out_groups = cost.channel_groups(work, cost.weights_per_unit(work.dtype) // height, out_group)
    rows = work.groups * (in_groups + in_groups * out_groups + out_groups)
    return np.asarray(3 * _POINTER_BYTES + pointer_bytes * rows, dtype=np.int64)


def _worklists(work: Work, height: int) -> Int64:
    """A list for each worker and kernel position, with an item for each row of outputs that the worker has part of."""
    lists = cost.WORKERS * cost.ceil_div(work.kernel_outer, height) * work.kernel_inner
    rows = np.maximum(cost.ceil_div(work.positions, np.maximum(work.run, 1) * cost.WORKERS), 1)
    return np.asarray(2 * _POINTER_BYTES + lists * (_LIST_BYTES + rows * _ITEM_BYTES), dtype=np.int64)


def _whole(size: Int64) -> Int64:
    return np.asarray(-(-size // 4) * 4, dtype=np.int64)
