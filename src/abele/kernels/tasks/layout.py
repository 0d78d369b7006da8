"""Layout of a space in memory: row-major, or in blocks of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from abele.kernels.target import row_length
from abele.layout import row_major
from abele.numerics import ElementType


@dataclass(frozen=True)
class SpaceLayout:
    """Layout of a space: dim n steps ``strides[n]`` elements.

    Attributes:
        strides: One per dim.
        block_stride: Elements from one block of samples to the next: 0 where only one block exists at a time, None
            where the sample dim steps as ``strides`` says.
        elements: Number of elements that exist at a time, where the other two do not give it.
    """

    strides: tuple[int, ...]
    block_stride: int | None = None
    elements: int | None = None

    @property
    def is_per_thread(self) -> bool:
        """True where one block exists at a time, in scratch memory of the thread that works on it."""
        return self.block_stride == 0

    @property
    def is_one_point(self) -> bool:
        """True where the elements of one point of the outer dims exist at a time; these dims do not step."""
        return self.is_per_thread and self.elements is None and 0 in self.strides


def lanes_innermost(shape: Sequence[int], place: int, samples: int, *, blocks_apart: bool) -> SpaceLayout:
    """Blocks of ``samples`` samples, which are dim ``place``, innermost: one sample per vector lane.

    Blocks lie one after the other, or all in the same place.
    """
    others = [n for n in range(len(shape)) if n != place]
    strides = dict(zip(others, row_major([*(shape[n] for n in others), samples])[:-1], strict=True))
    size = samples * math.prod(shape[n] for n in others)
    return SpaceLayout(tuple(strides.get(n, 1) for n in range(len(shape))), size if blocks_apart else 0)


def rows_of_block(shape: Sequence[int], place: int, samples: int) -> SpaceLayout:
    """One block of ``samples`` samples at a time, which step as in the whole space: each sample keeps its rows."""
    return SpaceLayout(row_major([samples if n == place else extent for n, extent in enumerate(shape)]), 0)


def one_point(shape: Sequence[int], outer: Sequence[int], order: Sequence[int], type: ElementType) -> SpaceLayout:
    """The elements of one point of the ``outer`` dims, the other dims in ``order``, the last the fastest.

    Long rows lie an odd number of lines apart. A product that stores three keys of every row comes back to a line five
    times. Scores of 512 keys are 2 KiB, and rows so far apart share the room of 24 lines in a first-level cache.
    """
    strides, step, is_padded = [0] * len(shape), 1, False
    for n in reversed([n for n in order if n not in outer]):
        if not is_padded:  # the dims around rows stay one dim, if they were
            dense, step = step, row_length(step, type)
            is_padded = step != dense
        strides[n] = step
        step *= shape[n]
    return SpaceLayout(tuple(strides), 0)


def rows_of_dims(shape: Sequence[int], places: Sequence[int], rows: int) -> SpaceLayout:
    """Layout of ``rows`` rows at a time, row after row: the last of ``places`` steps from one to the next."""
    last, outer = places[-1], set(places[:-1])
    inner = [n for n in range(len(shape)) if n not in places]
    lengths = row_major([rows, *(shape[n] for n in inner)])
    strides = {last: lengths[0], **dict(zip(inner, lengths[1:], strict=True)), **dict.fromkeys(outer, 0)}
    return SpaceLayout(tuple(strides[n] for n in range(len(shape))), 0, rows * math.prod(shape[n] for n in inner))
