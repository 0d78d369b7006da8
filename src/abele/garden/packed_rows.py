"""Rows of a model of sequences: one sequence and padding, or a pack of sequences, with the losses of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from abele.garden.pretraining import PretrainingSequences, masked_tokens
from abele.packing import Packs

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowSizes:
    """Sizes of a row, the same for all rows of a program.

    Attributes:
        tokens: Tokens of a row.
        depth: Most sequences in it.
    """

    tokens: int
    depth: int

    @property
    def masked(self) -> int:
        """Most tokens to be guessed: sequences round their shares up by half a token at most, or from none to one."""
        return int(masked_tokens(np.array([self.tokens]))[0]) + self.depth - 1


@dataclass(frozen=True)
class PretrainingRows:
    """What a model of packed rows is given, in the order of its inputs.

    ``tokens``, ``segments``, ``positions``, ``ids`` [rows, tokens]: positions start again in each sequence; ids number
    the sequences from 1, and padding is 0. ``places``, ``labels``, ``weights`` [rows, masked]: weights of a sequence's
    tokens add up to 1. ``firsts``, ``in_order``, ``there`` [rows, depth]: first tokens, and 1 where there is a sequence.
    """

    arrays: tuple[torch.Tensor, ...]
    num_sequences: int

    @classmethod
    def of(cls, sequences: PretrainingSequences, packs: Packs, sizes: RowSizes) -> PretrainingRows:
        """A row for each pack of sequences, by their numbers."""
        lengths, items, rows = sequences.lengths, packs.items, len(packs)
        row = packs.pack_of_slot
        slot = np.arange(len(items)) - packs.begins[row]
        after = np.cumsum(lengths[items])
        offset = after - lengths[items]
        offset -= offset[packs.begins[row]]
        whose = np.repeat(np.arange(len(items)), lengths[items])
        place = np.arange(len(whose)) - (after - lengths[items])[whose]
        source = sequences.begins[items][whose] + place
        at = row[whose], offset[whose] + place
        blocks = [np.zeros((rows, sizes.tokens), np.int64) for _ in range(4)]
        for block, values in zip(
            blocks, (sequences.tokens[source], sequences.segments[source], place, slot[whose] + 1), strict=True
        ):
            block[at] = values
        heads = [np.zeros((rows, sizes.depth), np.int64) for _ in range(2)]
        heads[0][row, slot], heads[1][row, slot] = offset, sequences.in_order[items]
        there = np.zeros((rows, sizes.depth), np.float32)
        there[row, slot] = 1
        guessed = np.zeros(len(sequences.tokens) + 1, np.int64)
        guessed[1:][sequences.places] = 1
        masked = np.flatnonzero(guessed[1:][source])
        counts = np.bincount(whose[masked], minlength=len(items))
        their_row = at[0][masked]
        begins = np.searchsorted(their_row, np.arange(rows))
        their_slot = np.arange(len(masked)) - begins[their_row]
        number = np.cumsum(guessed)[source[masked]]
        words = [np.zeros((rows, sizes.masked), np.int64) for _ in range(2)]
        words[0][their_row, their_slot] = at[1][masked]
        words[1][their_row, their_slot] = sequences.labels[number]
        weights = np.zeros((rows, sizes.masked), np.float32)
        weights[their_row, their_slot] = 1 / counts[whose[masked]]
        made = (*blocks, *words, weights, *heads, there)
        return cls(tuple(torch.from_numpy(array) for array in made), len(items))


def one_each(count: int) -> Packs:
    """A row for each sequence."""
    return Packs(np.arange(count), np.arange(count + 1))


def shuffled(packs: Packs, seed: int) -> Packs:
    """The packs in another order."""
    order = np.random.default_rng(seed).permutation(len(packs))
    depths = packs.depths[order]
    begins = np.concatenate([[0], np.cumsum(depths)])
    at = np.repeat(packs.begins[order] - begins[:-1], depths) + np.arange(len(packs.items))
    return Packs(packs.items[at], begins)
