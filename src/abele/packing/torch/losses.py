"""Losses with equal weight for each sequence, whatever its length and its companions in a row.

All are ordinary PyTorch, so they are recorded as part of a model. What they give is the loss to train on: for PopTorch,
``poptorch.identity_loss(loss, reduction="none")`` says so.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from abele.errors import PackedDataError
from abele.packing.data.derived import DECK_MASK_VALUE


def mean_by_sequence(
    values: torch.Tensor,
    counted: torch.Tensor,
    sequence_ids: torch.Tensor,
    *,
    depth: int,
    num_sequences: float | None = None,
) -> torch.Tensor:
    """The mean over sequences of the mean over the counted elements of each.

    Args:
        values: A value for each element, [rows, length].
        counted: True for elements that count, bool[rows, length].
        sequence_ids: The sequence of each element, 1 to depth, 0 for padding; int[rows, length].
        depth: Sequences of a row at most.
        num_sequences: Divisor of the sum over sequences; None for the number of sequences that have a counted
            element. Where gradients of several micro-batches are averaged, sequences of a micro-batch with few of them
            would count more by that; the mean number of sequences of a micro-batch makes all count alike.

    Returns:
        A number; 0 if nothing counts.
    """
    own = sequence_ids[:, None, :] == torch.arange(1, depth + 1, device=values.device)[None, :, None]
    weights = (own & counted[:, None, :]).to(torch.float32)
    counts = weights.sum(-1)
    means = (weights * values.to(torch.float32)[:, None, :]).sum(-1) / counts.clamp(min=1)
    return _divided(means.sum(), counts > 0, num_sequences)


def _divided(total: torch.Tensor, there: torch.Tensor, num_sequences: float | None) -> torch.Tensor:
    if num_sequences is None:
        return total / there.to(torch.float32).sum().clamp(min=1)
    return total / num_sequences


class _SequenceLoss(nn.Module):
    """Base of losses by sequence.

    Args:
        num_sequences: As of :func:`mean_by_sequence`.
        ignore: The label that counts for none.
    """

    def __init__(self, *, num_sequences: float | None = None, ignore: int = -100) -> None:
        super().__init__()
        if num_sequences is not None and not num_sequences > 0:
            raise PackedDataError(f"num_sequences is above 0, not {num_sequences}")
        self.num_sequences = num_sequences
        self.ignore = ignore

    def each(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross entropy of each label, 0 for those ignored; the shape of ``labels``."""
        losses = F.cross_entropy(
            logits.flatten(0, -2), labels.flatten().long(), ignore_index=self.ignore, reduction="none"
        )
        return losses.view(labels.shape)


class SequenceMeanLoss(_SequenceLoss):
    """Cross entropy of tokens, normalised by sequence: of masked words (BERT), and of next tokens.

    Args:
        depth: Sequences of a row at most.
        num_sequences: As of :func:`mean_by_sequence`.
        ignore: The label that counts for none.

    Source: deck 004; the ``masked_lm_weights`` of `reference/packing.md` §5.
    """

    def __init__(self, depth: int, *, num_sequences: float | None = None, ignore: int = -100) -> None:
        super().__init__(num_sequences=num_sequences, ignore=ignore)
        self.depth = depth

    def forward(self, logits: torch.Tensor, labels: torch.Tensor, sequence_ids: torch.Tensor) -> torch.Tensor:
        """The loss.

        Args:
            logits: [rows, length, num_classes].
            labels: int[rows, length].
            sequence_ids: int[rows, length]; of predictions, ``masked_lm_weights``.
        """
        counted = labels != self.ignore
        losses = self.each(logits, labels)
        return mean_by_sequence(losses, counted, sequence_ids, depth=self.depth, num_sequences=self.num_sequences)


class SequenceClassLoss(_SequenceLoss):
    """Cross entropy of the classes of sequences: next sentence, GLUE.

    Args:
        num_sequences: As of :func:`mean_by_sequence`.
        ignore: The label of sequences that are not there.
    """

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of logits [rows, depth, num_classes] and labels int[rows, depth]."""
        return _divided(self.each(logits, labels).float().sum(), labels != self.ignore, self.num_sequences)


class SequenceScoreLoss(_SequenceLoss):
    """Mean squared error of the scores of sequences (STS-B).

    Args:
        num_sequences: As of :func:`mean_by_sequence`.
    """

    def forward(self, scores: torch.Tensor, labels: torch.Tensor, sequence_lengths: torch.Tensor) -> torch.Tensor:
        """The loss.

        Args:
            scores: Outputs of a model, [rows, depth].
            labels: Right values, [rows, depth].
            sequence_lengths: 0 for sequences that are not there, int[rows, depth].
        """
        there = sequence_lengths > 0
        squares = F.mse_loss(scores.float(), labels.float(), reduction="none")
        return _divided(torch.where(there, squares, 0.0).sum(), there, self.num_sequences)


class SpanLoss(_SequenceLoss):
    """Cross entropy of first and last tokens of answers (SQuAD), each among the tokens of its own sequence.

    Args:
        depth: Sequences of a row at most.
        num_sequences: As of :func:`mean_by_sequence`.
        ignore: The place of answers that are not there.
        mask_value: The logit of tokens of other sequences.
    """

    def __init__(
        self,
        depth: int,
        *,
        num_sequences: float | None = None,
        ignore: int = -100,
        mask_value: float = DECK_MASK_VALUE,
    ) -> None:
        super().__init__(num_sequences=num_sequences, ignore=ignore)
        self.depth = depth
        self.mask_value = mask_value

    def own_logits(self, logits: torch.Tensor, sequence_ids: torch.Tensor) -> torch.Tensor:
        """Logits [rows, length] as those of each sequence, [rows, depth, length]."""
        own = sequence_ids[:, None, :] == torch.arange(1, self.depth + 1, device=logits.device)[None, :, None]
        return torch.where(own, logits[:, None, :], torch.full((), self.mask_value, dtype=logits.dtype))

    def forward(
        self,
        start_logits: torch.Tensor,
        end_logits: torch.Tensor,
        start_positions: torch.Tensor,
        end_positions: torch.Tensor,
        sequence_ids: torch.Tensor,
    ) -> torch.Tensor:
        """The mean of the losses of both ends.

        Args:
            start_logits, end_logits: [rows, length].
            start_positions, end_positions: Places in the row, int64[rows, depth].
            sequence_ids: int[rows, length].
        """
        first = self.each(self.own_logits(start_logits, sequence_ids), start_positions)
        last = self.each(self.own_logits(end_logits, sequence_ids), end_positions)
        total = (first.float() + last.float()).sum() / 2
        return _divided(total, start_positions != self.ignore, self.num_sequences)
