"""CTC's loss of utterances that share rows."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import nn

from abele.errors import PackedDataError


def rows_to_sequences(values: torch.Tensor, begins: torch.Tensor, longest: int) -> torch.Tensor:
    """The stretch of a row that begins where each sequence does.

    Args:
        values: [rows, length] or [rows, length, features].
        begins: First place of each sequence, int64[rows, depth].
        longest: Elements of a stretch; those past the end of a sequence are whatever lies there.

    Returns:
        [rows, depth, longest] or [rows, depth, longest, features].
    """
    places = begins.long()[:, :, None] + torch.arange(longest, device=values.device)
    places = places.clamp(max=values.shape[1] - 1)
    flat = places.flatten(1)
    if values.dim() == 2:
        return torch.gather(values, 1, flat).view(places.shape)
    taken = torch.gather(values, 1, flat[:, :, None].expand(-1, -1, values.shape[2]))
    return taken.view(*places.shape, values.shape[2])


class PackedCtcLoss(nn.Module):
    """The mean over utterances of CTC's loss, each divided by the number of its labels.

    Args:
        longest_input: Outputs of an utterance at most; None for a whole row. Memory goes with depth times this.
        longest_labels: Labels of an utterance at most; None for a whole row.
        blank: The label of the blank.
        by_label: True to divide the loss of an utterance by the number of its labels, as PyTorch's ``mean`` does.
        num_sequences: Divisor of the sum over utterances; None for the number of those that are there.
    """

    def __init__(
        self,
        *,
        longest_input: int | None = None,
        longest_labels: int | None = None,
        blank: int = 0,
        by_label: bool = True,
        num_sequences: float | None = None,
    ) -> None:
        super().__init__()
        if num_sequences is not None and not num_sequences > 0:
            raise PackedDataError(f"num_sequences is above 0, not {num_sequences}")
        self.longest_input = longest_input
        self.longest_labels = longest_labels
        self.blank = blank
        self.by_label = by_label
        self.num_sequences = num_sequences

    def forward(
        self,
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        *,
        input_begins: torch.Tensor,
        input_lengths: torch.Tensor,
        label_begins: torch.Tensor,
        label_lengths: torch.Tensor,
    ) -> torch.Tensor:
        """The loss.

        Args:
            log_probs: Of a model on rows, [rows, outputs, num_labels].
            targets: Labels of rows, int[rows, labels].
            input_begins, input_lengths: Of each utterance in outputs, int[rows, depth]; 0 long if it is not there.
            label_begins, label_lengths: Of each utterance in labels, int[rows, depth].
        """
        outputs = self.longest_input or log_probs.shape[1]
        labels = self.longest_labels or targets.shape[1]
        own = rows_to_sequences(log_probs, input_begins, outputs).flatten(0, 1).transpose(0, 1)
        wanted = rows_to_sequences(targets, label_begins, labels).flatten(0, 1)
        there = input_lengths.flatten() > 0
        # An utterance that is not there takes one output of its row, and its loss is left out.
        lengths = input_lengths.flatten().long().clamp(min=1)
        counts = label_lengths.flatten().long()
        losses = F.ctc_loss(own, wanted, lengths, counts, blank=self.blank, reduction="none")
        if self.by_label:
            losses = losses / counts.clamp(min=1)
        total = torch.where(there, losses, torch.zeros_like(losses)).sum()
        number = there.to(losses.dtype).sum().clamp(min=1) if self.num_sequences is None else self.num_sequences
        return total / number
