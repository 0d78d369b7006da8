"""Packs for the ranks of data-parallel training: as many for each, and as much work in every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import InvalidOptionError, PackingError
from abele.packing.histogram import checked_sizes
from abele.packing.packs import Packs
from abele.packing.solve import at_least_one
from abele.words import counted

Work = Literal["tokens", "attention", "items"]
Leftover = Literal["refuse", "drop", "repeat"]

_MIXED_STEPS = 64
"""Steps whose packs are sorted together: many enough for packs alike, few enough that steps differ little."""


@dataclass(frozen=True, eq=False)
class RankPacks:
    """Packs that each rank trains on in each step.

    Attributes:
        packs: Numbers of packs, int64[num_steps, num_ranks, batch].
        work: Work of each rank in each step, [num_steps, num_ranks].
        left_out: Packs that no rank has, int64[num_left_out].
    """

    packs: Int64
    work: npt.NDArray[np.float64]
    left_out: Int64

    def of_rank(self, rank: int) -> Int64:
        """Packs of one rank, step by step, int64[num_steps * batch]."""
        if not 0 <= rank < self.packs.shape[1]:
            raise PackingError(f"rank {rank} of {self.packs.shape[1]}")
        return self.packs[:, rank].reshape(-1)

    @property
    def imbalance(self) -> float:
        """Extra training time over evenly shared work, as a proportion: 0 is balanced."""
        return float(self.work.max(axis=1).sum() / self.work.mean(axis=1).sum() - 1)


def share_packs(
    packs: Packs,
    sizes: npt.ArrayLike,
    num_ranks: int,
    *,
    batch: int = 1,
    work: Work | npt.ArrayLike = "tokens",
    leftover: Leftover = "refuse",
    seed: int | None = None,
) -> RankPacks:
    """Share packs among ranks, each having ``batch`` of them in every step.

    All ranks wait in every step for the one with the most work. So packs of neighbouring steps are sorted by their
    work and dealt out to the ranks back and forth: packs that meet in one step are nearly alike.

    Args:
        packs: The packs.
        sizes: The items' lengths, integers of shape [num_items] or [num_items, num_capacities] (the first one counts).
        num_ranks: Ranks.
        batch: Packs of each rank in a step.
        work: Quantity to balance: ``tokens``; ``attention``, the sum of squares of the lengths; ``items``; or the
            work of each pack, numbers of shape [num_packs].
        leftover: Treatment of packs that do not make a whole step: ``refuse`` raises, ``drop`` leaves out those with
            the least work, ``repeat`` fills up with packs that are there, those with the least work.
        seed: Shuffles packs and steps.

    Raises:
        PackingError: The packs do not make whole steps and ``leftover`` is ``refuse``, or are fewer than one step.
        InvalidOptionError: ``work`` or ``leftover`` is none of these.
    """
    num_ranks, batch = at_least_one(num_ranks, "a number of ranks"), at_least_one(batch, "a batch of packs")
    cost = _work_of(packs, sizes, work)
    order, left_out = _whole_steps(cost, num_ranks * batch, leftover)
    generator = None if seed is None else np.random.default_rng(seed)
    if generator is not None:
        generator.shuffle(order)
    per_mix = _MIXED_STEPS * num_ranks * batch
    order = order[np.lexsort((cost[order], np.arange(len(order)) // per_mix))]
    whole = len(order) // per_mix * per_mix
    dealt = [
        _dealt(part, num_ranks, batch)
        for part in (order[:whole].reshape(-1, per_mix), order[whole:].reshape(1, -1))
        if part.size
    ]
    table = np.concatenate(dealt)
    if generator is not None:
        table = table[generator.permutation(len(table))]
    return RankPacks(table, cost[table].sum(axis=2), left_out)


def _dealt(mixes: Int64, num_ranks: int, batch: int) -> Int64:
    """Sorted packs of some mixes [num_mixes, packs] as steps [num_steps, num_ranks, batch].

    Neighbours in a mix go to the ranks of one step; every other time from the last rank to the first, so that no rank
    has the larger ones always. Packs of one rank's batch are far apart.
    """
    num_steps = mixes.shape[1] // (num_ranks * batch)
    table = mixes.reshape(len(mixes), batch, num_steps, num_ranks)
    backwards = (np.arange(batch)[:, None] + np.arange(num_steps)[None, :]) % 2 == 1
    table = np.where(backwards[None, :, :, None], table[..., ::-1], table)
    return table.transpose(0, 2, 3, 1).reshape(-1, num_ranks, batch)


def _work_of(packs: Packs, sizes: npt.ArrayLike, work: Work | npt.ArrayLike) -> npt.NDArray[np.float64]:
    if not isinstance(work, str):
        given = np.asarray(work, np.float64)
        if given.shape != (len(packs),) or not np.isfinite(given).all() or (given < 0).any():
            raise PackingError(
                f"the work of {counted(len(packs), 'pack')} is as many numbers of at least 0, got an array of shape "
                f"{list(given.shape)}" + ("" if np.isfinite(given).all() else " with NaN or infinity")
            )
        return given
    if work == "items":
        return packs.depths.astype(np.float64)
    if work not in ("tokens", "attention"):
        raise InvalidOptionError(f"work is 'tokens', 'attention', 'items' or an array, got {work!r}")
    lengths = checked_sizes(sizes)[:, 0].astype(np.float64)
    if len(packs.items) and int(packs.items.max()) >= len(lengths):
        raise PackingError(f"packs have item {int(packs.items.max()):,}, there are {len(lengths):,} sizes")
    return np.add.reduceat((lengths if work == "tokens" else lengths**2)[packs.items], packs.begins[:-1])


def _whole_steps(cost: npt.NDArray[np.float64], per_step: int, leftover: Leftover) -> tuple[Int64, Int64]:
    """Numbers of the packs to share out, a multiple of ``per_step``, and of those left out."""
    if leftover not in ("refuse", "drop", "repeat"):
        raise InvalidOptionError(f"leftover is 'refuse', 'drop' or 'repeat', got {leftover!r}")
    num_packs, over = len(cost), len(cost) % per_step
    none = np.empty(0, np.int64)
    if not over and num_packs:
        return np.arange(num_packs), none
    if num_packs == 0 or leftover == "refuse" or (leftover == "drop" and num_packs < per_step):
        raise PackingError(
            f"{counted(num_packs, 'pack')} make {counted(num_packs // per_step, 'step')} of {per_step:,}, and "
            f"{over:,} are left",
            remedy="leftover='drop' to leave some out, leftover='repeat' to use some twice, or fewer ranks",
        )
    least = np.argsort(cost, kind="stable")
    if leftover == "drop":
        return np.sort(least[over:]), np.sort(least[:over])
    return np.concatenate([np.arange(num_packs), np.resize(least, per_step - over)]), none
