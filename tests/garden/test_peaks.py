"""Simulated peaks: reproducible, scaled, and centred where the labels say."""

from __future__ import annotations

import numpy as np
import pytest

from abele.garden.braggnn import PATCH_PIXELS, PeakModel, position_errors, pseudo_voigt, simulate


def test_simulate__same_seed__same_peaks() -> None:
    first, second, other = (simulate(16, seed) for seed in (1, 1, 2))
    assert np.array_equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])
    assert not np.array_equal(first[0], other[0])


def test_simulate__any__is_scaled_and_shaped() -> None:
    patches, centres = simulate(256, 0)
    assert patches.shape == (256, 1, PATCH_PIXELS, PATCH_PIXELS)
    assert patches.dtype == centres.dtype == np.float32
    assert np.all(patches.min(axis=(1, 2, 3)) == 0.0)
    assert np.all(patches.max(axis=(1, 2, 3)) == 1.0)


def test_simulate__centre_of_mass__lies_at_the_label() -> None:
    patches, centres = simulate(2000, 3)
    mass = patches[:, 0] / patches[:, 0].sum(axis=(1, 2), keepdims=True)
    pixels = np.arange(PATCH_PIXELS)
    found = np.stack([(mass.sum(axis=2) * pixels).sum(axis=1), (mass.sum(axis=1) * pixels).sum(axis=1)], axis=1)
    assert np.median(position_errors((found / PATCH_PIXELS).astype(np.float32), centres)) < 0.15


def test_pseudo_voigt__half_a_width_away__is_half_as_high() -> None:
    for mixing in (0.0, 0.3, 1.0):
        assert pseudo_voigt(np.array(0.25), np.array(mixing)) == pytest.approx(0.5)
        assert pseudo_voigt(np.array(0.0), np.array(mixing)) == pytest.approx(1.0)


def test_threshold__faint_peaks__leave_empty_patches_without_dividing_by_zero() -> None:
    patches, _ = simulate(4, 0, PeakModel(amplitude_counts=1.0, amplitude_spread=0.0))
    assert np.all(patches == 0.0)


def test_position_errors__one_pixel_each_way__is_root_two() -> None:
    actual = np.full((1, 2), 0.5, np.float32)
    assert position_errors(actual + np.float32(1 / PATCH_PIXELS), actual)[0] == pytest.approx(np.sqrt(2), rel=1e-5)
