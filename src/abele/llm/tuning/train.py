"""Training of language models on rows of packed text, and their perplexity."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from abele import poptorch
from abele.errors import InvalidOptionError
from abele.llm.cache import WholeSequence
from abele.llm.models.causal import CausalModel
from abele.llm.tuning.rows import TextRows

_IGNORED = -100


class PackedModel(nn.Module):
    """A model with the loss of rows in which several texts lie.

    Args:
        model: The model.
        checkpoints: True to keep only what enters each layer; the backward pass computes the rest again.
    """

    def __init__(self, model: CausalModel, *, checkpoints: bool = False) -> None:
        super().__init__()
        self.model = model
        self._checkpointed = [*model.layers] if checkpoints else []
        for layer in self._checkpointed:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)

    def release(self) -> None:
        """Leave the model without checkpoints."""
        for layer in self._checkpointed:
            del layer.forward
        self._checkpointed = []

    def forward(
        self, ids: torch.Tensor, labels: torch.Tensor, sequence_ids: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Mean loss per labelled token, in nats; the sum of losses; the number of labelled tokens.

        Args:
            ids: Tokens [rows, length].
            labels: The token that follows each; -100 where none does.
            sequence_ids: Number of each token's text in its row, 0 for padding.
            position_ids: Place of each token in its text.
        """
        hidden = self.model(ids, WholeSequence(ids, positions=position_ids, sequence_ids=sequence_ids))
        logits = self.model.head(hidden).float().flatten(0, 1)
        losses = functional.cross_entropy(logits, labels.flatten().long(), ignore_index=_IGNORED, reduction="sum")
        count = (labels != _IGNORED).sum()
        mean = losses / count.clamp(min=1)
        return poptorch.identity_loss(mean, "none"), losses, count


@dataclass(frozen=True)
class Tuned:
    """Losses and perplexities of a fine-tuning.

    Attributes:
        losses: Loss of each update's rows before it, in nats per token.
        before: Perplexity of the held-out text before.
        after: Its perplexity after.
        trained: Trained numbers.
        frozen: Numbers that stayed.
    """

    losses: tuple[float, ...]
    before: float
    after: float
    trained: int
    frozen: int

    def __str__(self) -> str:
        share = self.trained / max(1, self.trained + self.frozen)
        return (
            f"{len(self.losses)} updates of {self.trained:,} numbers ({share:.2%} of the model): "
            f"held-out perplexity {self.before:.3f} → {self.after:.3f}"
        )


def perplexity(model: CausalModel, text: TextRows, *, batch: int = 1, options: poptorch.Options | None = None) -> float:
    """Exponential of the mean loss per token of a text, computed on the device.

    Args:
        model: The model.
        text: Rows.
        batch: Rows per run.
        options: Options of the inference model.

    Raises:
        InvalidOptionError: The text has fewer rows than a run takes.
    """
    _check_rows(text, batch)
    running = poptorch.inferenceModel(PackedModel(model).eval(), options)
    try:
        return _perplexity(running, text, batch)
    finally:
        running.destroy()


def _perplexity(running: Callable[..., Any], text: TextRows, batch: int = 1) -> float:
    losses = tokens = 0.0
    for rows in text.batches(batch):
        _, loss, count = running(*rows)
        losses, tokens = losses + float(loss.sum()), tokens + float(count.sum())
    return math.exp(losses / max(tokens, 1.0))


def tune(
    model: CausalModel,
    text: TextRows,
    held_out: TextRows,
    *,
    updates: int,
    batch: int = 1,
    lr: float = 1e-4,
    seed: int = 0,
    checkpoints: bool = False,
    options: poptorch.Options | None = None,
    on_update: Callable[[int, float], None] | None = None,
) -> Tuned:
    """Train those parameters of a model that ask for gradients, on the device.

    Layers with adapters (:func:`~abele.llm.tuning.adapt`) are the only ones that learn; without adapters all do.

    Args:
        model: The model; it is changed.
        text: Rows to learn from, taken in a new order in each round.
        held_out: Rows for perplexity.
        updates: Updates of the weights.
        batch: Rows per update.
        lr: Learning rate of AdamW.
        seed: That of the order of rows.
        checkpoints: True to keep only what enters each layer; the backward pass computes the rest again.
        options: Options of the training model.
        on_update: Called with the number of each update and its loss.

    Raises:
        InvalidOptionError: Nothing to train, or fewer rows than a batch.
    """
    _check_rows(text, batch)
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise InvalidOptionError(
            "no parameter asks for a gradient", remedy="adapt(model, targets), or requires_grad_()"
        )
    scoring = poptorch.inferenceModel(PackedModel(model).eval())
    before = _perplexity(scoring, held_out)
    scoring.detachFromDevice()
    packed = PackedModel(model, checkpoints=checkpoints).train()
    training = poptorch.trainingModel(packed, options, poptorch.optim.AdamW(trained, lr=lr))
    losses: list[float] = []
    try:
        while len(losses) < updates:
            for rows in text.batches(batch, seed=seed + len(losses)):
                losses.append(float(training(*rows)[0].mean()))
                if on_update is not None:
                    on_update(len(losses), losses[-1])
                if len(losses) == updates:
                    break
    finally:
        training.destroy()
        packed.release()
        model.eval()
    after = _perplexity(scoring, held_out)
    scoring.destroy()
    numbers = sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in model.buffers())
    learnt = sum(p.numel() for p in trained)
    return Tuned(tuple(losses), before, after, learnt, numbers - learnt)


def _check_rows(text: TextRows, batch: int) -> None:
    if not 1 <= batch <= len(text):
        raise InvalidOptionError(
            f"batches of {batch} rows from a text of {len(text)}",
            remedy="a batch of at most the rows that there are, a longer text, or shorter rows",
        )
