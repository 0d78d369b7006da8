"""Handwritten digits: a small convolutional network trained as in PopTorch's introduction.

The 1,797 real images that scikit-learn carries, 1,437 to train and 360 held out. The program is PopTorch's; only the
import line differs, and ``opts.Abele`` says which machine to model.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from rich.console import Console
from sklearn.datasets import load_digits
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.garden.networks import DigitsNetwork as Network
from abele.garden.training import DemoResult, DemoSettings, Stopwatch, Training, options, weights_digest

NUM_TRAINING = 1437
BATCH = 16
GRADIENT_ACCUMULATION = 2
DEVICE_ITERATIONS = 11
TEST_BATCH = 40
EPOCHS = 20
LEARNING_RATE = 1e-3


class DigitsWithLoss(nn.Module):
    """A network with its loss: PopTorch runs forward, backward and update in one call."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the class probabilities, and the loss."""
        output = self.model(x)
        return output, F.nll_loss(output, labels)


def load_data(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """The digits as training and held-out data sets, split at random."""
    digits = load_digits()
    images = torch.tensor(digits.images / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(digits.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, test = order[:NUM_TRAINING], order[NUM_TRAINING:]
    return TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test])


def training_options(settings: DemoSettings) -> poptorch.Options:
    """Options of training: so many weight updates per call, each of so many micro-batches."""
    opts = options(settings).deviceIterations(DEVICE_ITERATIONS)
    opts.Training.gradientAccumulation(GRADIENT_ACCUMULATION)
    return opts


def run(settings: DemoSettings, console: Console) -> DemoResult:
    """Train, validate, and report; progress goes to ``console``."""
    watch = Stopwatch()
    opts = training_options(settings)
    test_opts = options(settings).deviceIterations((1797 - NUM_TRAINING) // TEST_BATCH)
    with watch.measure("data"):
        train_set, test_set = load_data(settings.seed)
        training_data = poptorch.DataLoader(opts, train_set, batch_size=BATCH, shuffle=True, drop_last=True)
        test_data = poptorch.DataLoader(test_opts, test_set, batch_size=TEST_BATCH)

    model = Network()
    optimizer = optim.Adam(model.parameters(), lr=LEARNING_RATE)
    epochs = settings.epochs or EPOCHS
    training = Training(data=training_data, options=opts, epochs=epochs)
    trained = training.run(DigitsWithLoss(model), optimizer, watch, console)
    with watch.measure("validate"):
        accuracy = held_out_accuracy(poptorch.inferenceModel(model, test_opts), test_data)
    return DemoResult(
        name="digits",
        note="real images (scikit-learn's load_digits), real training on this host; machine figures are modelled",
        figures={
            "held_out_accuracy": accuracy,
            "held_out_samples": len(test_set),
            "epochs": epochs,
            "weights_sha256": weights_digest(model),
        },
        seconds=watch.seconds,
        report=trained.report.with_meta(name="digits training", sample_name="images", step_name="weight update"),
    )


def held_out_accuracy(inference_model: poptorch.PoplarExecutor, test_data: poptorch.DataLoader) -> float:
    """Share of held-out images that are classified correctly."""
    correct = total = 0
    for data, labels in test_data:
        predicted = inference_model(data).argmax(dim=1)
        correct += int((predicted == labels).sum())
        total += len(labels)
    return correct / total
