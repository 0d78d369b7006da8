"""Experts that drop no token: passes over slots, as many as the fullest expert needs.

The experts' weights stay where they are, and the exchange is compiled, so a pass is a capacity form of its own: pass p
takes the choices p · C to (p + 1) · C − 1 of each expert. A loop on the device goes on while an expert has choices
left: a balanced router needs one pass, one that sends everything to one expert tokens · k / C.

The number of passes is data, and nothing of a pass is kept: the backward pass is the same loop, which makes the hidden
values again. With 2 experts of 2 slots, choices [0, 0, 1, 0] take two passes: tokens 0, 1 and 2, then token 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from abele.frontends.poptorch.experts.feed_forward import ExpertWeights, apply_experts, experts_backward
from abele.frontends.poptorch.experts.parallel import from_experts, largest_of_replicas, to_experts
from abele.frontends.poptorch.experts.routing import places_in_experts
from abele.frontends.poptorch.experts.rows import indicators, inverse_numbers, rows_of, sum_of_rows
from abele.frontends.poptorch.program.recording import isRunningOnIpu

Tensor = torch.Tensor


@dataclass(frozen=True)
class PassSettings:
    """Settings of all passes.

    Attributes:
        capacity: Slots of an expert in a pass.
        activation: Name of the experts' activation.
        group_size: Replicas that share the experts.
    """

    capacity: int
    activation: str
    group_size: int = 1


@dataclass(frozen=True, eq=False)
class ChoicesInOrder:
    """Choices of tokens in the order of their experts.

    Attributes:
        order: Choices, those of expert 0 first, [tokens · k].
        load: Choices of each expert, [experts].
        experts: Expert of each choice, [tokens, k].
        places: Number of each choice among those of its expert, [tokens, k].
        passes: Number of passes, int[].
    """

    order: Tensor
    load: Tensor
    experts: Tensor
    places: Tensor
    passes: Tensor

    @classmethod
    def of(cls, experts: Tensor, num_experts: int, settings: PassSettings) -> ChoicesInOrder:
        """The order of choices [tokens, k], a counting sort."""
        places, loads = places_in_experts(experts, num_experts)
        load = loads[0]
        starts = load.cumsum(0) - load
        rank = (indicators(experts, num_experts) * starts).sum(2) + places
        order = inverse_numbers(rank.reshape(-1), rank.numel())
        passes = torch.div(load.max() + settings.capacity - 1, settings.capacity, rounding_mode="floor")
        return cls(order, load, experts, places, largest_of_replicas(passes))

    def tensors(self) -> tuple[Tensor, ...]:
        """The attributes in their order."""
        return self.order, self.load, self.experts, self.places, self.passes

    def token_of(self, choice: Tensor) -> Tensor:
        """Token of each choice; a number past all tokens for none."""
        return torch.div(choice, self.experts.shape[1], rounding_mode="floor")

    def in_slots(self, rows: Tensor, numbers: Tensor) -> Tensor:
        """``rows`` [n, dim] by the numbers in slots, [experts · capacity]: [experts, capacity, dim]."""
        return rows_of(rows, numbers).reshape(self.load.shape[0], -1, rows.shape[1])

    def slots_of_pass(self, number: Tensor, capacity: int) -> tuple[Tensor, Tensor]:
        """Choice in each slot, [experts · capacity], and slot of each choice, [tokens · k], of one pass."""
        first, choices = number * capacity, self.experts.numel()
        place = first + torch.arange(capacity)
        index = (self.load.cumsum(0) - self.load).unsqueeze(1) + place
        choice = rows_of(self.order.unsqueeze(1), index.reshape(-1)).reshape(index.shape)
        choice = torch.where(place < self.load.unsqueeze(1), choice, choices)
        is_now = (self.places >= first) & (self.places < first + capacity)
        slot = torch.where(is_now, self.experts * capacity + self.places - first, index.numel())
        return choice.reshape(-1), slot.reshape(-1)


def while_passes(
    passes: Tensor, body: Callable[[Tensor, Sequence[Tensor]], Sequence[Tensor]], initial: Sequence[Tensor]
) -> list[Tensor]:
    """Values after ``passes`` trips of ``body``, which takes the number of the trip and the values before it."""
    start = torch.zeros((), dtype=passes.dtype)

    def is_left(number: Tensor, *now: Tensor) -> Tensor:
        return number < passes

    def step(number: Tensor, *now: Tensor) -> tuple[Tensor, ...]:
        return (number + 1, *body(number, now))

    if isRunningOnIpu():
        return list(torch.while_loop(is_left, step, (start, *initial))[1:])  # type: ignore[no-untyped-call]
    state: tuple[Tensor, ...] = (start, *initial)
    while bool(is_left(*state)):
        state = step(*state)
    return list(state[1:])


class _Passes(torch.autograd.Function):
    """Results of experts for each choice, [tokens · k, dim]."""

    @staticmethod
    def forward(ctx: Any, settings: PassSettings, tokens: Tensor, *given: Any) -> Tensor:
        ctx.settings, ctx.is_given = settings, [t is not None for t in given]
        ctx.save_for_backward(tokens, *(t for t in given if t is not None))
        choices, weights, group = ChoicesInOrder(*given[:5]), ExpertWeights(*given[5:]), settings.group_size

        def body(number: Tensor, now: Sequence[Tensor]) -> Sequence[Tensor]:
            choice, slot = choices.slots_of_pass(number, settings.capacity)
            rows = choices.in_slots(tokens, choices.token_of(choice))
            made = apply_experts(to_experts(rows, group), weights, settings.activation)
            return [now[0] + rows_of(from_experts(made, group).flatten(0, 1), slot)]

        zeros = torch.zeros((choices.experts.numel(), tokens.shape[1]), dtype=tokens.dtype)
        return while_passes(choices.passes, body, [zeros])[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        settings: PassSettings = ctx.settings
        tokens, *saved = ctx.saved_tensors
        left = iter(saved)
        given: list[Any] = [next(left) if is_given else None for is_given in ctx.is_given]
        choices, weights, group = ChoicesInOrder(*given[:5]), ExpertWeights(*given[5:]), settings.group_size

        def body(number: Tensor, now: Sequence[Tensor]) -> Sequence[Tensor]:
            choice, slot = choices.slots_of_pass(number, settings.capacity)
            rows = choices.in_slots(tokens, choices.token_of(choice))
            of_slots = choices.in_slots(grad, choice)
            of_rows, of_weights = experts_backward(
                to_experts(rows, group), weights, settings.activation, to_experts(of_slots, group)
            )
            own = from_experts(of_rows, group).flatten(0, 1)
            of_tokens = sum_of_rows(own, slot.reshape(choices.experts.shape))
            return [now[0] + of_tokens, *(a + b for a, b in zip(now[1:], of_weights, strict=True))]

        zeros = [torch.zeros_like(t) for t in (tokens, *weights.given())]
        of_tokens, *of_weights = while_passes(choices.passes, body, zeros)
        return None, of_tokens, *[None] * 5, *weights.with_gradients(of_weights)


def apply_without_drops(
    tokens: Tensor, choices: ChoicesInOrder, weights: ExpertWeights, settings: PassSettings
) -> Tensor:
    """Results of experts on ``tokens`` [tokens, dim] for each choice: [tokens, k, dim]."""
    given = *choices.tensors(), *weights.tensors()
    made: Tensor = _Passes.apply(settings, tokens, *given)  # type: ignore[no-untyped-call]
    return made.reshape(*choices.experts.shape, tokens.shape[1])
