"""Two transformers in four precisions: float32, float16 with stochastic rounding, and 8-bit floats in two ways.

Both read the text of Python's standard library: a decoder says which character follows, a small BERT which characters
were masked. Precisions share data, order and seed; what differs is in :mod:`abele.garden.low_precision_training`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor

from abele.arrays import Int64
from abele.errors import InvalidOptionError
from abele.garden import curves
from abele.garden.language import CHARACTERS, numbered
from abele.garden.low_precision_training import (
    PRECISIONS,
    CharacterGpt,
    MaskedBert,
    PrecisionTask,
    TrainedCurve,
    TrainingRates,
    train,
)
from abele.garden.sources import LibraryModule, held_out_split, standard_library, without_tables
from abele.garden.training import DemoResult, DemoSettings, Stopwatch, progress_bar, weights_digest

NETWORKS = ("gpt", "bert")
PER_CALL = 10
"""Steps of a call."""
MASKED_SHARE = 0.15
HELD_OUT_SHARE = 0.1
NUM_HELD_OUT = 128
BAR = 0.01
"""Largest excess of a final loss over that in float32, relative to it."""
GPT_RATES = TrainingRates(rate=8e-3, share=1.0)
BERT_RATES = TrainingRates(rate=2e-3, share=1 / 3)
"""Half the best rate of a grid of powers of two for the plain network in float32. The share is the better of 1/3 and 1:
docs/low_precision.md.
"""


@dataclass(frozen=True)
class LowPrecisionSize:
    """Size of the networks and of their training.

    Attributes:
        width: Elements per position.
        gpt_layers: Layers of the decoder.
        bert_layers: Layers of the encoder: BERT-Mini has four.
        heads: Attention heads.
        positions: Characters of a window.
        batch: Windows of a step.
        steps: Steps.
        gpt_rates: The decoder's learning rates.
        bert_rates: The encoder's.

    Raises:
        InvalidOptionError: A size that is too small, or a width that heads do not divide.
    """

    width: int = 64
    gpt_layers: int = 2
    bert_layers: int = 4
    heads: int = 4
    positions: int = 32
    batch: int = 32
    steps: int = 300
    gpt_rates: TrainingRates = GPT_RATES
    bert_rates: TrainingRates = BERT_RATES

    def __post_init__(self) -> None:
        for name in ("width", "gpt_layers", "bert_layers", "heads", "positions", "batch"):
            if getattr(self, name) < 1:
                raise InvalidOptionError(f"{name} = {getattr(self, name)}: must be at least 1")
        if self.width % self.heads:
            raise InvalidOptionError(f"width = {self.width}: must be a multiple of {self.heads}, the attention heads")
        if self.steps < PER_CALL:
            raise InvalidOptionError(f"steps = {self.steps}: must be at least {PER_CALL}, the steps of a call")


SHORT = LowPrecisionSize(width=32, gpt_layers=1, bert_layers=1, heads=2, positions=16, batch=8, steps=20)
"""Size for tests."""


def run(
    settings: DemoSettings,
    console: Console,
    *,
    size: LowPrecisionSize | None = None,
    networks: tuple[str, ...] = NETWORKS,
    picture: Path | None = None,
) -> DemoResult:
    """Train the networks in four precisions, and set the curves beside each other; progress goes to ``console``.

    Args:
        settings: The machine, threads, seed and passes over the data.
        console: For progress.
        size: Size of the networks; by default a few minutes on two quiet cores.
        networks: ``gpt``, ``bert`` or both.
        picture: Path of a picture of the curves.

    Raises:
        InvalidOptionError: No such network, or too little text for so many steps.
    """
    size = size or LowPrecisionSize()
    if not networks or not set(networks) <= set(NETWORKS):
        raise InvalidOptionError(f"networks {', '.join(networks) or 'none'}: one of gpt, bert, or both")
    watch = Stopwatch()
    with watch.measure("data"):
        tasks = {name: _task(name, size, settings.seed) for name in networks}
    found: dict[str, dict[str, TrainedCurve]] = {}
    for name, task in tasks.items():
        calls = task.num_steps // PER_CALL * (settings.epochs or 1)
        with progress_bar(console, task.title, calls * len(PRECISIONS)) as advance:
            found[name] = {}
            for precision in PRECISIONS:
                with watch.measure(f"{name} {precision}"):
                    found[name][precision] = train(task, precision, settings, PER_CALL, advance)
    if picture is not None:
        panels = {tasks[name].title: (_steps(made), _losses(made)) for name, made in found.items()}
        curves.picture(panels, picture)
    return _result(tasks, found, watch)


def _result(tasks: dict[str, PrecisionTask], found: dict[str, dict[str, TrainedCurve]], watch: Stopwatch) -> DemoResult:
    figures: dict[str, float | int | str] = {}
    blocks = []
    for name, made in found.items():
        base = made["f32"]
        for precision, curve in made.items():
            key = f"{name}_{precision.replace(' ', '_')}"
            figures[f"{key}_loss"] = curve.final
            figures[f"{key}_held_out"] = curve.held_out
            figures[f"{key}_above_f32"] = curve.final / base.final - 1
        blocks.append(f"{tasks[name].title}\n{_table(made)}\n\n{curves.text_plot(_losses(made), _steps(made))}")
    last = list(found.values())[-1]
    figures["weights_sha256"] = weights_digest(last["f8"].model)
    return DemoResult(
        name="low-precision",
        note="real text, real training on this host; machine figures are modelled, of the last f8 run",
        figures=figures,
        seconds=watch.seconds,
        report=last["f8"].report.with_meta(name="training in 8-bit floats", sample_name="windows"),
        exhibit="\n\n".join(blocks),
    )


def _steps(made: dict[str, TrainedCurve]) -> npt.NDArray[np.float64]:
    """The last step of each call."""
    return (np.arange(len(made["f32"].losses), dtype=np.float64) + 1) * PER_CALL


def _losses(made: dict[str, TrainedCurve]) -> dict[str, npt.NDArray[np.float64]]:
    return {precision: curve.losses for precision, curve in made.items()}


def _table(made: dict[str, TrainedCurve]) -> str:
    """Losses at some steps, the final ones, and how far above float32's they are."""
    steps, base = _steps(made), made["f32"]
    shown = np.unique(np.linspace(0, len(steps) - 1, 5).round().astype(int))
    head = f"{'step':>8}" + "".join(f"{steps[k]:>8.0f}" for k in shown) + f"{'final':>9}{'to f32':>9}{'held out':>10}"
    rows = [
        f"{precision:>8}"
        + "".join(f"{curve.losses[k]:>8.3f}" for k in shown)
        + f"{curve.final:>9.4f}{curve.final / base.final - 1:>+9.2%}{curve.held_out:>10.4f}"
        for precision, curve in made.items()
    ]
    return "\n".join([head, *rows, "", _verdict(made)])


def _verdict(made: dict[str, TrainedCurve]) -> str:
    """Precisions whose final losses are within the bar, and the others."""
    base = made["f32"].final
    above = [p for p, curve in made.items() if not curve.final / base - 1 <= BAR]
    within = [p for p in made if p != "f32" and p not in above]
    return f"within {BAR:.0%} of f32: {', '.join(within) or 'none'}; not within: {', '.join(above) or 'none'}"


# --- data -------------------------------------------------------------------------------------------------------------


def _task(name: str, size: LowPrecisionSize, seed: int) -> PrecisionTask:
    kept, others = held_out_split(without_tables(standard_library()), HELD_OUT_SHARE, seed)
    count = size.steps // PER_CALL * PER_CALL * size.batch
    held_out = -(-min(NUM_HELD_OUT, count) // size.batch) * size.batch
    train_text, other_text = _windows(kept, size, count, seed), _windows(others, size, held_out, seed)
    sizes = size.width, size.gpt_layers if name == "gpt" else size.bert_layers, size.heads, size.positions
    if name == "gpt":
        return PrecisionTask(
            title=f"character GPT, {size.gpt_layers} layers of {size.width}",
            network=lambda: CharacterGpt(len(CHARACTERS), *sizes),
            data=_following(train_text),
            held_out=_following(other_text),
            batch=size.batch,
            rates=size.gpt_rates,
        )
    return PrecisionTask(
        title=f"BERT of masked characters, {size.bert_layers} layers of {size.width}",
        network=lambda: MaskedBert(len(CHARACTERS), *sizes),
        data=_masked(train_text, seed),
        held_out=_masked(other_text, seed + 1),
        batch=size.batch,
        rates=size.bert_rates,
    )


def _windows(files: list[LibraryModule], size: LowPrecisionSize, count: int, seed: int) -> Tensor:
    """Stretches of text that do not overlap, [count, positions + 1], drawn from all of the files.

    Raises:
        InvalidOptionError: There is too little text for so many.
    """
    length = size.positions + 1
    text = np.concatenate([numbered(file.text) for file in files])
    every: Int64 = text[: len(text) // length * length].reshape(-1, length)
    if len(every) < count:
        raise InvalidOptionError(
            f"{count:,} windows of {length} characters are wanted, the text has {len(every):,}",
            remedy="fewer steps, and more passes over them (--epochs)",
        )
    return torch.from_numpy(every[np.random.default_rng(seed).permutation(len(every))[:count]])


def _following(text: Tensor) -> tuple[Tensor, Tensor]:
    """Text and the characters that follow."""
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def _masked(text: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Text with some characters masked, their places and the masked characters."""
    text = text[:, :-1].clone()
    num_masked = max(1, round(MASKED_SHARE * text.shape[1]))
    generator = torch.Generator().manual_seed(seed)
    places = torch.rand(text.shape, generator=generator).argsort(1)[:, :num_masked].sort(1).values
    labels = text.gather(1, places)
    return text.scatter(1, places, len(CHARACTERS)), places, labels
