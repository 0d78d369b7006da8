"""A character model with experts beside the dense one of equal compute, on the text of Python's standard library.

Both are the transformer of :mod:`abele.garden.language`. The dense one has a feed-forward layer of 4 · width hidden
features; the other has ``experts`` of them with 4 · width / top_k each, of which every character uses ``top_k``: as
many products per character, and experts / top_k times the weights. Data, order and seed are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn, optim
from torch.utils.data import TensorDataset

from abele import poptorch
from abele.arrays import Float64
from abele.errors import InvalidOptionError
from abele.garden import curves
from abele.garden.language import (
    HELD_OUT_SHARE,
    TEST_BATCH,
    LanguageNetwork,
    TransformerBlock,
    bits_per_character,
    next_character_loss,
    windows,
)
from abele.garden.sources import held_out_split, standard_library, without_tables
from abele.garden.training import (
    DemoResult,
    DemoSettings,
    HeldOut,
    Predictor,
    Stopwatch,
    options,
    progress_bar,
    weights_digest,
)
from abele.report import Report

PER_CALL = 20
"""Steps of a call."""


@dataclass(frozen=True)
class ExpertsSize:
    """Size of both networks and of their training.

    Attributes:
        width: Elements per character.
        layers: Blocks.
        heads: Attention heads.
        experts: Experts of each block.
        top_k: Experts of each character.
        batch: Windows of a step.
        steps: Steps, a multiple of those of a call.
        held_out: Windows that are held out.
        rate: Learning rate of both.

    Raises:
        InvalidOptionError: Hidden features that do not divide among the experts of a character, or too few steps.
    """

    width: int = 64
    layers: int = 2
    heads: int = 4
    experts: int = 8
    top_k: int = 2
    batch: int = 8
    steps: int = 800
    held_out: int = 256
    rate: float = 2e-3

    def __post_init__(self) -> None:
        if self.top_k < 1 or 4 * self.width % self.top_k:
            raise InvalidOptionError(
                f"{4 * self.width} hidden features do not divide among {self.top_k} experts of a character"
            )
        if self.steps < PER_CALL or self.steps % PER_CALL:
            raise InvalidOptionError(f"steps = {self.steps}: a multiple of {PER_CALL}, the steps of a call")


FULL = ExpertsSize(width=128, steps=1600, held_out=512)
"""Size of the published curve."""
SHORT = ExpertsSize(width=32, layers=1, heads=2, experts=4, batch=2, steps=40, held_out=16)
"""Size for tests."""


class ExpertBlock(TransformerBlock):
    """A block whose feed-forward layer has experts.

    Args:
        size: Width, heads and experts.
    """

    def __init__(self, size: ExpertsSize) -> None:
        super().__init__(size.width, size.heads)
        del self.up, self.down
        hidden = 4 * size.width // size.top_k
        self.experts = poptorch.MixtureOfExperts(size.width, hidden, size.experts, size.top_k)

    def routed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of the same shape, [batch, places, width], and what to add to the loss."""
        x = self.attended(x)
        made, auxiliary = self.experts(self.norm2(x))
        return x + made, auxiliary


class ExpertsNetwork(LanguageNetwork):
    """The language network with experts.

    Args:
        size: Size of it.
    """

    def __init__(self, size: ExpertsSize) -> None:
        super().__init__(size.width, size.layers, size.heads)
        self.blocks = nn.Sequential(*(ExpertBlock(size) for _ in range(size.layers)))

    def scored(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """Scores [batch, places, num_characters] of text [batch, places], and what to add to the loss."""
        x, total = self.embedded(text), torch.zeros(())
        for block in self.blocks:
            assert isinstance(block, ExpertBlock)
            x, auxiliary = block.routed(x)
            total = total + auxiliary
        return self.scores(self.norm(x)), total

    def forward(self, text: Tensor) -> Tensor:
        """Scores."""
        return self.scored(text)[0]


class TextLoss(nn.Module):
    """A network with its loss on text, and what is minimised.

    Args:
        network: The network.
    """

    def __init__(self, network: LanguageNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, text: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy, and the sum of it and what balances experts."""
        if not isinstance(self.network, ExpertsNetwork):
            loss = next_character_loss(self.network(text), following)
            return loss, poptorch.identity_loss(loss, "none")
        scores, auxiliary = self.network.scored(text)
        loss = next_character_loss(scores, following)
        return loss, poptorch.identity_loss(loss + auxiliary, "none")


@dataclass(frozen=True)
class ExpertsCurve:
    """Outcome of training one network.

    Attributes:
        losses: Mean cross-entropy of each call, in nats.
        held_out: Bits per character of held-out text.
        network: The network.
        report: Cost of training on the modelled machine.
    """

    losses: Float64
    held_out: float
    network: LanguageNetwork
    report: Report


def run(
    settings: DemoSettings,
    console: Console,
    *,
    size: ExpertsSize | None = None,
    picture: Path | None = None,
) -> DemoResult:
    """Train both networks, and set their curves beside each other; progress goes to ``console``.

    Args:
        settings: The machine, threads, seed and passes over the data.
        console: For progress.
        size: Size of the networks.
        picture: Path of a picture of the curves.
    """
    size, watch = size or ExpertsSize(), Stopwatch()
    with watch.measure("data"):
        kept, others = held_out_split(without_tables(standard_library()), HELD_OUT_SHARE, settings.seed)
        train = torch.from_numpy(windows(kept, size.steps * size.batch, settings.seed))
        held_out = torch.from_numpy(windows(others, size.held_out, settings.seed))
    found: dict[str, ExpertsCurve] = {}
    calls = train.shape[0] // (size.batch * PER_CALL) * (settings.epochs or 1)
    with progress_bar(console, "training", 2 * calls) as advance:
        for name in ("dense", "experts"):
            torch.manual_seed(settings.seed)
            network = LanguageNetwork(size.width, size.layers, size.heads) if name == "dense" else ExpertsNetwork(size)
            with watch.measure(name):
                found[name] = _trained(network, size, settings, train, held_out, advance)
    if picture is not None:
        curves.picture({_title(size): (_steps(found), {n: c.losses for n, c in found.items()})}, picture)
    return _result(size, found, watch, held_out[:, 1:].numel())


def _trained(
    network: LanguageNetwork,
    size: ExpertsSize,
    settings: DemoSettings,
    train: Tensor,
    held_out: Tensor,
    advance: object,
) -> ExpertsCurve:
    assert callable(advance)
    opts = options(settings).deviceIterations(PER_CALL).outputMode(poptorch.OutputMode.All)
    data = poptorch.DataLoader(
        opts, TensorDataset(train[:, :-1], train[:, 1:]), batch_size=size.batch, shuffle=False, drop_last=True
    )
    model = TextLoss(network)
    optimizer = optim.AdamW(model.parameters(), lr=size.rate, weight_decay=0.01)
    executor = poptorch.trainingModel(model, opts, optimizer)
    losses = []
    for _ in range(settings.epochs or 1):
        for text, following in data:
            loss, _ = executor(text, following)
            losses.append(float(loss.double().mean()))
            advance(f"loss {losses[-1]:.3f}")
    report = executor.report(data)
    executor.detachFromDevice()
    bits = bits_per_character(Predictor(network.eval(), options(settings), TEST_BATCH), held_out.numpy())
    return ExpertsCurve(np.array(losses), bits, network, report)


def _title(size: ExpertsSize) -> str:
    return f"character model, {size.layers} layers of {size.width}"


def _steps(found: dict[str, ExpertsCurve]) -> Float64:
    return (np.arange(len(found["dense"].losses), dtype=np.float64) + 1) * PER_CALL


def _result(size: ExpertsSize, found: dict[str, ExpertsCurve], watch: Stopwatch, characters: int) -> DemoResult:
    dense, experts = found["dense"], found["experts"]
    last = max(1, len(dense.losses) // 10)
    ends = {name: float(curve.losses[-last:].mean()) for name, curve in found.items()}
    figures: dict[str, float | int | str] = {}
    for name, curve in found.items():
        figures |= {
            f"{name}_loss": ends[name],
            f"{name}_bits_per_character": curve.held_out,
            f"{name}_weights": sum(p.numel() for p in curve.network.parameters()),
            f"{name}_cycles": float(curve.report.step_cycles.total),
        }
    figures["weights_sha256"] = weights_digest(experts.network)
    plot = curves.text_plot({name: curve.losses for name, curve in found.items()}, _steps(found))
    return DemoResult(
        name="mixture-of-experts",
        note="real text, real training on this host; machine figures are modelled, of the network with experts",
        figures=figures,
        seconds=watch.seconds,
        report=experts.report.with_meta(name="training with experts", sample_name="windows"),
        held_out=(
            HeldOut(
                measure="bits per character",
                value=experts.held_out,
                beside={"dense": dense.held_out},
                on=f"{characters:,} held-out characters",
            ),
        ),
        exhibit=f"{_title(size)}\n{_table(size, found, ends)}\n\n{plot}",
    )


def _table(size: ExpertsSize, found: dict[str, ExpertsCurve], ends: dict[str, float]) -> str:
    """Weights, losses and cycles of both, and what routing cost each layer."""
    hidden = {
        "dense": f"{4 * size.width} hidden",
        "experts": f"{size.top_k} of {size.experts} x {4 * size.width // size.top_k}",
    }
    rows = [
        f"{name:>8}{hidden[name]:>14}{sum(p.numel() for p in curve.network.parameters()):>11,}{ends[name]:>9.4f}"
        f"{curve.held_out:>10.4f}{curve.report.step_cycles.total:>14,.0f}"
        for name, curve in found.items()
    ]
    loads = [
        f"  block {number}: {block.experts.load()}"
        for number, block in enumerate(found["experts"].network.blocks)
        if isinstance(block, ExpertBlock)
    ]
    head = f"{'':>8}{'feed-forward':>14}{'weights':>11}{'loss':>9}{'held out':>10}{'cycles':>14}"
    return "\n".join([head, *rows, "", "routed while training and testing", *loads])
