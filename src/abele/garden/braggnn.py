"""BraggNN: the sub-pixel centre of simulated X-ray diffraction peaks.

The peaks are simulated on the fly (:mod:`abele.garden.braggnn`), the training is real. Beside it stands what the same
training would do on a GC200 in f16, fed by a host as the published script was, next to published measurements.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from torch import Tensor, nn, optim
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from abele import poptorch
from abele.arrays import Float32, Float64
from abele.garden.networks import BraggNetwork as Network
from abele.garden.training import DemoResult, DemoSettings, Stopwatch, Training, options, progress_bar, weights_digest
from abele.machine import hosts, systems
from abele.machine.source import cite, constant, guessed, measured, stated
from abele.machine.spec import Spec
from abele.report import LIMITS, Epoch, Loading, Report, epoch

# Simulated X-ray diffraction peaks: 11 x 11 patches with a known centre.
#
# These are not measurements. Each patch is a two-dimensional pseudo-Voigt peak on a flat background with Poisson
# noise, as an area detector would count it.

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


# Host of BraggNN's published rates: eight loader workers, and few large batches per epoch.
#
# The published figures are a whole script's: samples trained on per second of wall time. What is known of the script:
# eight workers of PyTorch's loader crop each patch out of a frame in Python, and ten device iterations per call make
# batches of ten times the batch size, so that an epoch has 10, 5 or 2 of them. Scaling and augmentation had been moved
# to the device (GC-ANL), so that a sample costs a worker a crop and its part of joining a batch. That was measured
# here, with :class:`FrameCrops`; nothing is fitted to the published rates.


@dataclass(frozen=True, kw_only=True)
class PublishedScript(Spec):
    """The script whose wall time was published, as far as its rate depends on it.

    Attributes:
        num_workers: Loader workers.
        device_iterations: Weight updates of one call.
        training_samples: Samples of an epoch, before those that make no whole batch are left out.
        validation_samples: Samples of one pass of validation.
        crop_seconds: Time that one sample costs a worker.
        crop_uncertainty: Factor within which that is.
        forward_proportion: Part of a weight update's time that a pass forward takes.
    """

    num_workers: int = constant(stated(8, "the script's loader"))
    device_iterations: int = constant(stated(10, "the script's options"))
    training_samples: int = constant(
        guessed(55_477, "four fifths of 69,347 peaks; any from 51,200 to 56,319 makes 10, 5 and 2 batches")
    )
    validation_samples: int = constant(guessed(13_870, "the last fifth of 69,347 peaks"), minimum=0)
    crop_seconds: float = constant(
        measured(
            10e-6,
            "FrameCrops: processor time of a worker of PyTorch 2.13's loader, batches of 5,120, on an AMD EPYC of "
            "family 25 (Zen 4); 9.6 at best, medians of 10.1 to 10.7 us",
        )
    )
    crop_uncertainty: float = constant(
        guessed(1.5, "the published host is not named; as much lies between Zen 2 and Zen 4")
    )
    forward_proportion: float = constant(guessed(1 / 3, "one of three products of each layer"))

    def loading(self, batch: int, sample_bytes: float) -> Loading:
        """Loading of an epoch of training for a batch size."""
        samples = batch * self.device_iterations
        return cite(
            Loading,
            samples_per_batch=samples,
            batches_per_epoch=self.training_samples // samples,
            sample_seconds=measured(self.crop_seconds, self.source_of("crop_seconds").text),
            sample_bytes=sample_bytes,
            tensors_per_batch=2,
            num_workers=self.num_workers,
            host=hosts.get(hosts.DEFAULT),
            measured_on="AMD EPYC, znver4",
        )

    def validation(self, loading: Loading, batch: int) -> Loading:
        """Loading of a pass of validation, one batch per call."""
        return loading.evolve(samples_per_batch=batch, batches_per_epoch=max(self.validation_samples // batch, 1))


@dataclass(frozen=True)
class PublishedRate:
    """Modelled range of one published rate, in samples per second.

    Attributes:
        report: The report with its loading.
        low: With samples that cost as much as they may, and a pass of validation after each epoch.
        high: With samples that cost as little as they may.
    """

    report: Report
    low: float
    high: float


def published_rate(report: Report, batch: int, sample_bytes: float, script: PublishedScript) -> PublishedRate:
    """Rate of a script for the program of a report with ``device_iterations`` batches."""
    report = report.with_loading(script.loading(batch, sample_bytes))
    loading, device = report.loading, report.seconds(report.total_cycles)
    assert loading is not None
    slow, quick = (loading.evolve(sample_seconds=script.crop_seconds * factor) for factor in _around(script))
    checked = epoch(script.validation(slow, batch), device / script.device_iterations * script.forward_proportion)
    rates = (_rate(loading, epoch(slow, device) + checked), _rate(loading, epoch(quick, device)))
    return PublishedRate(report, *rates)


def _around(script: PublishedScript) -> tuple[float, float]:
    return script.crop_uncertainty, 1 / script.crop_uncertainty


def _rate(loading: Loading, passed: Epoch) -> float:
    return loading.samples_per_epoch / passed.total


class FrameCrops(Dataset[Any]):
    """Patches cropped out of frames as they are asked for, which a published script does in Python.

    Args:
        num_samples: Peaks.
        num_frames: Frames of ``pixels`` x ``pixels`` counts that they lie in.
        pixels: Rows and columns of a frame.
    """

    def __init__(self, num_samples: int, num_frames: int = 64, pixels: int = 1024) -> None:
        rng = np.random.default_rng(0)
        self.frames = rng.integers(0, 4096, (num_frames, pixels, pixels), dtype=np.uint16)
        self.frame_of = rng.integers(0, num_frames, num_samples)
        margin = PATCH_PIXELS
        self.centres = rng.uniform(margin, pixels - margin, (num_samples, 2)).astype(np.float32)

    def __len__(self) -> int:
        return len(self.centres)

    def __getitem__(self, number: int) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.float16]]:
        frame, centre = self.frames[self.frame_of[number]], self.centres[number]
        row, column = int(centre[0]) - PATCH_PIXELS // 2, int(centre[1]) - PATCH_PIXELS // 2
        patch = frame[row : row + PATCH_PIXELS, column : column + PATCH_PIXELS].astype(np.float16)
        return patch[None], np.array([centre[0] - row, centre[1] - column], np.float16)


class _WorkerClock:
    """Joins samples, and adds the processor time that the process has had so far."""

    def __call__(self, samples: list[Any]) -> tuple[Any, float]:
        return default_collate(samples), time.process_time()


def measure_crops(batch: int = 5120, batches: int = 8) -> float:
    """Seconds of processor time that a sample costs a worker of PyTorch's loader on this host, best of some batches.

    Args:
        batch: Samples of a batch.
        batches: Batches that are measured; one more is made before.
    """
    crops = FrameCrops(batch * (batches + 1))
    loader = DataLoader(crops, batch, shuffle=True, num_workers=1, collate_fn=_WorkerClock())
    ends: list[float] = [end for _, end in loader]
    return min(after - before for before, after in pairwise(ends)) / batch


BATCH = 512
DEVICE_ITERATIONS = 8
NUM_TRAINING = 40 * BATCH
NUM_TEST = 8 * BATCH
EPOCHS = 16
LEARNING_RATE = 3e-4
SCRIPT = PublishedScript()
SAMPLE_BYTES = 2.0 * (PATCH_PIXELS**2 + 2)
"""A patch and its centre in f16."""

MEASURED_SAMPLES_PER_SECOND = {512: 478_000.0, 1024: 350_600.0, 2048: 219_900.0}
"""Training throughput on a GC200 in f16 by batch size, by the wall time of a script; replicas were not published.

Source: Argonne's SC22 comparison of AI accelerators, table II.
"""

COMPARISON_NOTE = (
    "measured: a whole script's training, by wall time, on one GC200 in f16, fed by eight loader workers that make "
    "batches of ten times the batch size, so that an epoch has 10, 5 and 2 of them; replicas, accumulation, the host "
    "and passes of validation were not published. modelled: the device (1.33 GHz; weights, activations and Adam state "
    "in f16, one micro-batch an update), the link, the loader (a crop of 10 us a sample, measured on a Zen 4 core; "
    "scaling and augmentation on the device), and all together. range: from samples that cost 1.5 times as much, with "
    "a pass of validation after each epoch, to samples that cost 1.5 times less"
)


class BraggNNWithLoss(nn.Module):
    """A network with its loss: PopTorch runs forward, backward and update in one call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, centres: Tensor) -> tuple[Tensor, Tensor]:
        """Predicted centres, and the loss."""
        output = self.model(x)
        return output, F.mse_loss(output, centres)


def load_data(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Simulated peaks to train on, and others held out."""
    sets = (simulate(count, seed=2 * seed + part) for part, count in enumerate((NUM_TRAINING, NUM_TEST)))
    train, test = (TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for x, y in sets)
    return train, test


def training_options(settings: DemoSettings) -> poptorch.Options:
    """Options of training: so many weight updates per call."""
    return options(settings).deviceIterations(DEVICE_ITERATIONS)


def run(settings: DemoSettings, console: Console) -> DemoResult:
    """Simulate, train, validate, and report; progress goes to ``console``."""
    watch = Stopwatch()
    opts = training_options(settings)
    test_opts = options(settings).deviceIterations(NUM_TEST // BATCH)
    with watch.measure("data"):
        train_set, test_set = load_data(settings.seed)
        training_data = poptorch.DataLoader(opts, train_set, batch_size=BATCH, shuffle=True, drop_last=True)
        test_data = poptorch.DataLoader(test_opts, test_set, batch_size=BATCH)

    model = Network()
    optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE)
    epochs = settings.epochs or EPOCHS
    training = Training(data=training_data, options=opts, epochs=epochs, shown=".2e")
    trained = training.run(BraggNNWithLoss(model), optimizer, watch, console)
    with watch.measure("validate"):
        inference_model = poptorch.inferenceModel(model, test_opts)
        errors = np.concatenate([position_errors(inference_model(x).numpy(), y.numpy()) for x, y in test_data])
    with watch.measure("compare"):
        comparisons = compare(console)
    return DemoResult(
        name="braggnn",
        note="the peaks are simulated, not measured; real training on this host; machine figures are modelled",
        figures={
            "median_error_pixels": float(np.median(errors)),
            "p95_error_pixels": float(np.percentile(errors, 95)),
            "held_out_samples": len(test_set),
            "epochs": epochs,
            "weights_sha256": weights_digest(model),
        },
        seconds=watch.seconds,
        report=trained.report.with_meta(name="BraggNN training", sample_name="samples", step_name="weight update"),
        comparisons=comparisons,
        comparison_note=COMPARISON_NOTE,
    )


def compare(console: Console) -> list[dict[str, Any]]:
    """Modelled throughput in f16 on a GC200 beside the measured one, by batch size."""
    rows = []
    with progress_bar(console, "comparing", len(MEASURED_SAMPLES_PER_SECOND)) as advance:
        for batch, measured in MEASURED_SAMPLES_PER_SECOND.items():
            rows.append(_compared(batch, measured))
            advance(f"batch {batch}")
    return rows


def _compared(batch: int, measured: float) -> dict[str, Any]:
    """One published rate beside the modelled one, and what limits that."""
    rate = published_rate(modelled_in_half(batch), batch, SAMPLE_BYTES, SCRIPT)
    limits = rate.report.limits
    assert limits is not None
    return {
        "batch": batch,
        "modelled_samples_per_second": limits.samples_per_second,
        "measured_samples_per_second": measured,
        "ratio": limits.samples_per_second / measured,
        "fits": rate.report.memory.fits,
        "limit": limits.name,
        **{f"{name}_samples_per_second": getattr(limits, name) for name in LIMITS},
        "low_samples_per_second": rate.low,
        "high_samples_per_second": rate.high,
    }


def modelled_in_half(batch: int) -> Report:
    """Report of BraggNN's training in f16 on one GC200: compiled, not run."""
    opts = poptorch.Options().useOfflineIpuTarget().showCompilationProgressBar(False)
    opts.deviceIterations(SCRIPT.device_iterations)
    opts.Abele.system(systems.gc200()).allowOutOfMemory()
    model = Network().half()
    optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE)
    training_model = poptorch.trainingModel(BraggNNWithLoss(model), opts, optimizer=optimizer)
    samples = batch * SCRIPT.device_iterations
    training_model.compile(torch.zeros(samples, 1, 11, 11).half(), torch.zeros(samples, 2).half())
    return training_model.report()
