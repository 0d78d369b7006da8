"""Packed data for PyTorch: data sets, samplers, loaders, masks, losses. Nothing else in `abele.packing` imports it."""

import importlib.util

from abele.errors import MissingPackageError

if importlib.util.find_spec("torch") is None:
    raise MissingPackageError(
        "abele.packing.torch needs PyTorch, which is not installed",
        remedy="pip install 'abele[torch]', or torch itself",
    )

from abele.packing.torch.attention import at_places, attention_mask
from abele.packing.torch.ctc import PackedCtcLoss, rows_to_sequences
from abele.packing.torch.datasets import LazyPackedDataset, PackedDataset, as_tensors
from abele.packing.torch.loading import PackBatchSampler, PackedLoader, PackSampler
from abele.packing.torch.losses import (
    SequenceClassLoss,
    SequenceMeanLoss,
    SequenceScoreLoss,
    SpanLoss,
    mean_by_sequence,
)
from abele.packing.torch.stream import PackedStream

__all__ = [
    "LazyPackedDataset",
    "PackBatchSampler",
    "PackSampler",
    "PackedCtcLoss",
    "PackedDataset",
    "PackedLoader",
    "PackedStream",
    "SequenceClassLoss",
    "SequenceMeanLoss",
    "SequenceScoreLoss",
    "SpanLoss",
    "as_tensors",
    "at_places",
    "attention_mask",
    "mean_by_sequence",
    "rows_to_sequences",
]
