"""Costs of a chain: what its segments take, as arrays, and which parameters they have in common.

Tiles that are alike in all segments are one column. So is a tile that nowhere needs more than some other one: whatever
is asked of these arrays grows with each entry, so such a tile is never the fullest. What is a hundredth below another
one counts as no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from abele.fitting.chain import SegmentChain
from abele.fitting.measure import Bytes, SegmentCosts
from abele.network import Group, Optimiser


@dataclass(frozen=True, eq=False)
class ChainCosts:
    """Costs of the segments of a chain.

    Attributes:
        chain: The chain.
        segments: Costs of each segment.
        kinds: A number for each segment, equal for equal ones.
        groups: Optimisers and the parameters that they update; None for inference.
        arrays: Bytes by name of the field, int64[segments, columns].
    """

    chain: SegmentChain
    segments: tuple[SegmentCosts, ...]
    kinds: tuple[int, ...]
    groups: tuple[Group, ...] | None
    arrays: dict[str, Bytes]

    FIELDS: ClassVar = (
        "resident",
        "accumulators",
        "state",
        "code",
        "code_again",
        "forward_again",
        "vertex_code",
        "overhead",
        "peak",
    )

    @staticmethod
    def of(
        chain: SegmentChain,
        segments: Sequence[SegmentCosts],
        kinds: Sequence[int],
        groups: tuple[Group, ...] | None = None,
    ) -> ChainCosts:
        """The costs of a chain."""
        distinct = list({id(s): s for s in segments}.values())
        rows = np.concatenate([np.stack([getattr(s, f) for f in ChainCosts.FIELDS]) for s in distinct])
        kept = fullest_columns(rows, SLACK)
        arrays = {f: np.stack([getattr(s, f)[kept] for s in segments]) for f in ChainCosts.FIELDS}
        return ChainCosts(chain, tuple(segments), tuple(kinds), groups, arrays)

    @property
    def training(self) -> bool:
        """True if there is a backward pass."""
        return self.groups is not None

    @property
    def count(self) -> int:
        """Segments."""
        return len(self.segments)

    @cached_property
    def borrowed(self) -> list[list[Borrowed]]:
        """For each segment the parameters that it shares with earlier ones."""
        return _borrowed(self)


SLACK = 0.01
"""Part of its bytes that a tile may be called too empty, a tenth of the error of estimates. A third of the tiles of an
encoder layer stand for all then, else two thirds."""


def fullest_columns(rows: Bytes, slack: float = 0.0) -> npt.NDArray[np.intp]:
    """Columns of which no other has as much or more in every row; of equal ones the first.

    Args:
        rows: int64[rows, columns].
        slack: Part by which a column may have more than another one that stands for it.
    """
    _, first = np.unique(rows, axis=1, return_index=True)
    order = first[np.argsort(-rows[:, first].sum(axis=0), kind="stable")]
    # A column can only be outdone by one with a larger sum, and then by one that nothing outdoes. With slack the former
    # is a choice: the fullest stand for others first.
    kept = (1 + slack) * rows[:, order[:1]]
    found = [int(order[0])]
    for column in order[1:].tolist():
        if not (kept >= rows[:, column, None]).all(axis=0).any():
            kept = np.concatenate([kept, (1 + slack) * rows[:, column, None]], axis=1)
            found.append(column)
    return np.sort(np.array(found, np.intp))


@dataclass(frozen=True)
class Borrowed:
    """Parameter shared with an earlier segment, as embeddings that also decide between tokens.

    Attributes:
        owner: The first segment that reads it.
        weight_bytes: Its elements.
        sum_bytes: Its accumulator.
        state_bytes: The optimiser's state of it.
    """

    owner: int
    weight_bytes: int
    sum_bytes: int
    state_bytes: int


def _borrowed(costs: ChainCosts) -> list[list[Borrowed]]:
    chain = costs.chain
    rules: Mapping[object, Optimiser] = {p: g.optimiser for g in costs.groups or () for p in g.parameters}
    parameters, owner = set(chain.net.parameters), dict[object, int]()
    found: list[list[Borrowed]] = []
    for number, segment in enumerate(chain.segments):
        shared: list[Borrowed] = []
        for value in dict.fromkeys(v for op in chain.net.ops[segment.begin : segment.end] for v in op.inputs):
            if value not in parameters or owner.setdefault(value, number) == number:
                continue
            own, size = costs.segments[number], value.size * value.dtype.bytes
            sums = value.size * rules[value].accumulation.bytes if value in rules else 0
            per_byte = own.state_bytes / own.gradient_bytes if value in rules and own.gradient_bytes else 0.0
            shared.append(Borrowed(owner[value], size, sums, round(per_byte * size)))
        found.append(shared)
    return found
