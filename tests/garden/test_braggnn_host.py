"""BraggNN's published rates: figures worked out by hand, for a given device."""

from __future__ import annotations

import numpy as np
import pytest

from abele.garden.braggnn import FrameCrops, PublishedScript, measure_crops, published_rate
from abele.machine import sources, systems
from abele.report import LIVENESS, OPS, STEPS, VARIABLES, Memory, Report


def report_of(batch: int, device_seconds: float) -> Report:
    """A report whose run of ten batches computes for ``device_seconds``."""
    target = systems.gc200().figures()
    cycles = round(device_seconds * float(target["clock_hz"]))
    steps = STEPS.table(name=["train"], kind=["compute"], executions=[1], cycles=[cycles], compute_cycles=[cycles])
    return Report(
        target=target,
        graph={},
        steps=steps,
        ops=OPS.empty(),
        memory=Memory.of(int(target["num_tiles"]), 1000),
        variables=VARIABLES.empty(),
        liveness=LIVENESS.empty(),
        meta={"samples_per_run": 10 * batch},
    )


@pytest.mark.parametrize(("batch", "batches", "rounds"), [(512, 10, 2), (1024, 5, 1), (2048, 2, 1)])
def test_published_rate__quick_device__is_the_loaders_rounds(batch: int, batches: int, rounds: int) -> None:
    script = PublishedScript()
    rate = published_rate(report_of(batch, 1e-9), batch, 246.0, script)
    limits = rate.report.limits
    assert limits is not None
    assert limits.loading is not None
    assert limits.loading.batches_per_epoch == batches
    making = rounds * 10 * batch * script.crop_seconds
    assert limits.epoch is not None
    assert making < limits.epoch.total < making + 0.04
    assert limits.name == "loader"
    assert rate.low < limits.samples_per_second < rate.high


def test_published_rate__slow_device__is_the_devices() -> None:
    rate = published_rate(report_of(512, 1.0), 512, 246.0, PublishedScript())
    limits = rate.report.limits
    assert limits is not None
    assert limits.name == "device"
    # Nine of ten batches are made while the device works.
    assert limits.samples_per_second == pytest.approx(5120, rel=0.01)
    # A pass forward over 27 batches of 512, a third of a tenth of a second each, comes on top.
    assert rate.low == pytest.approx(51_200 / (51_200 / rate.high + 27 / 30), rel=0.02)


def test_published_script__constants__have_sources() -> None:
    found = {item.path: item.source for item in sources(PublishedScript())}
    assert len(found) == 7
    assert found["crop_seconds"].confidence == "M"
    assert all(source.text and source.confidence != "U" for source in found.values())


def test_frame_crops__a_sample__is_the_patch_around_its_peak() -> None:
    crops = FrameCrops(20, num_frames=2, pixels=64)
    patch, centre = crops[7]
    frame, (row, column) = crops.frames[crops.frame_of[7]], crops.centres[7]
    assert (patch.shape, patch.dtype, centre.dtype) == ((1, 11, 11), np.float16, np.float16)
    np.testing.assert_array_equal(patch[0, 5, 5], frame[int(row), int(column)].astype(np.float16))
    np.testing.assert_allclose(centre, [5 + row % 1, 5 + column % 1], atol=4e-3)


def test_measure_crops__few_batches__are_timed_in_a_worker() -> None:
    assert 1e-7 < measure_crops(batch=64, batches=2) < 1e-2
