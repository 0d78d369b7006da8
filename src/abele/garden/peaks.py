"""Simulated X-ray diffraction peaks: 11 x 11 patches with a known centre.

These are not measurements. Each patch is a two-dimensional pseudo-Voigt peak on a flat background with Poisson noise,
as an area detector would count it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.arrays import Float32, Float64

PATCH_PIXELS = 11


@dataclass(frozen=True, kw_only=True)
class PeakModel:
    """Distribution of the simulated peaks.

    Attributes:
        fwhm_pixels: Median full width at half maximum along either axis of a peak.
        fwhm_spread: Standard deviation of its logarithm.
        max_mixing: Largest Lorentzian part; the mixing is uniform from 0.
        amplitude_counts: Median height.
        amplitude_spread: Standard deviation of its logarithm.
        max_offset_pixels: Largest distance of the centre from the patch's middle, along each axis.
        background_counts: Mean count under the peak.
        threshold_counts: Counts below this are set to zero.
    """

    fwhm_pixels: float = 2.2
    fwhm_spread: float = 0.2
    max_mixing: float = 0.5
    amplitude_counts: float = 1500.0
    amplitude_spread: float = 0.5
    max_offset_pixels: float = 1.5
    background_counts: float = 20.0
    threshold_counts: float = 60.0


def simulate(num_peaks: int, seed: int, model: PeakModel | None = None) -> tuple[Float32, Float32]:
    """Patches with one peak each, and where the peaks are.

    Args:
        num_peaks: Number of peaks.
        seed: The same seed gives the same peaks.
        model: Distribution to draw from.

    Returns:
        Patches f32[num_peaks, 1, 11, 11] scaled to 0…1, and centres f32[num_peaks, 2] as row and column / 11.
    """
    model = model or PeakModel()
    rng = np.random.default_rng(seed)
    centres = PATCH_PIXELS // 2 + rng.uniform(-model.max_offset_pixels, model.max_offset_pixels, (num_peaks, 2))
    counts = rng.poisson(_intensity(centres, rng, model) + model.background_counts)
    counts[counts < model.threshold_counts] = 0
    return _scaled(counts)[:, None], (centres / PATCH_PIXELS).astype(np.float32)


def _intensity(centres: Float64, rng: np.random.Generator, model: PeakModel) -> Float64:
    num_peaks = len(centres)
    fwhm = rng.lognormal(np.log(model.fwhm_pixels), model.fwhm_spread, (2, num_peaks, 1, 1))
    mixing = rng.uniform(0.0, model.max_mixing, (num_peaks, 1, 1))
    angle = rng.uniform(0.0, np.pi, (num_peaks, 1, 1))
    amplitude = rng.lognormal(np.log(model.amplitude_counts), model.amplitude_spread, (num_peaks, 1, 1))
    distance = _squared_distance(centres, angle, fwhm)
    return amplitude * pseudo_voigt(distance, mixing)


def _squared_distance(centres: Float64, angle: Float64, fwhm: Float64) -> Float64:
    pixels = np.arange(PATCH_PIXELS, dtype=np.float64)
    rows = pixels[None, :, None] - centres[:, 0, None, None]
    columns = pixels[None, None, :] - centres[:, 1, None, None]
    along = np.cos(angle) * columns + np.sin(angle) * rows
    across = np.cos(angle) * rows - np.sin(angle) * columns
    squared: Float64 = (along / fwhm[0]) ** 2 + (across / fwhm[1]) ** 2
    return squared


def pseudo_voigt(squared_distance: Float64, mixing: Float64) -> Float64:
    """Height of a peak of height 1 at a squared distance from its centre, in units of its width at half maximum."""
    gauss = np.exp(-4.0 * np.log(2.0) * squared_distance)
    lorentz = 1.0 / (1.0 + 4.0 * squared_distance)
    height: Float64 = mixing * lorentz + (1.0 - mixing) * gauss
    return height


def _scaled(counts: npt.NDArray[np.int64]) -> Float32:
    low = counts.min(axis=(1, 2), keepdims=True)
    spread = np.maximum(counts.max(axis=(1, 2), keepdims=True) - low, 1)
    scaled: Float32 = ((counts - low) / spread).astype(np.float32)
    return scaled


def position_errors(predicted: Float32, actual: Float32) -> Float64:
    """Distance between predicted and actual centres in pixels, float64[n]."""
    difference = (predicted.astype(np.float64) - actual.astype(np.float64)) * PATCH_PIXELS
    distance: Float64 = np.hypot(difference[:, 0], difference[:, 1])
    return distance
