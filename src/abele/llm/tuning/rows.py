"""Text as rows of packed tokens, of which some are held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from abele.errors import InvalidOptionError
from abele.packing.data import PackedRows, Ragged, RowShape, pack_rows
from abele.packing.tasks import language_model

FIELDS = ("input_ids", "labels", "sequence_ids", "position_ids")
"""Fields of a row that training reads."""


class Encoding(Protocol):
    """A tokenizer, as far as it is used here."""

    def encode(self, text: str) -> Sequence[int]:
        """Ids of the text's tokens."""
        ...


@dataclass(frozen=True)
class TextRows:
    """Packed rows of documents.

    Attributes:
        rows: Rows of one length.
        length: Tokens per row.
    """

    rows: PackedRows
    length: int

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, size: int, *, seed: int | None = None) -> Iterator[tuple[torch.Tensor, ...]]:
        """Tensors i32[size, length] of :data:`FIELDS`, for each batch of rows; a last part of a batch is left out.

        Args:
            size: Rows per batch.
            seed: That of the order; None for the order in which rows were packed.
        """
        order = np.arange(len(self)) if seed is None else np.random.default_rng(seed).permutation(len(self))
        for begin in range(0, len(self) - size + 1, size):
            batch = self.rows.take(order[begin : begin + size])
            yield tuple(torch.from_numpy(batch[name].astype(np.int32)) for name in FIELDS)


def text_rows(tokenizer: Encoding, documents: Sequence[str], *, length: int = 512, end: int | None = None) -> TextRows:
    """Documents as packed rows.

    Args:
        tokenizer: Maker of ids.
        documents: Texts; those of over ``length`` tokens are cut into pieces.
        length: Tokens per row.
        end: Id put behind each document, if one is.

    Raises:
        InvalidOptionError: No document has two tokens, so that none predicts another.
    """
    ids = [np.asarray([*tokenizer.encode(text), *([] if end is None else [end])], np.int32) for text in documents]
    ids = [document for document in ids if len(document) > 1]
    if not ids:
        raise InvalidOptionError(
            f"none of {len(documents)} documents has two tokens or more", remedy="give texts of some words"
        )
    samples = language_model(Ragged.of(ids), longest=length)
    return TextRows(pack_rows(samples, RowShape(length, depth=max(2, length // 8))), length)
