"""One field dimension of a contraction: the input that meets each kernel position at each output.

All three indices stand in one linear relation, ``in_step·i = out_step·o + kernel_step·k + offset``. A convolution, its
input gradient and its weight gradient have the same relation with the three roles exchanged, so one class serves all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64


class ResidueClass(NamedTuple):
    """Outputs and kernel positions of one residue class, over which the input index is affine.

    Output ``out_start + out_step·q`` for q below ``num_outputs`` meets kernel position ``kernel_start + kernel_step·r``
    for r below ``num_kernel`` at input ``in_start + in_per_output·q + in_per_kernel·r`` (which may lie outside).
    """

    out_start: int
    out_step: int
    num_outputs: int
    kernel_start: int
    kernel_step: int
    num_kernel: int
    in_start: int
    in_per_output: int
    in_per_kernel: int


@dataclass(frozen=True)
class Axis:
    """A field dimension: extents of the three indices, and the relation between them.

    Attributes:
        inputs: Extent of the input index i.
        outputs: Extent of the output index o.
        kernel: Extent of the kernel index k.
        in_step: Factor of i, positive; above 1 where the input is dilated.
        out_step: Factor of o: the stride.
        kernel_step: Factor of k: the kernel's dilation, negative where the kernel is flipped.
        offset: Constant of the relation: minus the lower padding.
    """

    inputs: int
    outputs: int
    kernel: int
    in_step: int = 1
    out_step: int = 1
    kernel_step: int = 1
    offset: int = 0

    def input_gradient(self) -> Axis:
        """The axis on which gradients of the outputs become gradients of the inputs."""
        return _signed(
            self.outputs,
            self.inputs,
            self.kernel,
            in_step=self.out_step,
            out_step=self.in_step,
            kernel_step=-self.kernel_step,
            offset=-self.offset,
        )

    def kernel_gradient(self) -> Axis:
        """The axis on which inputs, with output gradients as the kernel, become gradients of the kernel."""
        return Axis(
            inputs=self.inputs,
            outputs=self.kernel,
            kernel=self.outputs,
            in_step=self.in_step,
            out_step=self.kernel_step,
            kernel_step=self.out_step,
            offset=self.offset,
        )

    def kernel_gradient_swapped(self) -> Axis:
        """The axis on which output gradients, with inputs as the kernel, become gradients of the kernel."""
        return _signed(
            self.outputs,
            self.kernel,
            self.inputs,
            in_step=self.out_step,
            out_step=-self.kernel_step,
            kernel_step=self.in_step,
            offset=-self.offset,
        )

    def swapped(self) -> Axis:
        """The axis with inputs and kernel exchanged: the kernel's positions slide past the inputs."""
        return _signed(
            self.kernel,
            self.outputs,
            self.inputs,
            in_step=self.kernel_step,
            out_step=-self.out_step,
            kernel_step=self.in_step,
            offset=-self.offset,
        )

    @property
    def is_pointwise(self) -> bool:
        """True if every output reads just the input of the same index."""
        relation = (self.kernel, self.in_step, self.out_step, self.offset)
        return relation == (1, 1, 1, 0) and self.inputs == self.outputs

    def input_range(
        self, out_start: Int64, out_size: Int64, kernel_start: Int64, kernel_size: Int64
    ) -> tuple[Int64, Int64]:
        """First input and number of inputs that boxes of outputs and kernel positions reach, clipped to what exists.

        A box that reaches none gets one input all the same, so that every vertex has something to be wired to.
        """
        # The relation is linear, so over a box the extremes are at its corners.
        corners = [
            self.out_step * o + self.kernel_step * k + self.offset
            for o in (out_start, out_start + out_size - 1)
            for k in (kernel_start, kernel_start + kernel_size - 1)
        ]
        # Inside, rounded to inputs that exist: up from below, down from above.
        low = -(-np.minimum.reduce(corners) // self.in_step)
        high = np.maximum.reduce(corners) // self.in_step + 1
        start = np.clip(low, 0, self.inputs - 1)
        return start, np.maximum(np.minimum(high, self.inputs) - start, 1)

    def meets(self) -> npt.NDArray[np.bool_]:
        """True where an output meets an input at a kernel position, bool[outputs, kernel]."""
        return _meets(self)

    def count_pairs(self, out_cuts: Int64, kernel_cuts: Int64) -> Int64:
        """Pairs (o, k) that meet an input in every box of a grid, int64[out boxes, kernel boxes].

        Args:
            out_cuts: First output of each box, and the end.
            kernel_cuts: First kernel position of each box, and the end.
        """
        # Sums over a box are differences of the running sums at its corners, so a grid of any size costs one look-up
        # per corner.
        corners = _sums(self)[np.ix_(out_cuts, kernel_cuts)]
        return np.diff(np.diff(corners, axis=0), axis=1)

    def phases(self) -> Iterator[ResidueClass]:
        """The residue classes in which outputs and kernel positions meet inputs.

        Together they hold every pair (o, k) for which the relation has an integer i, each once.
        """
        # Steps of o by this period move the position by a multiple of `in_step`: the residue, and so whether there is
        # an input, stays the same within a class.
        out_period = self.in_step // gcd(self.in_step, self.out_step)
        kernel_period = self.in_step // gcd(self.in_step, self.kernel_step)
        for o in range(min(out_period, self.outputs)):
            for k in range(min(kernel_period, self.kernel)):
                position = self.out_step * o + self.kernel_step * k + self.offset
                if position % self.in_step:
                    continue
                yield ResidueClass(
                    out_start=o,
                    out_step=out_period,
                    num_outputs=-(-(self.outputs - o) // out_period),
                    kernel_start=k,
                    kernel_step=kernel_period,
                    num_kernel=-(-(self.kernel - k) // kernel_period),
                    in_start=position // self.in_step,
                    in_per_output=self.out_step * out_period // self.in_step,
                    in_per_kernel=self.kernel_step * kernel_period // self.in_step,
                )

    def __str__(self) -> str:
        left = "i" if self.in_step == 1 else f"{self.in_step}i"
        return (
            f"{left} = {self.out_step}o {self.kernel_step:+d}k {self.offset:+d}"
            f" (i<{self.inputs}, o<{self.outputs}, k<{self.kernel})"
        )


def _signed(inputs: int, outputs: int, kernel: int, in_step: int, out_step: int, kernel_step: int, offset: int) -> Axis:
    """The axis with the signs chosen so that the factor of the input index is positive."""
    sign = 1 if in_step > 0 else -1
    return Axis(
        inputs=inputs,
        outputs=outputs,
        kernel=kernel,
        in_step=sign * in_step,
        out_step=sign * out_step,
        kernel_step=sign * kernel_step,
        offset=sign * offset,
    )


@lru_cache(maxsize=256)
def _meets(axis: Axis) -> npt.NDArray[np.bool_]:
    out = np.arange(axis.outputs, dtype=np.int64)[:, None]
    kernel = np.arange(axis.kernel, dtype=np.int64)[None, :]
    position = axis.out_step * out + axis.kernel_step * kernel + axis.offset
    inside = (position >= 0) & (position < axis.in_step * axis.inputs)
    return np.asarray(inside & (position % axis.in_step == 0))


@lru_cache(maxsize=256)
def _sums(axis: Axis) -> Int64:
    """Pairs that meet among the first outputs and kernel positions, int64[outputs + 1, kernel + 1]."""
    sums = np.zeros((axis.outputs + 1, axis.kernel + 1), dtype=np.int64)
    sums[1:, 1:] = axis.meets().cumsum(axis=0).cumsum(axis=1)
    return sums
