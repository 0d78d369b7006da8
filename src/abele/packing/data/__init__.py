"""Rows of packed data: samples in ragged storage, where each lies, what rows say beside, and results taken apart."""

from abele.packing.data.batches import PackBatches, PackOrder
from abele.packing.data.derived import (
    BlockMask,
    Derived,
    FirstPlaces,
    LastPlaces,
    LossWeights,
    OwnerIds,
    PositionIds,
    SampleNumbers,
    SequenceIds,
    SequenceLengths,
    additive_mask,
    block_mask,
    cumulative_lengths,
)
from abele.packing.data.fields import Field, per_sequence
from abele.packing.data.hyperparameters import PackedSettings, packed_settings
from abele.packing.data.layout import RowShape, SequenceLayout
from abele.packing.data.packed_rows import PackedRows
from abele.packing.data.packing import pack_rows, sizes_of
from abele.packing.data.ragged import Ragged
from abele.packing.data.samples import Recipe, Samples
from abele.packing.data.unpacking import Collected, unpack_elements, unpack_sequences
from abele.packing.data.weights import accuracy_by_sequence, sequence_weights, sums_by_sequence

__all__ = [
    "BlockMask",
    "Collected",
    "Derived",
    "Field",
    "FirstPlaces",
    "LastPlaces",
    "LossWeights",
    "OwnerIds",
    "PackBatches",
    "PackOrder",
    "PackedRows",
    "PackedSettings",
    "PositionIds",
    "Ragged",
    "Recipe",
    "RowShape",
    "SampleNumbers",
    "Samples",
    "SequenceIds",
    "SequenceLayout",
    "SequenceLengths",
    "accuracy_by_sequence",
    "additive_mask",
    "block_mask",
    "cumulative_lengths",
    "pack_rows",
    "packed_settings",
    "per_sequence",
    "sequence_weights",
    "sizes_of",
    "sums_by_sequence",
    "unpack_elements",
    "unpack_sequences",
]
