"""BraggNN: the sub-pixel centre of simulated X-ray diffraction peaks.

The peaks are simulated on the fly (:mod:`abele.garden.peaks`), the training is real. Beside it stands what the same
training would do on a GC200 in f16, fed by a host as the published script was, next to published measurements.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.garden.braggnn_host import PublishedScript, published_rate
from abele.garden.networks import BraggNetwork as Network
from abele.garden.peaks import PATCH_PIXELS, position_errors, simulate
from abele.garden.progress import progress_bar
from abele.garden.result import DemoResult, Stopwatch, weights_digest
from abele.garden.settings import DemoSettings
from abele.garden.training import Training, options
from abele.machine import systems
from abele.report import LIMITS, Report

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
