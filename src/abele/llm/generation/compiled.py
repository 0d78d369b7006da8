"""Generation on the modelled machine: prefill and decode as programs of one executable over one resident cache.

A call of 8 steps is two runs of the executable: ``begin`` writes last tokens, positions and steps left into buffers,
and ``decode`` loops on the device until nobody has steps left. Only tokens come back. With the programs of all kinds
of requests there are six: ``prefill``, ``begin``, ``greedy``, and ``recall``, ``drawn`` and ``copy`` for penalties,
draws and beams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from abele import poptorch
from abele.llm.cache import PagedCache
from abele.llm.generation.backend import MOST_END_IDS, DecodeCall, DecodedTokens, Ints, PrefillCall, Shape
from abele.llm.generation.eager import settings_of
from abele.llm.generation.events import StepCost
from abele.llm.generation.requests import RequestError
from abele.llm.generation.steps import DecodeStep, PrefillChunk, TokenChoice
from abele.llm.models.causal import CausalModel
from abele.llm.sampling import SettingTensors

Tensor = torch.Tensor


class BeginCall(nn.Module):
    """The state before a decode call."""

    def __init__(self, step: DecodeStep) -> None:
        super().__init__()
        self.step = step

    def forward(self, tokens: Tensor, first: Tensor, steps: Tensor) -> Tensor:
        """Last tokens, their positions and steps left, i32[slots] each; returns the steps."""
        self.step.begin(tokens, first, steps)
        return steps + 0


class RecallTokens(nn.Module):
    """The tokens that each sequence has seen, for penalties on repeating them."""

    def __init__(self, step: DecodeStep) -> None:
        super().__init__()
        self.step = step

    def forward(self, history: Tensor) -> Tensor:
        """Tokens of each sequence, i32[slots, positions], padded with one of them; returns the first ones."""
        self.step.recall(history)
        return history[:, 0] + 0


class GreedyTrip(nn.Module):
    """A step in which every slot takes its most likely token."""

    def __init__(self, step: DecodeStep) -> None:
        super().__init__()
        self.step = step

    def forward(self, table: Tensor, end_ids: Tensor) -> tuple[Tensor, ...]:
        """Tokens made so far, their counts, and log-probabilities where they are reported."""
        self.step(table, end_ids, None)
        return self.step.results()


class DrawnTrip(nn.Module):
    """A step in which slots draw, each by its own settings."""

    def __init__(self, step: DecodeStep) -> None:
        super().__init__()
        self.step = step

    def forward(
        self,
        table: Tensor,
        end_ids: Tensor,
        temperature: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        min_p: Tensor,
        penalty: Tensor,
        seeds: Tensor,
    ) -> tuple[Tensor, ...]:
        """Tokens made so far, their counts, and log-probabilities where they are reported."""
        self.step(table, end_ids, SettingTensors(temperature, top_k, top_p, min_p, penalty, seeds))
        return self.step.results()


class CopyPages(nn.Module):
    """Pages of a cache copied to others, all read before any is written."""

    def __init__(self, cache: PagedCache) -> None:
        super().__init__()
        self.cache = cache

    def forward(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Copies page ``sources[i]`` to page ``targets[i]``, i32[slots] each; returns the targets."""
        page = self.cache.page
        within = torch.arange(page, dtype=torch.int32)
        read, write = ((pages[:, None] * page + within).flatten() for pages in (sources, targets))
        for layer in range(self.cache.layers):
            for table in self.cache.tables(layer):
                table.index_copy_(0, write.long(), table.index_select(0, read.long()))
        return targets + 0


class CompiledBackend:
    """A model and its cache as one executable.

    Args:
        model: The model.
        shape: Sizes of calls.
        options: Options of the executable.
        draws: False for greedy requests alone, which saves the programs of the others.
    """

    def __init__(
        self, model: CausalModel, shape: Shape, options: poptorch.Options | None = None, *, draws: bool = True
    ) -> None:
        self.model, self._shape, self.draws = model.eval(), shape, draws
        dtype = next(model.parameters()).dtype
        self.cache = PagedCache.of(model.config, pages=shape.pages, page=shape.page, dtype=dtype)
        modules = _modules(model, self.cache, shape, draws)
        self.programs = poptorch.programs(modules, options, examples=_examples(shape, modules))
        self._costs: dict[tuple[str, int, int], StepCost] = {}

    @property
    def shape(self) -> Shape:
        """Sizes of its calls."""
        return self._shape

    @property
    def vocabulary(self) -> int:
        """Tokens that the model knows."""
        return self.model.config.vocabulary

    def prefill(self, call: PrefillCall) -> StepCost:
        """Writes the keys and values of a chunk to the cache."""
        first, count = (torch.tensor([x], dtype=torch.int32) for x in (call.first, call.count))
        self.programs.run(
            "prefill", torch.from_numpy(call.tokens)[None], first, count, torch.from_numpy(call.table)[None]
        )
        return self._cost("prefill", 1, call.first + call.count)

    def decode(self, call: DecodeCall) -> DecodedTokens:
        """Draws tokens for every slot, and writes the keys and values of what it is given.

        Raises:
            RequestError: A draw, of a backend without them.
        """
        choice, last = TokenChoice.of(call), int((call.first + call.steps).max())
        if not self.draws and (choice.drawn or choice.penalised):
            raise RequestError("a draw or a penalty, of a backend for greedy requests", remedy="draws=True")
        table, end_ids = torch.from_numpy(call.table), torch.from_numpy(call.end_ids)
        self.programs.run("begin", *(torch.from_numpy(x) for x in (call.tokens, call.first, call.steps)))
        cost = self._cost("begin", 1, 1)
        if call.history is not None:
            self.programs.run("recall", torch.from_numpy(call.history))
            cost += self._cost("recall", 1, 1)
        if choice.drawn or choice.penalised:
            name, results = "drawn", self.programs.run("drawn", table, end_ids, *settings_of(call))
        else:
            name, results = "greedy", self.programs.run("greedy", table, end_ids)
        made, counts, *reports = (result.numpy() for result in results)
        cost += self._cost(name, int(counts.max()), last)
        named = dict(zip(("logprobs", "top_ids", "top_logprobs"), reports, strict=False))
        return DecodedTokens(tokens=made, counts=counts, cost=cost, **named)

    def copy_pages(self, sources: Ints, targets: Ints) -> StepCost:
        """Copies pages of the cache, all read before any is written."""
        cost = StepCost()
        # Targets are fresh pages: what one run writes no later one reads.
        for first in range(0, len(sources), self.shape.slots):
            padded = np.zeros((2, self.shape.slots), np.int32)
            for row, pages in zip(padded, (sources, targets), strict=True):
                part = pages[first : first + self.shape.slots]
                row[: len(part)] = part
            self.programs.run("copy", torch.from_numpy(padded[0]), torch.from_numpy(padded[1]))
            cost += self._cost("copy", 1, 1)
        return cost

    def _cost(self, name: str, trips: int, positions: int) -> StepCost:
        """Modelled time of the run just made.

        Runs of one program with as many trips, over sequences whose longest has as many pages up to a power of two,
        are taken to cost what the first of them does: counting a run takes longer than making it.
        """
        pages = -(-positions // self.shape.page)
        key = (name, trips, (pages - 1).bit_length())
        if key not in self._costs:
            report = self.programs.report()
            self._costs[key] = StepCost(int(report.total_cycles), report.seconds(report.total_cycles))
        return self._costs[key]


def _modules(model: CausalModel, cache: PagedCache, shape: Shape, draws: bool) -> dict[str, Any]:
    """Modules of the programs, what runs most first."""
    greedy = DecodeStep(model, cache, shape, TokenChoice(drawn=False, filtered=False, penalised=False))
    made: dict[str, Any] = {"greedy": poptorch.Loop(GreedyTrip(greedy), shape.steps, "step.alive")}
    if draws:
        drawn = DecodeStep(model, cache, shape, TokenChoice())
        drawn.share_state(greedy)
        made["drawn"] = poptorch.Loop(DrawnTrip(drawn), shape.steps, "step.alive")
        made["recall"] = RecallTokens(drawn)
    made["prefill"] = PrefillChunk(model, cache)
    made["begin"] = BeginCall(greedy)
    if shape.top > 1:
        made["copy"] = CopyPages(cache)
    return made


def _examples(shape: Shape, names: Mapping[str, Any]) -> dict[str, tuple[Tensor, ...]]:
    """Arguments of each program."""

    def ints(*sizes: int) -> Tensor:
        return torch.zeros(sizes, dtype=torch.int32)

    slots = shape.slots
    settings = (torch.zeros(slots), ints(slots), *(torch.ones(slots) for _ in range(3)), ints(slots))
    found = {
        "greedy": (ints(slots, shape.table), ints(slots, MOST_END_IDS)),
        "drawn": (ints(slots, shape.table), ints(slots, MOST_END_IDS), *settings),
        "recall": (ints(slots, shape.positions),),
        "prefill": (ints(1, shape.chunk), ints(1), ints(1), ints(1, shape.table)),
        "begin": (ints(slots), ints(slots), ints(slots)),
        "copy": (ints(slots), ints(slots)),
    }
    return {name: example for name, example in found.items() if name in names}
