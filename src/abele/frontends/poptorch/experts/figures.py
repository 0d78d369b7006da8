"""Figures of what routing cost: the load of each expert, what was dropped, experts that no token reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from abele.frontends.poptorch import logs


@dataclass(frozen=True)
class ExpertLoad:
    """Choices that the experts of a layer were given since counting began.

    Attributes:
        choices: Choices of each expert, dropped ones too.
        tokens: Tokens that were routed.
        dropped: Choices that found no slot.
        passes: Passes over the experts' slots; one per micro-batch where tokens may be dropped.
        batches: Micro-batches.
    """

    choices: tuple[int, ...]
    tokens: int
    dropped: int
    passes: int
    batches: int

    @classmethod
    def of(cls, counts: Sequence[int]) -> ExpertLoad:
        """The figures of a layer's counter: choices of each expert, tokens, dropped choices, passes, micro-batches."""
        return cls(tuple(counts[:-4]), *counts[-4:])

    @property
    def dropped_share(self) -> float:
        """Share of choices that found no slot."""
        return self.dropped / max(1, sum(self.choices))

    @property
    def imbalance(self) -> float:
        """Choices of the fullest expert over the mean: 1 where all have the same."""
        return max(self.choices) * len(self.choices) / max(1, sum(self.choices))

    @property
    def unreached(self) -> tuple[int, ...]:
        """Experts that no token reached."""
        return tuple(number for number, count in enumerate(self.choices) if count == 0)

    def warn_if_empty(self, name: str) -> ExpertLoad:
        """These figures; a warning where all experts are empty."""
        if not any(self.choices):
            logs.warn(f"no token has reached any of the {len(self.choices)} experts of {name}: it was not run")
        return self

    def __str__(self) -> str:
        unreached = f", {len(self.unreached)} of {len(self.choices)} experts unreached" if self.unreached else ""
        passes = f", {self.passes / self.batches:.2f} passes" if self.batches and self.passes > self.batches else ""
        return (
            f"{self.tokens:,} tokens, {self.dropped_share:.1%} of choices dropped, "
            f"fullest expert {self.imbalance:.2f}x the mean{passes}{unreached}"
        )
