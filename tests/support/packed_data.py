"""Oracles for packed data: plain loops over samples, and samples to try them on."""

from __future__ import annotations

from typing import Any

import numpy as np

from abele.packing.data import Ragged
from abele.packing.packs import Packs


def first_fit(sizes: Any, capacity: Any, depth: int) -> Packs:
    """Packs by first fit, one sample after the other."""
    rows = np.asarray(sizes).reshape(len(sizes), -1)
    limits = np.asarray(capacity).reshape(-1)
    packs: list[list[int]] = []
    rooms: list[Any] = []
    for number, size in enumerate(rows):
        for pack, room in zip(packs, rooms, strict=True):
            if len(pack) < depth and (size <= room).all():
                pack.append(number)
                room -= size
                break
        else:
            packs.append([number])
            rooms.append(limits - size)
    return packs_of(packs)


def packs_of(packs: list[list[int]]) -> Packs:
    """Packs of lists."""
    items = np.array([number for pack in packs for number in pack], np.int64)
    return Packs(items, np.append(0, np.cumsum([len(pack) for pack in packs])).astype(np.int64))


def random_ragged(rng: np.random.Generator, lengths: Any, high: int = 50) -> Ragged:
    """Token ids from 1 of sequences of these lengths."""
    return Ragged.of_lengths(rng.integers(1, high, int(np.sum(lengths))), np.asarray(lengths))
