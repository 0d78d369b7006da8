"""Routing of tokens to experts and their slots.

Shapes are the same whatever the values: each expert has ``capacity`` slots, and the tokens that chose it take them in
turn, first choices before second ones and earlier tokens before later ones. Who finds no slot is dropped there: the
expert adds nothing to that token. For example, with experts [[0], [1], [0], [0]] of four tokens and two slots each,
tokens 0 and 2 are in slots 0 and 1 of expert 0, token 1 in slot 2 (the first of expert 1), and token 3 is dropped.

Source: Lepikhin et al., GShard, 2020, algorithm 1 (groups, order of choices); Fedus et al., Switch Transformers, 2021,
section 2.2 (capacity, order of tokens); Zhou et al., Mixture-of-Experts with Expert Choice Routing, 2022, section 3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.experts.rows import indicators, inverse_numbers, move_rows
from abele.frontends.poptorch.program.recording import isRunningOnIpu


def capacity_of(tokens: int, num_experts: int, top_k: int, factor: float) -> int:
    """Slots of each expert for ``tokens`` that choose ``top_k`` each: ``factor`` times an equal share, rounded up.

    No expert needs more than one slot for each token.
    """
    return min(tokens, math.ceil(factor * tokens * top_k / num_experts))


@dataclass(frozen=True, eq=False)
class Routing:
    """Choices of tokens, and the slots that they found. Integers are int64 in PyTorch and int32 on the device.

    Attributes:
        experts: Chosen experts of each token, best first, [tokens, k].
        weights: Their weights, [tokens, k]; gradients flow through them.
        slots: Slot of each choice, [tokens, k]; ``num_slots`` where it was dropped.
        choices: Choice in each slot, [num_slots]: token · k + rank; tokens · k where a slot is empty.
        loads: Choices of each expert in each group of tokens, dropped ones too, [groups, experts].
        capacity: Slots of each expert, over all groups.
    """

    experts: torch.Tensor
    weights: torch.Tensor
    slots: torch.Tensor
    choices: torch.Tensor
    loads: torch.Tensor
    capacity: int

    @property
    def num_slots(self) -> int:
        """Slots of all experts."""
        return self.choices.shape[0]

    @property
    def load(self) -> torch.Tensor:
        """Choices of each expert, dropped ones too: [experts]."""
        return self.loads.sum(0)

    @property
    def dropped(self) -> torch.Tensor:
        """Choices that found no slot: int[]."""
        return (self.loads - self.capacity // self.loads.shape[0]).clamp(min=0).sum()

    def dispatch(self, tokens: torch.Tensor) -> torch.Tensor:
        """``tokens`` [tokens, dim] in the slots of experts: [experts, capacity, dim], zeros in empty slots."""
        of_slot = torch.div(self.choices, self.slots.shape[1], rounding_mode="floor")
        moved = move_rows(tokens, of_slot, self.slots)
        return moved.reshape(self.loads.shape[1], self.capacity, tokens.shape[1])

    def combine(self, made: torch.Tensor) -> torch.Tensor:
        """Results of experts in their slots, [experts, capacity, dim], as weighted sums for tokens: [tokens, dim]."""
        tokens, k = self.slots.shape
        flat = made.reshape(self.num_slots, made.shape[2])
        own = move_rows(flat, self.slots.reshape(-1), self.choices.unsqueeze(1))
        return (own.reshape(tokens, k, -1) * self.weights.to(own.dtype).unsqueeze(2)).sum(1)


def best(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``count`` largest along the last dimension, and their places; of equal ones the first."""
    if isRunningOnIpu():
        values, places = torch.topk(scores, count, dim=-1)
        return values, places
    values, places = torch.sort(scores, dim=-1, descending=True, stable=True)
    return values[..., :count], places[..., :count]


def choose_experts(
    scores: torch.Tensor, top_k: int, *, selection: torch.Tensor | None = None, normalise: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of the ``top_k`` experts of each token, and their numbers, [tokens, k]; arguments as of :func:`route`."""
    if selection is None:
        weights, experts = best(scores, top_k)
    else:
        experts = best(selection.detach(), top_k)[1]
        weights = scores.gather(1, experts)
    return weights / weights.sum(1, keepdim=True) if normalise else weights, experts


def route(
    scores: torch.Tensor,
    top_k: int,
    capacity: int,
    *,
    selection: torch.Tensor | None = None,
    normalise: bool = False,
    groups: int = 1,
) -> Routing:
    """Let each token choose experts, and give the choices slots.

    Args:
        scores: Weights of experts before any choice, such as probabilities, [tokens, experts].
        top_k: Experts of each token.
        capacity: Slots of each expert for the tokens of one group.
        selection: Scores by which experts are chosen, with noise or a bias; those that weigh when left out.
        normalise: True to divide the weights of a token by their sum.
        groups: Groups of consecutive tokens with slots of their own, as replicas have.

    Raises:
        Error: More choices than experts, no slot, tokens that do not divide into groups, scores of another shape; on
            the host also scores that are not finite.
    """
    tokens, num_experts = check_scores(scores, top_k, capacity, groups)
    weights, experts = choose_experts(scores, top_k, selection=selection, normalise=normalise)
    places, loads = places_in_experts(experts, num_experts, groups)
    # Slots of an expert lie together: those of the first group, of the second, …
    total, size = num_experts * groups * capacity, tokens // groups
    group = torch.div(torch.arange(tokens), size, rounding_mode="floor").unsqueeze(1)
    slots = torch.where(places < capacity, (experts * groups + group) * capacity + places, total)
    choices = inverse_numbers(slots.reshape(-1), total)
    return Routing(experts, weights, slots, choices, loads, groups * capacity)


def check_scores(scores: torch.Tensor, top_k: int, capacity: int, groups: int) -> tuple[int, int]:
    """Tokens and experts of scores.

    Raises:
        Error: As of :func:`route`.
    """
    if scores.dim() != 2:
        raise Error(
            f"scores of experts are [tokens, experts], not {list(scores.shape)}", remedy="scores.flatten(0, -2)"
        )
    tokens, num_experts = scores.shape
    if not 1 <= top_k <= num_experts:
        raise Error(
            f"top_k = {top_k} of {num_experts} experts", because="a token chooses between one and all of the experts"
        )
    if capacity < 1:
        raise Error(
            f"each expert has {capacity} slots for {tokens} tokens: every token would be dropped",
            remedy="a capacity of at least 1, capacity_factor=1.25, or dropless=True",
        )
    if groups < 1 or tokens % groups:
        raise Error(
            f"{tokens} tokens do not divide into {groups} groups",
            because="each replica routes the tokens of its own part of a batch",
            remedy=f"a batch whose tokens are a multiple of {groups}",
        )
    if not isRunningOnIpu() and not bool(torch.isfinite(scores).all()):
        row = int((~torch.isfinite(scores)).any(1).nonzero()[0])
        raise Error(
            f"scores of experts are not finite: token {row} has {scores[row].tolist()[:8]}",
            because="what routes tokens has diverged, or the tokens hold NaN",
            remedy="a lower learning rate, a router z-loss (z_weight=1e-3), or the router in float32",
        )
    return tokens, num_experts


def places_in_experts(experts: torch.Tensor, num_experts: int, groups: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Number of each choice among those of its expert, [tokens, k], and choices of each expert, [groups, experts].

    A running sum over indicators: first choices of all tokens of a group come before second ones.
    """
    tokens, k = experts.shape
    in_turn = experts.reshape(groups, tokens // groups, k).transpose(1, 2).reshape(groups, -1)
    chosen = indicators(in_turn, num_experts)
    place = (chosen.cumsum(1) * chosen).sum(2) - 1
    return place.reshape(groups, k, -1).transpose(1, 2).reshape(tokens, k), chosen.sum(1)


@dataclass(frozen=True, eq=False)
class ExpertChoice:
    """Tokens that experts chose: each expert as many as it has slots.

    Attributes:
        tokens: Chosen token of each slot, best first, [experts, capacity].
        weights: Their weights, [experts, capacity].
        num_tokens: Number of tokens.
    """

    tokens: torch.Tensor
    weights: torch.Tensor
    num_tokens: int

    def dispatch(self, tokens: torch.Tensor) -> torch.Tensor:
        """``tokens`` [tokens, dim] in the slots of experts: [experts, capacity, dim]."""
        return tokens.index_select(0, self.tokens.reshape(-1)).reshape(*self.tokens.shape, tokens.shape[1])

    def combine(self, made: torch.Tensor) -> torch.Tensor:
        """Results of experts, [experts, capacity, dim], as weighted sums for tokens: [tokens, dim]."""
        weighted = (made * self.weights.to(made.dtype).unsqueeze(2)).flatten(0, 1)
        return made.new_zeros((self.num_tokens, made.shape[2])).index_add(0, self.tokens.reshape(-1), weighted)


def choose_tokens(scores: torch.Tensor, capacity: int, *, groups: int = 1) -> ExpertChoice:
    """Let each expert choose ``capacity`` tokens of each group.

    Args:
        scores: Weights, [tokens, experts].
        capacity: Tokens that each expert takes of one group.
        groups: Groups of consecutive tokens.

    Raises:
        Error: As of :func:`route`; or an expert would take more tokens than there are.
    """
    tokens, num_experts = check_scores(scores, 1, capacity, groups)
    size = tokens // groups
    if capacity > size:
        raise Error(f"each expert takes {capacity} tokens of {size}", remedy=f"a capacity of at most {size}")
    by_expert = scores.T.reshape(num_experts, groups, size)
    weights, places = best(by_expert, capacity)
    numbers = places + torch.arange(0, tokens, size).reshape(1, groups, 1)
    return ExpertChoice(numbers.flatten(1), weights.flatten(1), tokens)
