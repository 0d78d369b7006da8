"""Images at other sizes: the matrix by which a dimension is multiplied, from its extents and the mode.

Two elements that become four with ``half_pixel`` are at the places -0.25, 0.25, 0.75 and 1.25 of the operand; linear
weights of the second row of the matrix are then 0.75 and 0.25. :func:`~abele.network.ops.resample.resample` multiplies.
"""

from __future__ import annotations

import numpy as np

from abele.arrays import Array

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "half_pixel_but_single",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)


class Resizing:
    """Places of a result in the operand, and the weights of the operand's elements at each.

    Args:
        mode: One of :data:`MODES`; ``bilinear`` is ``linear``.
        coordinates: One of :data:`COORDINATES`; ``half_pixel_but_single`` takes the first element for a single result.
        nearest: ``floor``, ``ceil``, ``round_prefer_ceil`` or ``round_prefer_floor``.
        antialias: Stretch the kernel where the result is smaller.
        slope: Of the cubic kernel at a distance of 1.
        excludes: Leave out elements beyond the ends.
    """

    def __init__(
        self,
        mode: str,
        coordinates: str,
        nearest: str,
        *,
        antialias: bool = False,
        slope: float = -0.75,
        excludes: bool = False,
    ) -> None:
        mode = {"bilinear": "linear"}.get(mode, mode)
        self.mode, self.coordinates, self.nearest = mode, coordinates, nearest
        self.antialias, self.slope, self.excludes = antialias, slope, excludes

    def places(self, inputs: int, outputs: int, scale: float, region: tuple[float, float]) -> Array:
        """Place in the operand of each output, in elements."""
        at = np.arange(outputs, dtype=np.float64)
        match self.coordinates:
            case "half_pixel":
                return (at + 0.5) / scale - 0.5
            case "half_pixel_symmetric":
                adjusted = outputs / (scale * inputs)
                centre = inputs / 2
                return centre * (1 - adjusted) + (at + 0.5) / scale - 0.5
            case "half_pixel_but_single":
                return (at + 0.5) / scale - 0.5 if outputs > 1 else np.zeros(outputs)
            case "align_corners":
                # The length that was asked for counts, which need not be whole.
                length = inputs * scale
                return at * (inputs - 1) / (length - 1) if length > 1 and outputs > 1 else np.zeros(outputs)
            case "tf_crop_and_resize":
                begin, end = region
                if outputs > 1:
                    return begin * (inputs - 1) + at * (end - begin) * (inputs - 1) / (outputs - 1)
                return np.full(outputs, 0.5 * (begin + end) * (inputs - 1))
        return at / scale

    def beyond(self, inputs: int, outputs: int, region: tuple[float, float]) -> Array:
        """True for outputs whose place is outside of the operand."""
        at = self.places(inputs, outputs, 1.0, region)
        return np.asarray((at < 0) | (at > inputs - 1))

    def matrix(self, inputs: int, outputs: int, scale: float, region: tuple[float, float] = (0.0, 1.0)) -> Array:
        """Weight of each element of the operand in each output, [outputs, inputs]."""
        at = self.places(inputs, outputs, scale, region)
        if self.mode == "nearest":
            chosen = np.clip(self._rounded(at), 0, inputs - 1).astype(int)
            made = np.zeros((outputs, inputs))
            made[np.arange(outputs), chosen] = 1.0
            return made
        stretch = min(scale, 1.0) if self.antialias else 1.0
        reach = (1 if self.mode == "linear" else 2) / stretch
        first, last = int(np.floor(at.min() - reach)), int(np.ceil(at.max() + reach))
        numbers = np.arange(first, last + 1)
        distance = (numbers[None, :] - at[:, None]) * stretch
        weights = self._linear(distance) if self.mode == "linear" else self._cubic(distance)
        inside = (numbers >= 0) & (numbers < inputs)
        if self.excludes:
            weights = weights * inside
        total = weights.sum(axis=1, keepdims=True)
        if self.excludes or self.antialias:
            weights = weights / np.where(total == 0, 1.0, total)
        made = np.zeros((outputs, inputs))
        # What lies beyond an end counts for the element there.
        for column, number in enumerate(np.clip(numbers, 0, inputs - 1)):
            made[:, number] += weights[:, column]
        return made

    def _rounded(self, at: Array) -> Array:
        match self.nearest:
            case "floor":
                return np.floor(at)
            case "ceil":
                return np.ceil(at)
            case "round_prefer_ceil":
                return np.floor(at + 0.5)
        return np.ceil(at - 0.5)

    @staticmethod
    def _linear(distance: Array) -> Array:
        return np.asarray(np.maximum(1 - np.abs(distance), 0))

    def _cubic(self, distance: Array) -> Array:
        """Keys's kernel with a slope of its own at a distance of 1."""
        d, a = np.abs(distance), self.slope
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
        return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0.0)))


__all__ = ["COORDINATES", "MODES", "Resizing"]
