"""One network in four precisions: the same data in the same order, and weights from the same seed.

* ``f32``: everything in float32.
* ``f16``: weights, activations, gradients, their sums and first moments in float16; updates round at random, and the
  loss is scaled.
* ``f8``: as ``f16``, with linear layers of 8-bit floats whose scales follow the largest element (FP8-AMAX).
* ``f8 unit``: the network unit-scaled, with linear layers of 8-bit floats that have no scale, and no scale of the loss.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from abele import poptorch
from abele.arrays import Float64
from abele.errors import InvalidOptionError
from abele.garden.models.bert import EncoderLayer
from abele.garden.models.gpt2 import DecoderLayer, PositionedTokens
from abele.garden.training import Advance, DemoSettings, options
from abele.poptorch import fp8, unit_scaling
from abele.report import Report

# The two networks that are trained in four precisions: a decoder of characters, and a small BERT of masked ones.
#
# Their losses are computed in float32, whatever they are in.


class CharacterGpt(nn.Module):
    """A decoder, and its loss of the next character.

    Args:
        vocabulary: Characters that there are.
        width: Elements per position.
        layers: Layers of the decoder.
        heads: Attention heads.
        positions: Length of a window.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, positions: int) -> None:
        super().__init__()
        self.embeddings = PositionedTokens(vocabulary, width, positions)
        self.layers = nn.ModuleList([DecoderLayer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary)

    def forward(self, text: Tensor, following: Tensor) -> Tensor:
        """The mean loss of characters that follow text, both [batch, positions]."""
        x = self.embeddings(text)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.scores(self.norm(x)).float().flatten(0, 1), following.flatten())


class MaskedBert(nn.Module):
    """An encoder, and its loss of masked characters.

    Args:
        vocabulary: Characters that there are; one more stands for masked ones.
        width: Elements per position.
        layers: Layers of the encoder.
        heads: Attention heads.
        positions: Length of a window.

    Source: Devlin et al., BERT (2019), section 3, without the second loss; sizes of BERT-Mini: Turc et al., Well-Read
    Students Learn Better (2019).
    """

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, positions: int) -> None:
        super().__init__()
        self.embeddings = PositionedTokens(vocabulary + 1, width, positions)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([EncoderLayer(width, heads) for _ in range(layers)])
        self.transform = nn.Linear(width, width)
        self.last_norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, vocabulary)

    def forward(self, text: Tensor, places: Tensor, labels: Tensor) -> Tensor:
        """The mean loss of the characters ``labels`` at ``places``, [batch, masked], of text [batch, positions]."""
        x = self.norm(self.embeddings(text))
        for layer in self.layers:
            x = layer(x)
        chosen = torch.gather(x, 1, places[:, :, None].expand(-1, -1, x.shape[2]))
        scores = self.scores(self.last_norm(F.gelu(self.transform(chosen))))
        return F.cross_entropy(scores.float().flatten(0, 1), labels.flatten())


PRECISIONS = ("f32", "f16", "f8", "f8 unit")
READOUT = "scores"
BRANCHES = ("*.attention", "*.narrow")
"""Modules of both networks whose results are added to their input."""
MULTIPLIERS = unit_scaling.Multipliers(attention=unit_scaling.UNIT, correlation=1.0)
"""Scores of attention begin with variance 1, as all else; so do those of characters, which no readout makes smaller.
Attention is not made larger than what it averages."""
BETAS = (0.9, 0.98)
EPSILON = 1e-6
HALF: dict[str, Any] = {"accum_type": torch.float16, "first_order_momentum_accum_type": torch.float16}
WARM_UP, DECAY = 0.1, 0.5
"""Shares of the steps in which the learning rate rises, and at the end falls to almost nothing."""


@dataclass(frozen=True, kw_only=True)
class TrainingRates:
    """The largest learning rate of a network, and what its unit-scaled branches count for.

    Attributes:
        rate: In all precisions; layers of the unit-scaled network divide it by their factors, so that it means there
            what it means in the plain one.
        share: τ of the unit-scaled network's branches, relative to what goes past them.

    Raises:
        InvalidOptionError: One that is not above 0.
    """

    rate: float
    share: float

    def __post_init__(self) -> None:
        for name in ("rate", "share"):
            if not getattr(self, name) > 0:
                raise InvalidOptionError(f"{name} = {getattr(self, name)}: must be above 0")


@dataclass(frozen=True, kw_only=True)
class PrecisionTask:
    """Task that is trained in four precisions.

    Attributes:
        title: Name of the task.
        network: Makes it; it gives its loss.
        data: Its inputs, of all samples.
        held_out: The same, of samples that it is not trained on.
        batch: Samples of a step.
        rates: The largest learning rates.
        loss_scale: Factor of losses in ``f16`` and ``f8``.
    """

    title: str
    network: Callable[[], nn.Module]
    data: tuple[Tensor, ...]
    held_out: tuple[Tensor, ...]
    batch: int
    rates: TrainingRates
    loss_scale: float = 1024.0

    @property
    def num_steps(self) -> int:
        """Steps of a pass over the data."""
        return len(self.data[0]) // self.batch


@dataclass(frozen=True)
class TrainedCurve:
    """Course and result of training.

    Attributes:
        losses: Of each call, the mean over its steps.
        held_out: Mean loss on held-out samples, with the linear layers in the precision that they were trained in.
        report: Cost of training on the modelled machine.
        model: The network.
    """

    losses: Float64
    held_out: float
    report: Report
    model: nn.Module

    @property
    def final(self) -> float:
        """Mean loss of the last tenth of the calls."""
        return float(self.losses[-max(1, len(self.losses) // 10) :].mean())


def made(task: PrecisionTask, precision: str, seed: int) -> nn.Module:
    """The network in a precision, with weights of a seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = task.network()
        if precision == "f8 unit":
            model = unit_scaling.unit_scale(
                model, residuals=dict.fromkeys(BRANCHES, task.rates.share), multipliers=MULTIPLIERS
            )
    if precision != "f32":
        model = model.half()
    if precision == "f8":
        fp8.fp8_linear(model, fp8.Fp8Recipe(allow_conversion=True), skip=[f"*{READOUT}"])
    if precision == "f8 unit":
        fp8.fp8_linear(model, fp8.Fp8Recipe.constant(0, allow_conversion=True), skip=[f"*{READOUT}"])
    return model


def train(task: PrecisionTask, precision: str, settings: DemoSettings, per_call: int, advance: Advance) -> TrainedCurve:
    """Train one network in one precision.

    Args:
        task: Task to train.
        precision: One of :data:`PRECISIONS`.
        settings: The machine, threads, seed and passes.
        per_call: Steps of a call, which have one learning rate.
        advance: Called after each call.
    """
    model = made(task, precision, settings.seed)
    opts = options(settings).deviceIterations(per_call)
    opts.Abele.allowOutOfMemory()
    # By default training sends the loss of a call's last step alone.
    opts.outputMode(poptorch.OutputMode.All)
    opts.Precision.enableStochasticRounding(precision != "f32")
    rate = _optimiser(model, task, precision)
    executor = poptorch.trainingModel(model, opts, optimizer=rate(1.0))
    calls = task.num_steps // per_call
    total = calls * (settings.epochs or 1)
    losses = []
    for call in range(total):
        executor.setOptimizer(rate(_schedule((call + 1) / total)))
        begin = call % calls * per_call * task.batch
        inputs = (part[begin : begin + per_call * task.batch] for part in task.data)
        losses.append(float(executor(*inputs).double().mean()))
        advance(f"{precision}, loss {losses[-1]:.4f}")
    report = executor.report()
    executor.detachFromDevice()
    return TrainedCurve(np.asarray(losses), _held_out_loss(model, task), report, model)


def _schedule(share: float) -> float:
    """The learning rate after a share of the steps, relative to the largest."""
    return max(0.02, min(1.0, share / WARM_UP, (1 - share) / DECAY))


def _optimiser(model: nn.Module, task: PrecisionTask, precision: str) -> Callable[[float], torch.optim.Optimizer]:
    """Makes the optimiser at a share of the largest learning rate."""
    rate = task.rates.rate
    groups: Sequence[dict[str, Any]] = [{"params": list(model.parameters()), "lr": rate}]
    if precision == "f8 unit":
        groups = unit_scaling.parameter_groups(model, rate)
    scale = task.loss_scale if precision in ("f16", "f8") else 1.0
    kinds = HALF if precision != "f32" else {}

    def rated(share: float) -> torch.optim.Optimizer:
        parts = [{**group, "lr": group["lr"] * share} for group in groups]
        return poptorch.optim.AdamW(
            parts, lr=rate, betas=BETAS, eps=EPSILON, weight_decay=0.0, loss_scaling=scale, **kinds
        )

    return rated


@torch.no_grad()
def _held_out_loss(model: nn.Module, task: PrecisionTask) -> float:
    """Mean loss on what the model was not trained on, by PyTorch: 8-bit layers as they are, the rest in float32."""
    wide = copy.deepcopy(model).float()
    firsts = range(0, len(task.held_out[0]), task.batch)
    parts = ([part[first : first + task.batch] for part in task.held_out] for first in firsts)
    return float(np.mean([float(wide(*part)) for part in parts]))
