"""Training that stays sparse: the weights of each layer are chosen anew every so many steps.

Each class is driven by ``step(*batch)``, once after each step of the optimiser, on the host or on the device:

>>> from abele.poptorch import sparse                                # doctest: +SKIP
>>> rigl = sparse.RigL(training_model, interval=100, end=3000)       # doctest: +SKIP
>>> for x, labels in loader:                                         # doctest: +SKIP
...     loss = training_model(x, labels)
...     rigl.step(x, labels)

Layers have a dynamic pattern, so that nothing is compiled again. Blocks are judged by the sum of magnitudes of their
weights, or of their gradients.

Sources: RigL: Evci et al., "Rigging the Lottery", 2020. SET: Mocanu et al., "Scalable training of artificial neural
networks with adaptive sparse connectivity", 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from abele.arrays import Array, Int64
from abele.counts import check_counts
from abele.errors import InvalidOptionError
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.sparse.carriers import PatternCarrier
from abele.frontends.poptorch.sparse.dense_gradients import DenseGradients, Loss, gradient_program, last_loss
from abele.frontends.poptorch.sparse.patterns import block_magnitudes, largest, pattern_of_places, places_of
from abele.frontends.poptorch.values.checks import check_numbers
from abele.frontends.poptorch.values.tensors import to_array
from abele.sparsity import Pattern


@dataclass(frozen=True)
class PatternChange:
    """Change of a layer by one update.

    Attributes:
        step: Number of the optimiser's step after which it was made.
        layer: Name of the layer.
        before: Pattern before.
        after: Pattern after.
        dropped: Places in the grid of blocks whose weights were given up.
        grown: Places of blocks that begin at zero.
    """

    step: int
    layer: str
    before: Pattern
    after: Pattern
    dropped: Int64
    grown: Int64


class SparseTraining:
    """Driver of the patterns of a model's sparse layers; by itself it leaves them as they are.

    Args:
        model: The model, or its training wrapper.
        optimizer: On the host, the optimiser whose moments move with the weights.
        interval: Steps between changes.
        start: First step after which patterns change.
        end: Last one; None for no end.

    Attributes:
        steps: Steps so far.
        changes: Changes of all layers by the last update.

    Raises:
        InvalidOptionError: No layer has a dynamic pattern; or steps that are no such numbers.
    """

    def __init__(
        self,
        model: torch.nn.Module | PoplarExecutor,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        interval: int = 100,
        start: int = 0,
        end: int | None = None,
    ) -> None:
        check_counts(interval=interval)
        check_counts(0, start=start, **({} if end is None else {"end": end}))
        if end is not None and end < start:
            raise InvalidOptionError(
                f"patterns cannot change every {interval} steps from {start} to {end}",
                remedy="an interval of at least 1, and an end behind the start",
            )
        self.carrier = PatternCarrier(model, optimizer)
        self.interval, self.start, self.end = interval, start, end
        self.steps = 0
        self.changes: list[PatternChange] = []

    @property
    def is_due(self) -> bool:
        """True if patterns change after the step just counted."""
        beyond = self.end is not None and self.steps > self.end
        return self.steps >= max(self.start, 1) and self.steps % self.interval == 0 and not beyond

    def step(self, *batch: Any) -> bool:
        """Count a step of the optimiser, and change patterns where that is due; returns whether they changed.

        Args:
            batch: Arguments of the model for one host batch; RigL looks at its gradients.
        """
        self.steps += 1
        if not self.is_due:
            return False
        self.changes = []
        self.update(*batch)
        return any(c.before != c.after or len(c.grown) for c in self.changes)

    def update(self, *batch: Any) -> None:
        """Change the patterns of all layers now."""

    def _carry(self, name: str, kept: Int64, grown: Int64) -> None:
        """Give a layer the pattern of kept and of grown blocks."""
        before = self.carrier.layers[name].pattern
        held = places_of(before)
        stays = np.isin(held, kept)
        after = pattern_of_places(before, np.concatenate([held[stays], grown]))
        self.carrier.carry(name, after, stays)
        self.changes.append(PatternChange(self.steps, name, before, after, held[~stays], np.sort(grown)))

    def _magnitudes(self, name: str) -> Array:
        """Sum of magnitudes of each held block [blocks]."""
        return np.asarray(np.abs(self.carrier.values(name).astype(np.float64)).sum((1, 2)))

    def state_dict(self) -> dict[str, Any]:
        """Steps: all that a checkpoint needs beside model and optimiser."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.steps = int(state["steps"])


class Fixed(SparseTraining):
    """Patterns that stay as they are."""


class _DropAndGrow(SparseTraining):
    """A share of the weakest blocks is dropped, and as many others are grown; the share follows half a cosine to zero.

    Args:
        model: The model, or its training wrapper.
        optimizer: On the host, the optimiser whose moments move with the weights.
        fraction: Share of the held blocks that the first update replaces.
        interval: Steps between changes.
        start: First step after which patterns change.
        end: Last one, at which the share is zero.

    Raises:
        InvalidOptionError: A fraction that is not between 0 and 1; see also :class:`SparseTraining`.
    """

    def __init__(
        self,
        model: torch.nn.Module | PoplarExecutor,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        end: int,
        fraction: float = 0.3,
        interval: int = 100,
        start: int = 0,
    ) -> None:
        super().__init__(model, optimizer, interval=interval, start=start, end=end)
        check_numbers(fraction=fraction)
        if not 0 <= fraction <= 1:
            raise InvalidOptionError(f"the share of blocks that are replaced is between 0 and 1, got {fraction}")
        self.fraction = fraction

    @property
    def share(self) -> float:
        """Share of the held blocks that an update replaces now."""
        assert self.end is not None
        return self.fraction / 2 * (1 + math.cos(math.pi * min(self.steps / max(self.end, 1), 1)))

    def _weakest(self, name: str) -> tuple[Int64, Int64]:
        """Places of a layer's blocks to keep, and of those to drop."""
        held = places_of(self.carrier.layers[name].pattern)
        order = largest(self._magnitudes(name), len(held))
        count = len(held) - self._count(name)
        return np.sort(held[order[:count]]), np.sort(held[order[count:]])

    def _count(self, name: str) -> int:
        """Blocks that an update replaces: no more than are free beside those that are held."""
        pattern = self.carrier.layers[name].pattern
        free = pattern.grid[0] * pattern.grid[1] - pattern.num_blocks
        return min(int(self.share * pattern.num_blocks), free)


class SET(_DropAndGrow):
    """Blocks of the smallest magnitude are dropped, and others grown at random.

    Args:
        model: The model, or its training wrapper.
        optimizer: On the host, the optimiser whose moments move with the weights.
        seed: Seed of the draws.
        more: ``end``, ``fraction``, ``interval`` and ``start``.

    Raises:
        InvalidOptionError: Numbers outside their ranges, or no dynamic layer.
    """

    def __init__(
        self,
        model: torch.nn.Module | PoplarExecutor,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        seed: int = 0,
        **more: Any,
    ) -> None:
        super().__init__(model, optimizer, **more)
        self._random = np.random.default_rng(seed)

    def update(self, *batch: Any) -> None:
        """Drop and grow."""
        for name, layer in self.carrier.layers.items():
            kept, dropped = self._weakest(name)
            pattern = layer.pattern
            free = np.setdiff1d(np.arange(pattern.grid[0] * pattern.grid[1]), places_of(pattern), assume_unique=True)
            self._carry(name, kept, self._random.choice(free, len(dropped), replace=False))

    def state_dict(self) -> dict[str, Any]:
        """Steps, and the generator."""
        return {**super().state_dict(), "random": self._random.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint, with the same draws."""
        super().load_state_dict(state)
        self._random.bit_generator.state = state["random"]


class RigL(_DropAndGrow):
    """Blocks of the smallest magnitude are dropped, and those grown whose gradients are largest.

    Gradients of weights that are not held come from a second program, which runs at updates alone
    (:mod:`abele.frontends.poptorch.sparse.dense_gradients`); on the host from a pass of its own.

    Args:
        model: The model, or its training wrapper.
        optimizer: On the host, the optimiser whose moments move with the weights.
        loss: Finds the loss in what the model returns; by default the last tensor of one element.
        more: ``end``, ``fraction``, ``interval`` and ``start``.

    Raises:
        InvalidOptionError: Numbers outside their ranges, or no dynamic layer.
    """

    def __init__(
        self,
        model: torch.nn.Module | PoplarExecutor,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        loss: Loss = last_loss,
        **more: Any,
    ) -> None:
        super().__init__(model, optimizer, **more)
        self.loss = loss
        self._program: Callable[..., Any] | None = None

    def update(self, *batch: Any) -> None:
        """Drop and grow.

        Raises:
            InvalidOptionError: No batch was given.
        """
        gradients = self.gradients(*batch)
        for name, layer in self.carrier.layers.items():
            kept, dropped = self._weakest(name)
            scores = block_magnitudes(gradients[name], layer.pattern.block).reshape(-1)
            free = np.setdiff1d(np.arange(scores.size), kept, assume_unique=True)
            self._carry(name, kept, free[largest(scores[free], len(dropped))])

    def gradients(self, *batch: Any) -> dict[str, Array]:
        """Dense gradients of all layers for one batch, [out, in] by name."""
        if not batch:
            raise InvalidOptionError("RigL looks at gradients of a batch", remedy="rigl.step(*batch), every step")
        layers, target = self.carrier.layers, self.carrier.target
        if self._program is None:
            self._program = (
                gradient_program(target, layers, self.loss)
                if isinstance(target, PoplarExecutor)
                else DenseGradients(target, layers, self.loss)
            )
        made = self._program(*batch)
        return {name: np.array(to_array(g)) for name, g in zip(layers, made, strict=True)}
