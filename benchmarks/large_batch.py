"""LARS and LAMB at large batches: python benchmarks/large_batch.py [digits] [text] [--epochs N].

ResNet-20 on real digits with SGD and LARS, and a 4-layer BERT on real text with AdamW and LAMB, each at a small and at
a large batch, with the same epochs and the same shape of schedule (a tenth of warm-up, then a line to zero). For each
optimiser, peak rates are tried over powers of two and the best is shown with both of its neighbours, so that no
optimiser is judged by a rate that suits the other. What is printed is the held-out figure at the end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.datasets import load_digits

from abele import poptorch
from abele.garden.language import CHARACTERS, windows
from abele.garden.models.bert import BertPretraining
from abele.garden.models.resnet import ResNet20
from abele.garden.sources import held_out_split, standard_library, without_tables

Tensors = tuple[torch.Tensor, ...]
MASKED = len(CHARACTERS)
LENGTH, EVERY = 32, 7


@dataclass(frozen=True)
class Task:
    """A network with its data.

    Attributes:
        title: What it is.
        make: The network from the same start each time.
        train: Tensors to train on, samples first.
        test: Tensors held out.
        figure: Held-out figure of a trained network; less is better.
        batches: The small and the large batch.
        rivals: Optimisers by name, and the rates that are tried.
    """

    title: str
    make: Callable[[], torch.nn.Module]
    train: Tensors
    test: Tensors
    figure: Callable[[torch.nn.Module, Tensors], float]
    batches: tuple[int, int]
    rivals: dict[str, tuple[Callable[[torch.nn.Module], torch.optim.Optimizer], Sequence[float]]]


def groups(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Matrices, and beside them biases and norms, which LARS leaves as they are."""
    return [
        {"params": [p for p in model.parameters() if p.ndim > 1]},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0, "layerwise": False},
    ]


def digits() -> Task:
    """ResNet-20 on the 1,797 digits that scikit-learn carries."""
    data = load_digits()
    images = torch.tensor(data.images / 16.0, dtype=torch.float32)[:, None]
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    images, labels = images[order], labels[order]

    def made() -> torch.nn.Module:
        torch.manual_seed(0)
        return ResNet20(channels=1)

    def wrong(model: torch.nn.Module, test: Tensors) -> float:
        with torch.no_grad():
            return float((model.eval().scores(test[0]).argmax(1) != test[1]).float().mean())

    return Task(
        title="ResNet-20 on digits, part that is told wrong",
        make=made,
        train=(images[:1536], labels[:1536]),
        test=(images[1536:], labels[1536:]),
        figure=wrong,
        batches=(64, 768),
        rivals={
            "SGD": (
                lambda m: poptorch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4),
                [2.0**k for k in range(-5, 3)],
            ),
            "LARS": (
                lambda m: poptorch.optim.LARS(
                    groups(m), lr=0.1, momentum=0.9, weight_decay=1e-4, trust_coefficient=0.01
                ),
                [2.0**k for k in range(-4, 4)],
            ),
        },
    )


def masked(text: torch.Tensor) -> Tensors:
    """What the network is given of stretches of text."""
    places = torch.arange(3, LENGTH, EVERY).expand(len(text), -1).contiguous()
    labels = torch.gather(text, 1, places)
    segments = (torch.arange(LENGTH) >= LENGTH // 2).long().expand(len(text), -1).contiguous()
    shown = text.scatter(1, places, MASKED)
    return shown, segments, torch.ones_like(segments), places, labels, labels[:, 0] % 2


def text() -> Task:
    """BERT with four layers on the standard library's text: characters that are masked."""
    train, test = held_out_split(without_tables(standard_library()), 0.1, 0)
    cut = [torch.from_numpy(windows(files, n, 0))[:, :LENGTH].long() for files, n in ((train, 8192), (test, 1024))]

    def made() -> torch.nn.Module:
        torch.manual_seed(0)
        return BertPretraining(vocabulary=MASKED + 1, width=64, layers=4, heads=4, positions=LENGTH)

    def loss(model: torch.nn.Module, test: Tensors) -> float:
        with torch.no_grad():
            return float(model.eval()(*test))

    return Task(
        title="BERT of 4 layers on text, loss",
        make=made,
        train=masked(cut[0]),
        test=masked(cut[1]),
        figure=loss,
        batches=(32, 1024),
        rivals={
            "AdamW": (
                lambda m: poptorch.optim.AdamW(m.parameters(), lr=0.1, weight_decay=0.01),
                [2.0**k for k in range(-11, -3)],
            ),
            "LAMB": (
                lambda m: poptorch.optim.LAMB(m.parameters(), lr=0.1, eps=1e-6, weight_decay=0.01),
                [2.0**k for k in range(-9, -1)],
            ),
        },
    )


def rates(peak: float, steps: int) -> Iterator[float]:
    """A tenth of the steps up to the peak, then down to zero in a line."""
    warm = max(steps // 10, 1)
    for step in range(steps):
        yield peak * ((step + 1) / warm if step < warm else (steps - step) / (steps - warm + 1))


def trained(task: Task, make: Callable[[torch.nn.Module], torch.optim.Optimizer], batch: int, epochs: int) -> Any:
    """A function from a peak rate to the held-out figure; the model is compiled once."""
    model = task.make()
    start = {name: value.clone() for name, value in model.state_dict().items()}
    per_epoch = len(task.train[0]) // batch

    def figure(peak: float) -> float:
        optimiser = make(model)
        model.train()
        model.load_state_dict(start)
        options = poptorch.Options().showCompilationProgressBar(False)
        training = poptorch.trainingModel(model, options, optimiser)
        shuffled = torch.Generator().manual_seed(0)
        schedule = rates(peak, epochs * per_epoch)
        for _ in range(epochs):
            for rows in torch.randperm(len(task.train[0]), generator=shuffled)[: per_epoch * batch].split(batch):
                rate = next(schedule)
                for group in optimiser.param_groups:
                    group["lr"] = rate
                training.setOptimizer(optimiser)
                training(*(t[rows] for t in task.train))
        training.copyWeightsToHost()
        training.destroy()
        return task.figure(model, task.test)

    return figure


def best_of(figure: Callable[[float], float], peaks: Sequence[float]) -> tuple[float, dict[float, float]]:
    """The best peak, found by walking down from the middle, and the figures of all that were tried."""
    found: dict[float, float] = {}

    def of(place: int) -> float:
        if not 0 <= place < len(peaks):
            return float("inf")
        if peaks[place] not in found:
            value = figure(peaks[place])
            found[peaks[place]] = value if value == value else float("inf")
        return found[peaks[place]]

    at = len(peaks) // 2
    while True:
        near = min((at, at - 1, at + 1), key=of)
        if near == at:
            return peaks[at], found
        at = near


def main() -> None:
    """Print a table for each task."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tasks", nargs="*", choices=["digits", "text"], default=["digits", "text"])
    parser.add_argument("--epochs", type=int, default=6)
    given = parser.parse_args()
    for name in given.tasks:
        task = {"digits": digits, "text": text}[name]()
        print(f"{task.title}; {given.epochs} epochs of {len(task.train[0]):,} samples")
        for batch in task.batches:
            for rival, (make, peaks) in task.rivals.items():
                begin = time.perf_counter()
                peak, found = best_of(trained(task, make, batch, given.epochs), peaks)
                tried = ", ".join(f"{rate:g}: {value:.4f}" for rate, value in sorted(found.items()))
                took = time.perf_counter() - begin
                print(
                    f"  batch {batch:>5}  {rival:<6} {found[peak]:.4f} at {peak:g}  ({tried}; {took:.0f} s)", flush=True
                )


if __name__ == "__main__":
    main()
