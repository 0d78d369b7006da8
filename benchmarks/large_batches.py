"""LARS beside SGD and LAMB beside AdamW, at a small and at large batches: what layer-wise rates are for.

    python benchmarks/large_batches.py [resnet] [bert] [--seeds 3] [--optimiser NAME] [--json] [--quick]

ResNet-20 learns real handwritten digits with SGD and LARS, both with momentum 0.9, and a small BERT learns masked
characters of real text with AdamW and LAMB. All see the same number of samples, so that a large batch means few steps.
Both of a pair have the same warm-up, the same polynomial decay, the same weight decay, which leaves out biases and
norms, and the same grid of peak rates, powers of two from 2^-12 to 2^4: every fourth one first, then neighbours of the
best until both are worse. Rates are chosen by the loss on validation samples with one seed. What is printed is of other
seeds, weights and order of samples, on test samples that no choice saw: the mean with the least and the most.

``scaled`` is the test loss when the rate is not tuned at this batch, but scaled from the one tuned at the smallest, as
published: by the batch for SGD and LARS, by its root for AdamW and LAMB. ``width`` counts rates of the grid whose
validation loss is within 0.05 of the best, of those that were tried: how far a rate may be off.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor, nn

from abele import poptorch
from abele.garden.language import CHARACTERS, windows
from abele.garden.models.bert import BertPretraining
from abele.garden.models.resnet import ResNet20
from abele.garden.sources import held_out_split, standard_library, without_tables

Tensors = tuple[Tensor, ...]
Optimiser = Callable[[nn.Module, float], torch.optim.Optimizer]

RATES = tuple(2.0**power for power in range(-12, 5))
TUNING_SEED = 0
NEAR = 0.05
MASKED = len(CHARACTERS)
LENGTH, EVERY = 32, 7
WARM_UP = 0.15


@dataclass(frozen=True)
class Task:
    """A network with its data, and the two optimisers that train it.

    Attributes:
        title: Title of the row.
        network: Makes the network; it gives its loss.
        train: Tensors to train on, samples first.
        validation: The same, for the choice of rates.
        test: The same, for what is printed.
        errors: The proportion of samples, or of places, that a network gets wrong.
        epochs: Passes over the samples.
        batches: Samples of a step, the smallest first.
        power: Of the polynomial that the rate falls by.
        scaled_by: Factor of the rate, as a function of how many times the batch is larger.
        rivals: The optimisers by name.
    """

    title: str
    network: Callable[[], nn.Module]
    train: Tensors
    validation: Tensors
    test: Tensors
    errors: Callable[[nn.Module, Tensors], float]
    epochs: int
    batches: tuple[int, ...]
    power: float
    scaled_by: Callable[[float], float]
    rivals: dict[str, Optimiser]


@dataclass
class Trainer:
    """A network that is compiled once for an optimiser and a batch, and trained over and over."""

    task: Task
    make: Optimiser
    batch: int
    _model: nn.Module = field(init=False)
    _optimiser: Any = field(init=False)
    _training: Any = field(init=False)
    _fresh: Any = field(init=False)

    def __post_init__(self) -> None:
        self._model = self.task.network()
        self._optimiser = self.make(self._model, RATES[0])
        options = poptorch.Options().showCompilationProgressBar(False)
        self._training = poptorch.trainingModel(self._model, options, self._optimiser)
        self._training.compile(*(t[: self.batch] for t in self.task.train))
        self._fresh = self._optimiser.state_dict()

    def trained(self, peak: float, seed: int) -> tuple[nn.Module, float]:
        """The network after training, and the mean loss of the last tenth of the steps."""
        task, model = self.task, self._model
        torch.manual_seed(seed)
        with torch.no_grad():
            for ours, start in zip(model.state_dict().values(), task.network().state_dict().values(), strict=True):
                ours.copy_(start)
        self._training.copyWeightsToDevice()
        self._optimiser.load_state_dict(self._fresh)
        count = len(task.train[0]) // self.batch
        order = torch.Generator().manual_seed(seed)
        rates = iter(schedule(peak, task.epochs * count, task.power))
        losses = []
        for _ in range(task.epochs):
            for rows in torch.randperm(len(task.train[0]), generator=order)[: count * self.batch].split(self.batch):
                set_rate(self._optimiser, next(rates))
                self._training.setOptimizer(self._optimiser)
                losses.append(float(self._training(*(t[rows] for t in task.train)).reshape(-1)[-1]))
        self._training.copyWeightsToHost()
        return model, statistics.fmean(losses[-max(1, len(losses) // 10) :])

    def close(self) -> None:
        self._training.destroy()


def schedule(peak: float, steps: int, power: float) -> list[float]:
    """A line up to the peak, then a polynomial down to zero, by step."""
    warm = max(round(WARM_UP * steps), 1)
    up = [peak * (step + 1) / warm for step in range(warm)]
    return up + [peak * (1 - step / (steps - warm)) ** power for step in range(steps - warm)]


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


def groups(model: nn.Module, decay: float, **of_small: Any) -> list[dict[str, Any]]:
    """Matrices and kernels, and beside them biases and norms, which have no weight decay."""
    return [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0, **of_small},
    ]


def sgd(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return poptorch.optim.SGD(groups(model, 1e-4), lr=rate, momentum=0.9)


def lars(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    # Steps of a fiftieth of a layer's norm at a rate of 1: as published, 1/1000, suits rates of 10 and more, at which
    # biases and norms, which take plain steps, would not learn here.
    return poptorch.optim.LARS(groups(model, 1e-4, layerwise=False), lr=rate, momentum=0.9, trust_coefficient=0.02)


def adamw(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return poptorch.optim.AdamW(groups(model, 0.01), lr=rate, eps=1e-6)


def lamb(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    return poptorch.optim.LAMB(groups(model, 0.01), lr=rate, eps=1e-6)


def resnet(quick: bool) -> Task:
    """ResNet-20 on the 1,797 digits of 8 x 8 pixels that scikit-learn carries."""
    data = load_digits()
    images = torch.tensor(data.images / 16.0, dtype=torch.float32)[:, None]
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, validation, test = ((images[rows], labels[rows]) for rows in order.split([1280, 256, 261]))

    def wrong(model: nn.Module, samples: Tensors) -> float:
        assert isinstance(model, ResNet20)
        return float((model.scores(samples[0]).argmax(1) != samples[1]).float().mean())

    return Task(
        title="ResNet-20 on digits",
        network=partial(ResNet20, channels=1),
        train=train,
        validation=validation,
        test=test,
        errors=wrong,
        epochs=2 if quick else 8,
        batches=(64, 640) if quick else (64, 320, 1280),
        power=2.0,
        scaled_by=lambda times: times,
        rivals={"SGD": sgd, "LARS": lars},
    )


def masked(text: Tensor) -> Tensors:
    """Inputs of the network for stretches of text: a seventh of the characters is masked."""
    places = torch.arange(3, LENGTH, EVERY).expand(len(text), -1).contiguous()
    labels = torch.gather(text, 1, places)
    segments = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(len(text), -1).contiguous()
    shown = text.scatter(1, places, MASKED)
    # A second loss that text without sentences can have: whether the first masked character has an odd number.
    return shown, segments, torch.ones_like(segments), places, labels, labels[:, 0] % 2


def bert(quick: bool) -> Task:
    """BERT with two layers of width 64 on the standard library's text; files of validation and test are others."""
    train, held_out = held_out_split(without_tables(standard_library()), 0.2, 0)
    validation, test = held_out_split(held_out, 0.5, 1)
    sizes = (1024, 256, 256) if quick else (2048, 512, 512)
    cut = [
        masked(torch.from_numpy(windows(files, size, 0))[:, :LENGTH].long())
        for files, size in zip((train, validation, test), sizes, strict=True)
    ]

    def wrong(model: nn.Module, samples: Tensors) -> float:
        del model, samples
        return float("nan")

    return Task(
        title="BERT of 2 layers on text",
        network=partial(BertPretraining, vocabulary=MASKED + 1, width=64, layers=2, heads=4, positions=LENGTH),
        train=cut[0],
        validation=cut[1],
        test=cut[2],
        errors=wrong,
        epochs=1 if quick else 4,
        batches=(32, 512),
        power=1.0,
        scaled_by=lambda times: times**0.5,
        rivals={"AdamW": adamw, "LAMB": lamb},
    )


def evaluated(task: Task, model: nn.Module, samples: Tensors) -> tuple[float, float]:
    """Loss and errors on samples. Running statistics lag after few steps: they are taken anew, of all samples."""
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    kept = [norm.momentum for norm in norms]
    with torch.no_grad():
        if norms:
            for norm in norms:
                norm.reset_running_stats()
                norm.momentum = None
            model.train()(*task.train)
            for norm, momentum in zip(norms, kept, strict=True):
                norm.momentum = momentum
        found = float(model.eval()(*samples)), task.errors(model, samples)
    model.train()
    return found


def tuned(loss: Callable[[float], float]) -> tuple[float, dict[float, float]]:
    """The rate of the grid with the least loss, and the losses of all that were tried."""
    found: dict[int, float] = {}

    def of(place: int) -> float:
        if not 0 <= place < len(RATES):
            return float("inf")
        if place not in found:
            value = loss(RATES[place])
            found[place] = value if value == value else float("inf")
        return found[place]

    at = min(range(0, len(RATES), 4), key=of)
    while (near := min((at, at - 1, at + 1), key=of)) != at:
        at = near
    return RATES[at], {RATES[place]: value for place, value in sorted(found.items())}


def rows_of(task: Task, seeds: Sequence[int], only: str | None) -> list[dict[str, Any]]:
    rows = []
    smallest: dict[str, float] = {}
    for batch in task.batches:
        for name, make in task.rivals.items():
            if only not in (None, name):
                continue
            begin = time.process_time()
            trainer = Trainer(task, make, batch)

            def validation_loss(peak: float, trainer: Trainer = trainer) -> float:
                return evaluated(task, trainer.trained(peak, TUNING_SEED)[0], task.validation)[0]

            peak, tried = tuned(validation_loss)
            found = []
            for seed in seeds:
                model, train_loss = trainer.trained(peak, seed)
                found.append((train_loss, *evaluated(task, model, task.test)))
            first = smallest.setdefault(name, peak)
            rate = first * task.scaled_by(batch / task.batches[0])
            scaled = [evaluated(task, trainer.trained(rate, seed)[0], task.test)[0] for seed in seeds]
            trainer.close()
            train_losses, losses, errors = zip(*found, strict=True)
            rows.append(
                {
                    "task": task.title,
                    "batch": batch,
                    "steps": task.epochs * (len(task.train[0]) // batch),
                    "optimiser": name,
                    "rate": peak,
                    "train_loss": statistics.fmean(train_losses),
                    "test_loss": statistics.fmean(losses),
                    "test_loss_range": [min(losses), max(losses)],
                    "test_errors": statistics.fmean(errors),
                    "scaled_rate": rate,
                    "scaled_test_loss": statistics.fmean(scaled),
                    "width": sum(loss <= min(tried.values()) + NEAR for loss in tried.values()),
                    "validation_losses": tried,
                    "seconds": time.process_time() - begin,
                }
            )
            told = f"{name} at {peak:g}: {rows[-1]['test_loss']:.3f}, {rows[-1]['seconds']:.0f} s"
            print(f"{task.title}, batch {batch}, {told}", file=sys.stderr, flush=True)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    out = Console()
    if out.width < 120:
        out = Console(width=120)
    for title in dict.fromkeys(row["task"] for row in rows):
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
        for name in ("batch", "steps", "optimiser", "rate", "train", "test", "(from, to)", "wrong", "scaled", "width"):
            table.add_column(name, justify="right")
        for row in rows:
            if row["task"] == title:
                low, high = row["test_loss_range"]
                wrong = "" if row["test_errors"] != row["test_errors"] else f"{row['test_errors']:.1%}"
                table.add_row(
                    *(f"{row['batch']:,}", f"{row['steps']:,}", row["optimiser"], f"{row['rate']:g}"),
                    *(f"{row['train_loss']:.3f}", f"{row['test_loss']:.3f}", f"({low:.3f}, {high:.3f})", wrong),
                    *(f"{row['scaled_test_loss']:.3f} at {row['scaled_rate']:g}", str(row["width"])),
                )
        out.print(table)
        out.print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="resnet|bert")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--optimiser", choices=("SGD", "LARS", "AdamW", "LAMB"), help="train with this one alone")
    parser.add_argument("--quick", action="store_true", help="few samples: whether it runs, not what comes out")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    known = {"resnet": resnet, "bert": bert}
    if unknown := set(given.tasks) - set(known):
        parser.error(f"no task is called {', '.join(sorted(unknown))}: resnet or bert")
    rows = []
    for name in given.tasks or known:
        rows += rows_of(known[name](given.quick), range(1, 1 + given.seeds), given.optimiser)
    if given.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
