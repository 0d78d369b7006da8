"""Text as numbers of words: a vocabulary of the commonest pieces of a library's source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from abele.arrays import Int64
from abele.garden.sources import LibraryModule

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PAD, UNKNOWN, FIRST, SEPARATOR, MASK = range(len(SPECIAL))
_PIECE = re.compile(r"[A-Za-z]+|\d|[^\sA-Za-z\d]|\n")
"""Words without digits and underscores, single digits and signs, ends of lines."""


@dataclass(frozen=True)
class Corpus:
    """The pieces of some files, one file after the other.

    Attributes:
        pieces: Numbers of pieces, [num_pieces].
        ends: End of the file of each piece, [num_pieces].
        words: The pieces by number, :data:`SPECIAL` ones first.
    """

    pieces: Int64
    ends: Int64
    words: tuple[str, ...]

    @classmethod
    def of(cls, files: Sequence[LibraryModule], vocabulary: int, words: Sequence[str] = ()) -> Corpus:
        """The pieces of ``files``.

        Args:
            files: The files.
            vocabulary: Pieces that get a number; the commonest ones, the rest being ``[UNK]``.
            words: The pieces by number, as another corpus has them; then none are counted.
        """
        cut = [_PIECE.findall(file.text) for file in files]
        sizes = np.array([len(pieces) for pieces in cut], np.int64)
        found, numbers = np.unique(np.concatenate([np.array(p, dtype=np.str_) for p in cut]), return_inverse=True)
        if words:
            known = {word: number for number, word in enumerate(words)}
            table = np.array([known.get(word, UNKNOWN) for word in found.tolist()], np.int64)
        else:
            kept = np.argsort(-np.bincount(numbers), kind="stable")[: vocabulary - len(SPECIAL)]
            table = np.full(len(found), UNKNOWN, np.int64)
            table[kept] = len(SPECIAL) + np.arange(len(kept))
            words = (*SPECIAL, *found[kept].tolist())
        return cls(table[numbers], np.repeat(np.cumsum(sizes), sizes), tuple(words))

    def spans(self, sizes: Int64, rng: np.random.Generator) -> Int64:
        """Begins of stretches of ``sizes`` pieces, drawn at random, each inside of one file; [num_stretches].

        Raises:
            ValueError: No file is as long as the longest.
        """
        fits = self.ends - np.arange(len(self.ends))
        if sizes.max(initial=0) > fits.max(initial=0):
            raise ValueError(f"stretches of {sizes.max()} pieces in files of at most {fits.max(initial=0)}")
        begins = np.full(len(sizes), -1, np.int64)
        while (left := np.flatnonzero(begins < 0)).size:
            drawn = rng.integers(0, len(fits), len(left))
            begins[left] = np.where(fits[drawn] >= sizes[left], drawn, -1)
        return begins
