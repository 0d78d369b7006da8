"""Seeds of the random numbers that f16 results are rounded by: the state of every replica's generators."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.runtime.memory.host_memory import address_of, aligned_block

_STEP = 0x9E3779B97F4A7C15
"""Increment of the state in each superstep, or run of host kernels, that rounds. Source: the increment of SplitMix64,
the golden ratio.

Source: the increment of SplitMix64, the golden ratio.
"""
_WORD = (1 << 64) - 1


class Seeds:
    """Seeds u32[replicas, tiles, workers, 4], and their changes by supersteps.

    The first 64 bits of a replica's seeds count the supersteps, and runs of host kernels, that have rounded; all the
    others tell replicas and programs apart. Equal seeds give equal rounding, whatever ran before they were set.

    Args:
        shape: Tiles and workers of one replica.
        replicas: Number of replicas, which start with the same seeds.

    Attributes:
        replicas: Number of replicas.
    """

    def __init__(self, shape: tuple[int, int], replicas: int) -> None:
        self._shape = (*shape, 4)
        self.replicas = replicas
        # States, then a word that stays 0.
        self._words: Int64 = aligned_block(8 * (replicas + 1)).view(np.int64)
        self._rest: list[npt.NDArray[np.uint32]] = []
        self.reset()

    @property
    def shape(self) -> tuple[int, ...]:
        """Tiles, workers and 4."""
        return self._shape

    @property
    def zero(self) -> int:
        """Address of a word that stays 0."""
        return address_of(self._words) + 8 * self.replicas

    def address(self, replica: int) -> int:
        """Address of a replica's state."""
        return address_of(self._words) + 8 * replica

    @property
    def step(self) -> int:
        """Increment of the state by a superstep that rounds, as a signed word."""
        return signed(_STEP)

    def reset(self, seed: int = 0) -> None:
        """Set the seeds from one number, in every replica alike, when the program is loaded again."""
        first = np.zeros(self._shape, dtype=np.uint32)
        first.reshape(-1)[2:4] = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
        self._rest = [first.copy() for _ in range(self.replicas)]
        for replica in range(self.replicas):
            self.set(self._rest[replica], replica)

    def set(self, seeds: npt.NDArray[np.uint32], replica: int) -> None:
        """Go on from other seeds, u32[tiles, workers, 4]."""
        kept = np.array(seeds, dtype=np.uint32).reshape(self._shape)
        first = int(kept.reshape(-1)[:2].view(np.uint64)[0])
        self._rest[replica] = kept
        self._words[replica] = signed(first + _digest(kept))

    def get(self, replica: int) -> npt.NDArray[np.uint32]:
        """Seeds from which :meth:`set` would go on as if nothing had happened."""
        seeds = self._rest[replica].copy()
        first = (int(self._words[replica]) - _digest(seeds)) & _WORD
        seeds.reshape(-1)[:2].view(np.uint64)[0] = first
        return seeds


def group_offset(compute_set: int, position: int) -> int:
    """Number that tells the random numbers of a program's vertex groups apart, as a signed word."""
    return _offset(f"{compute_set} {position}")


def run_offset(number: int) -> int:
    """Number that tells the random numbers of a program's runs of host kernels apart, as a signed word."""
    return _offset(f"host kernels {number}")


def _offset(name: str) -> int:
    return signed(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little"))


def signed(number: int) -> int:
    """The low 64 bits of a number, as a signed one."""
    number &= _WORD
    return number - (1 << 64) if number >> 63 else number


def _digest(seeds: npt.NDArray[np.uint32]) -> int:
    """64 bits of all seeds but the first two words."""
    rest = np.ascontiguousarray(seeds).reshape(-1)[2:]
    return int.from_bytes(hashlib.blake2b(rest.tobytes(), digest_size=8).digest(), "little")
