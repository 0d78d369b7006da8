"""The vertices of region alignment: means of samples between the pixels of an image."""

# Bodies and annotations are in the vertex language, whose own compiler checks their types.
# mypy: ignore-errors

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.codelet import Input, MultiVertex, Output, Vector, ceil, codelet, macro
from abele.machine import Ipu
from abele.numerics import ElementType, f32, i32
from abele.poplibs.poplin.linalg.costs import (
    ADD,
    CONVERT,
    DIVIDE,
    ENTRY,
    INDEX,
    LOOP,
    MULTIPLY,
    SUPERVISOR_CYCLES,
    LoopCosts,
)

COMPARE = 2
"""A comparison and its branch. Source: machine reference §1.2, one instruction each."""

POSITION = MULTIPLY + 2 * ADD + CONVERT
"""Slots for the place of a sample along one dimension of the image."""

CORNER = 3 * ADD + 2 * CONVERT + 2 * ADD
"""The pixels before and after a sample along one dimension, kept inside, and the shares of both."""

PIXELS = 4
"""Pixels around a sample."""


@macro
def _region(self, r):
    """Origin of region ``r``, the size of its bins in pixels, and the samples of each bin."""
    image = i32(self.image[r])
    left = f32(self.boxes[r * 4]) * self.scale - self.offset
    top = f32(self.boxes[r * 4 + 1]) * self.scale - self.offset
    wide = max(f32(self.boxes[r * 4 + 2]) * self.scale - self.offset - left, self.least)
    tall = max(f32(self.boxes[r * 4 + 3]) * self.scale - self.offset - top, self.least)
    wide = wide / f32(self.columns)
    tall = tall / f32(self.rows)
    across = self.ratio
    down = self.ratio
    if self.ratio < 1:
        across = i32(ceil(wide))
        down = i32(ceil(tall))
    return image, left, top, wide, tall, across, down


@macro
def _around(place, extent):
    """The pixels before and after a place in a field of ``extent`` pixels, and how far it is from the first."""
    inside = max(place, 0.0)
    before = min(i32(inside), extent - 1)
    after = min(before + 1, extent - 1)
    share = inside - f32(before)
    return before, after, share


@macro
def _spread(self, plane, v, u, share):
    """Add a sample's share to one of the pixels around it."""
    self.y[plane + v * self.width + u] = self.y[plane + v * self.width + u] + share


@cache
def align_codelet(dtype: ElementType, kind: ElementType, index: ElementType, workers: int) -> type:
    """Aligned regions of the channels of a tile.

    Fields: ``x`` is [channels, images, height, width], ``boxes`` [regions, 4], ``image`` the image of each, and ``y``
    [regions, channels, rows, columns]. The workers share the rows of regions.
    """

    @codelet
    class RoiAlign(MultiVertex):
        x: Input[Vector[dtype]]
        boxes: Input[Vector[kind]]
        image: Input[Vector[index]]
        channels: i32
        images: i32
        height: i32
        width: i32
        rows: i32
        columns: i32
        ratio: i32
        scale: f32
        offset: f32
        least: f32
        y: Output[Vector[dtype]]

        def compute(self, worker_id):
            area = self.height * self.width
            # Workers take rows of bins in turns, so that few regions keep all of them busy.
            for unit in range(worker_id, len(self.image) * self.rows, workers):
                r = unit // self.rows
                row = unit % self.rows
                image, left, top, wide, tall, across, down = _region(self, r)
                for c in range(self.channels):
                    for column in range(self.columns):
                        total = f32(0.0)
                        # A region of an image on another tile, or of none, gives zeros here.
                        if image >= 0 and image < self.images:
                            plane = (c * self.images + image) * area
                            for i in range(down):
                                v = top + (f32(row) + (f32(i) + 0.5) / f32(down)) * tall
                                # Samples more than a pixel outside the image count 0.
                                if v >= -1.0 and v <= f32(self.height):
                                    v0, v1, fv = _around(v, self.height)
                                    for j in range(across):
                                        u = left + (f32(column) + (f32(j) + 0.5) / f32(across)) * wide
                                        if u >= -1.0 and u <= f32(self.width):
                                            u0, u1, fu = _around(u, self.width)
                                            # Bilinear: between two columns in both rows, then between the rows.
                                            a = (
                                                f32(self.x[plane + v0 * self.width + u0]) * (1.0 - fu)
                                                + f32(self.x[plane + v0 * self.width + u1]) * fu
                                            )
                                            b = (
                                                f32(self.x[plane + v1 * self.width + u0]) * (1.0 - fu)
                                                + f32(self.x[plane + v1 * self.width + u1]) * fu
                                            )
                                            total = total + a * (1.0 - fv) + b * fv
                        mean = dtype(total / f32(max(down * across, 1)))
                        self.y[((r * self.channels + c) * self.rows + row) * self.columns + column] = mean

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            units = -(-np.asarray(v.image, np.int64) * v.rows // ipu.num_workers)
            read = PIXELS * (INDEX + LoopCosts(dtype).load + MULTIPLY) + PIXELS * ADD
            slots = units * (_region_slots() + _channel_slots(v, v.channels, read, LoopCosts(dtype)))
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + slots), np.int64)

    return RoiAlign


@cache
def align_gradient_codelet(dtype: ElementType, kind: ElementType, index: ElementType, workers: int) -> type:
    """Vertex type that adds the regions' gradients to the gradient of the image.

    Fields: ``g`` is [regions, channels, rows, columns], ``y`` [channels, images, height, width] in f32; the others are
    those of :func:`align_codelet`. The workers share the channels.
    """

    @codelet
    class RoiAlignGradient(MultiVertex):
        g: Input[Vector[dtype]]
        boxes: Input[Vector[kind]]
        image: Input[Vector[index]]
        channels: i32
        images: i32
        height: i32
        width: i32
        rows: i32
        columns: i32
        ratio: i32
        scale: f32
        offset: f32
        least: f32
        y: Output[Vector[f32]]

        def compute(self, worker_id):
            area = self.height * self.width
            for c in range(worker_id, self.channels, workers):
                # A worker owns its channels, so it clears and adds to them without a conflict.
                for i in range(self.images * area):
                    self.y[c * self.images * area + i] = 0.0
                for r in range(len(self.image)):
                    for row in range(self.rows):
                        image, left, top, wide, tall, across, down = _region(self, r)
                        if image >= 0 and image < self.images:
                            plane = (c * self.images + image) * area
                            for column in range(self.columns):
                                at = ((r * self.channels + c) * self.rows + row) * self.columns + column
                                # Each sample has an even share of its bin, dealt to its four pixels.
                                share = f32(self.g[at]) / f32(max(down * across, 1))
                                for i in range(down):
                                    v = top + (f32(row) + (f32(i) + 0.5) / f32(down)) * tall
                                    if v >= -1.0 and v <= f32(self.height):
                                        v0, v1, fv = _around(v, self.height)
                                        for j in range(across):
                                            u = left + (f32(column) + (f32(j) + 0.5) / f32(across)) * wide
                                            if u >= -1.0 and u <= f32(self.width):
                                                u0, u1, fu = _around(u, self.width)
                                                _spread(self, plane, v0, u0, share * (1.0 - fv) * (1.0 - fu))
                                                _spread(self, plane, v0, u1, share * (1.0 - fv) * fu)
                                                _spread(self, plane, v1, u0, share * fv * (1.0 - fu))
                                                _spread(self, plane, v1, u1, share * fv * fu)

        @staticmethod
        def cycles(v: Any, ipu: Ipu) -> Int64:
            channels = -(-np.asarray(v.channels, np.int64) // ipu.num_workers)
            cleared = channels * np.asarray(v.images, np.int64) * v.height * v.width * (LOOP + 1)
            write = PIXELS * (INDEX + 2 + MULTIPLY + ADD) + PIXELS * MULTIPLY
            rows = np.asarray(v.image, np.int64) * v.rows
            slots = cleared + rows * channels * (_region_slots() + _channel_slots(v, 1, write, LoopCosts(dtype)))
            return np.asarray(SUPERVISOR_CYCLES + ipu.num_workers * (ENTRY + slots), np.int64)

    return RoiAlignGradient


def _region_slots() -> int:
    """Four corners scaled, and the sizes of bins. Source: the instructions of the codelet, §1.2."""
    return 4 * (INDEX + 1 + MULTIPLY + ADD) + 4 * ADD + 2 * DIVIDE + 2 * COMPARE


def _channel_slots(v: Any, channels: Any, pixels: int, loop: LoopCosts) -> Int64:
    """A row of bins in so many channels. Where regions tell the number of samples, as if each were the whole image."""
    ratio = np.asarray(v.ratio, np.int64)
    down = np.where(ratio > 0, ratio, -(-np.asarray(v.height, np.int64) // v.rows))
    across = np.where(ratio > 0, ratio, -(-np.asarray(v.width, np.int64) // v.columns))
    place = POSITION + 2 * COMPARE + CORNER + LOOP
    each = DIVIDE + INDEX + loop.store + LOOP + down * (place + across * (place + pixels))
    return np.asarray(np.asarray(channels, np.int64) * v.columns * each, np.int64)
