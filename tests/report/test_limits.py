"""The three limits of a rate, by hand, in text, JSON and files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from abele.errors import FileFormatError, InvalidOptionError
from abele.machine import hosts
from abele.report import Loading, Report, epoch

CLOCK_HZ = 1.85e9
DEVICE = 64 / (1200 / CLOCK_HZ)
LINK = 64 / (200 / CLOCK_HZ)
"""The toy report takes 1,400 cycles for 64 images, of which 200 are streams."""


def loading(**changes: Any) -> Loading:
    fields: dict[str, Any] = {
        "samples_per_batch": 64,
        "batches_per_epoch": 100,
        "sample_seconds": 1e-4,
        "sample_bytes": 16.0,
        "tensors_per_batch": 2,
        "num_workers": 4,
        "host": hosts.get("epyc-7742"),
    }
    return Loading(**{**fields, **changes})


def test_limits__nobody_said_how_data_is_loaded__leave_the_loader_out(report: Report) -> None:
    limits = report.limits
    assert limits is not None
    assert limits.device == pytest.approx(DEVICE)
    assert limits.link == pytest.approx(LINK)
    assert (limits.loader, limits.epoch, limits.name) == (None, None, "device")
    assert limits.samples_per_second == report.samples_per_second
    line = "limited by    the device: device 98,666,667 · link 592,000,000 images/s · loader not known"
    assert line in report.summary()


def test_limits__slow_samples__name_the_loader(report: Report) -> None:
    told = report.with_loading(loading())
    limits = told.limits
    assert limits is not None
    assert limits.name == "loader"
    assert limits.loader is not None
    # Four workers hear of the epoch, 25 rounds of 64 samples of 0.1 ms with 0.5 ms for each batch, and what the caller
    # does with the last four batches: takes two tensors of each, and calls the program with 1,024 bytes.
    seconds = 4 * 0.5e-3 + 25 * (64e-4 + 0.5e-3) + 4 * (2 * 0.5e-3 + 0.5e-3 + 1024 / 8e9)
    assert limits.loader == pytest.approx(6400 / seconds)
    assert limits.samples_per_second == pytest.approx(6400 / epoch(loading(), told.seconds(1400)).total)
    assert limits.samples_per_second <= min(limits.loader, limits.device, LINK)
    assert "the loader: device 98,666,667 · link 592,000,000 · loader 35,457" in told.summary()
    assert "4 workers on epyc-7742: 100 batches of 64 samples an epoch, 100 µs for each sample" in told.summary()


def test_limits__no_host_costs__are_the_devices(report: Report) -> None:
    names = [f"worker_{n}_seconds" for n in ("start", "resume", "batch")]
    free = hosts.get("epyc-7742").evolve(
        run_call_seconds=0, tensor_transfer_seconds=0, copy_bytes_per_second=1e18, **dict.fromkeys(names, 0)
    )
    limits = report.with_loading(loading(sample_seconds=0, num_workers=0, host=free)).limits
    assert limits is not None
    assert limits.name == "device"
    assert limits.samples_per_second == pytest.approx(report.samples_per_second)


def test_limits__samples_not_known__are_none(report: Report) -> None:
    meta = {key: value for key, value in report.meta.items() if key != "samples_per_run"}
    unknown = replace(report, meta=meta)
    assert unknown.limits is None
    assert "limited by" not in unknown.summary()
    assert unknown.to_json()["limits"] is None


def test_with_loading__other_batches_than_a_run_takes__are_refused(report: Report) -> None:
    with pytest.raises(InvalidOptionError, match="a batch has 32 samples, a run takes 64\n  try "):
        report.with_loading(loading(samples_per_batch=32))


def test_limits__saved_and_loaded__are_the_same_with_their_sources(report: Report, tmp_path: Path) -> None:
    told = report.with_loading(loading())
    told.save(tmp_path / "r")
    back = Report.load(tmp_path / "r")
    assert back.limits == told.limits
    data = json.loads(json.dumps(back.to_json()["limits"]))
    assert data["limit"] == "loader"
    assert sum(data["epoch_seconds"][part] for part in ("starting", "waiting", "taking", "calling", "device")) == (
        pytest.approx(data["epoch_seconds"]["total"])
    )
    found = {row["path"]: row for row in data["constants"]}
    assert found["loading.host.num_cores"]["source"] == {
        "text": "2 x 64 cores; two EPYC 7742 a host (ML20)",
        "confidence": "D",
        "calibrated_on": [],
    }
    assert found["loading.host.run_call_seconds"]["unit"] == "s"


@pytest.mark.parametrize(
    "damage",
    [
        {"num_workers": 10**9},
        {"samples_per_batch": 0},
        {"sample_seconds": 1e300},
        {"sample_seconds": "soon"},
        {"host": 3},
        {"host": {"name": "x"}},
        {"cited": {"sample_seconds": "nobody"}},
        {"more": 1},
    ],
)
def test_load__damaged_loading__is_refused(report: Report, tmp_path: Path, damage: dict[str, Any]) -> None:
    told = report.with_loading(loading())
    meta = {**told.meta, "loading": {**told.meta["loading"], **damage}}
    replace(told, meta=meta).save(tmp_path / "r")
    with pytest.raises(FileFormatError):
        Report.load(tmp_path / "r")
