"""Scenes: labels that follow from the digits, separate parts of the photographs, and the measure."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("sklearn", reason="needs scikit-learn")
pytest.importorskip("PIL", reason="needs Pillow")

from abele.garden import segmentation
from abele.garden.segmentation import (
    SIDE,
    Scenes,
    SegmentationNetwork,
    best_threshold,
    classes,
    intersection_over_union,
)

pytestmark = pytest.mark.torch


def test_scenes__black_picture__are_ink_where_the_label_says() -> None:
    digits = np.random.default_rng(0).integers(0, 17, (20, 8, 8)).astype(np.float64)
    scenes = Scenes.drawn(digits, np.arange(20) % 10, [np.zeros((40, 50, 3))], count=5, seed=1)
    assert scenes.images.shape == (5, 3, SIDE, SIDE)
    assert np.array_equal(scenes.images[:, 0] >= 0.5, scenes.labels > 0)
    for scene in scenes.labels:  # one digit in each quarter, none across two of them
        assert all(len(set(quarter[quarter > 0])) == 1 for quarter in (scene[:16, :16], scene[16:, 16:]))


def test_scenes__same_seed__are_the_same() -> None:
    pictures = [np.random.default_rng(0).random((40, 50, 3))]
    first, second, other = (
        Scenes.drawn(np.full((3, 8, 8), 16.0), np.arange(3), pictures, count=4, seed=seed) for seed in (1, 1, 2)
    )
    assert np.array_equal(first.images, second.images)
    assert not np.array_equal(first.images, other.images)


def test_load_data__held_out_scenes__show_other_parts_and_other_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[np.ndarray, list[np.ndarray]]] = []

    def keep(digits: np.ndarray, labels: np.ndarray, pictures: list[np.ndarray], count: int, seed: int) -> None:
        seen.append((digits, pictures))

    monkeypatch.setattr(Scenes, "drawn", keep)
    segmentation.load_data(0)
    (train, left), (held_out, right) = seen
    assert (len(train), len(held_out)) == (1437, 360)
    assert [a.shape[1] + b.shape[1] for a, b in zip(left, right, strict=True)] == [640, 640]


def test_intersection_over_union__pixels__are_counted() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert intersection_over_union(a, b) == pytest.approx(1 / 3)
    assert intersection_over_union(a, a) == 1.0
    assert intersection_over_union(~a & a, a & ~a) == 1.0


def test_best_threshold__bright_ink_on_dark__is_found() -> None:
    ink = np.random.default_rng(0).random((3, 8, 8)) > 0.7
    images = np.repeat(np.where(ink, 0.8, 0.3)[:, None], 3, axis=1).astype(np.float32)
    level = best_threshold(Scenes(images, ink.astype(np.int64)))
    assert 0.3 < level <= 0.8


def test_classes__ink_split_over_digits__is_ink_all_the_same() -> None:
    odds = torch.tensor([[0.4, 0.35, 0.25], [0.6, 0.3, 0.1]]).T.reshape(1, 3, 1, 2)
    assert classes(odds.log()).tolist() == [[[1, 0]]]


def test_segmentation_network__images__get_scores_of_each_pixel() -> None:
    assert SegmentationNetwork(width=4)(torch.rand(2, 3, SIDE, SIDE)).shape == (2, 11, SIDE, SIDE)
