"""The layer: a router, experts, and what joins them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import torch

from abele.counts import check_counts
from abele.errors import nearest
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.experts.dropless import ChoicesInOrder, PassSettings, apply_without_drops
from abele.frontends.poptorch.experts.feed_forward import ExpertWeights, activation_of, apply_experts
from abele.frontends.poptorch.experts.figures import ExpertLoad
from abele.frontends.poptorch.experts.losses import load_balancing_loss, router_z_loss
from abele.frontends.poptorch.experts.parallel import from_experts, to_experts
from abele.frontends.poptorch.experts.routing import capacity_of, check_scores, choose_experts, choose_tokens, route
from abele.frontends.poptorch.functions.split_layers import SplitLayer, together
from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.frontends.poptorch.values.checks import check_numbers

Tensor = torch.Tensor


class MixtureOutput(NamedTuple):
    """Results of a mixture of experts.

    Attributes:
        output: [..., dim], as the tokens.
        auxiliary: Weighted sum of the losses that keep the router balanced, float32[]; add it to the loss.
    """

    output: Tensor
    auxiliary: Tensor


class MixtureOfExperts(SplitLayer):
    """A feed-forward layer of many experts, of which each token uses ``top_k``.

    Call it with tokens [..., dim]; add ``auxiliary`` of the result to the loss. Tokens that are dropped get zeros: put
    the layer beside a residual connection.

    Args:
        dim: Features of a token.
        hidden: Hidden features of an expert.
        num_experts: Number of experts.
        top_k: Experts of each token.
        capacity_factor: Slots of an expert over an equal share of the choices; what finds no slot is dropped, or waits
            for another pass where the layer is ``dropless``.
        eval_capacity_factor: The same for ``eval()``; as in training when left out.
        dropless: True to drop nothing: as many passes over the slots as the fullest expert needs.
        choice: ``"tokens"`` choose experts, or ``"experts"`` choose tokens, so that all have the same load. Experts see
            later tokens when they choose, which a causal language model must not.
        activation: A name of :data:`~abele.frontends.poptorch.experts.feed_forward.ACTIVATIONS`.
        gated: True for experts with a gate: down(activation(gate(x)) · up(x)).
        bias: True for biases in the experts.
        scores: ``"softmax"`` or ``"sigmoid"`` of the logits.
        normalise: True to divide the weights of a token by their sum; by default with more than one choice.
        noise: Standard deviation of what is added to the logits while training, before experts are chosen.
        balance_weight: Factor of the load-balancing loss.
        z_weight: Factor of the router's z-loss.
        shared_hidden: Hidden features of an expert that every token uses, beside the others; 0 for none.
        group_size: Consecutive replicas that share the experts, each with tokens of its own; capacity is per replica.

    Raises:
        Error: Sizes that do not go together, or an unknown name.
    """

    inputs_differ: ClassVar[bool] = True
    counts_apart: ClassVar[bool] = True

    def __init__(
        self,
        dim: int,
        hidden: int,
        num_experts: int,
        top_k: int = 2,
        *,
        capacity_factor: float = 1.25,
        eval_capacity_factor: float | None = None,
        dropless: bool = False,
        choice: str = "tokens",
        activation: str = "gelu",
        gated: bool = False,
        bias: bool = True,
        scores: str = "softmax",
        normalise: bool | None = None,
        noise: float = 0.0,
        balance_weight: float = 0.01,
        z_weight: float = 0.0,
        shared_hidden: int = 0,
        group_size: int = 1,
    ) -> None:
        super().__init__()
        for name, size in (("dim", dim), ("hidden", hidden), ("num_experts", num_experts), ("top_k", top_k)):
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                raise Error(f"MixtureOfExperts: {name} is a positive whole number, not {size!r}")
        check_counts(0, shared_hidden=shared_hidden)
        check_numbers(noise=noise, balance_weight=balance_weight, z_weight=z_weight)
        factors = [f for f in (capacity_factor, eval_capacity_factor) if f is not None]
        check_numbers(**{f"capacity factor {n}": factor for n, factor in enumerate(factors)})
        if not 0 <= noise < math.inf:
            raise Error(f"MixtureOfExperts: noise of the router is at least 0 and finite, got {noise}")
        if top_k > num_experts:
            raise Error(f"MixtureOfExperts: top_k = {top_k} of {num_experts} experts", remedy=f"top_k={num_experts}")
        together(group_size)
        if num_experts % group_size:
            raise Error(
                f"MixtureOfExperts: {num_experts} experts do not divide into {group_size} replicas",
                remedy=f"num_experts={-(-num_experts // group_size) * group_size}, or a group size that divides",
            )
        for factor in factors:
            if not factor > 0:
                raise Error(
                    f"MixtureOfExperts: a capacity factor of {factor} gives experts no slots",
                    because="all tokens would be dropped",
                    remedy="capacity_factor=1.25, or dropless=True",
                )
        _one_of("choice", choice, ("tokens", "experts"))
        _one_of("scores", scores, ("softmax", "sigmoid"))
        if choice == "experts" and dropless:
            raise Error(
                "MixtureOfExperts: experts that choose tokens drop none of their choices", remedy="dropless=False"
            )
        activation_of(activation)
        self.dim, self.hidden, self.num_experts, self.top_k = dim, hidden, num_experts, top_k
        self.capacity_factor, self.eval_capacity_factor = capacity_factor, eval_capacity_factor
        self.dropless, self.choice, self.activation, self.scores = dropless, choice, activation, scores
        self.normalise = top_k > 1 if normalise is None else normalise
        self.noise, self.balance_weight, self.z_weight, self.group_size = noise, balance_weight, z_weight, group_size
        self.router = torch.nn.Linear(dim, num_experts, bias=False)
        self._add_experts("", (num_experts,), hidden, gated=gated, bias=bias)
        if shared_hidden:
            self._add_experts("shared_", (1,), shared_hidden, gated=gated, bias=bias)
        self.shared_hidden = shared_hidden
        self.register_buffer("routed", torch.zeros(num_experts + 4, dtype=torch.int64), persistent=False)

    routed: Tensor

    def _add_experts(self, prefix: str, count: tuple[int], hidden: int, *, gated: bool, bias: bool) -> None:
        """Make weights as ``torch.nn.Linear`` begins with them."""
        into, out = self.dim**-0.5, hidden**-0.5
        shapes: dict[str, tuple[tuple[int, ...], float] | None] = {
            "up": ((*count, self.dim, hidden), into),
            "down": ((*count, hidden, self.dim), out),
            "up_bias": ((*count, hidden), into) if bias else None,
            "down_bias": ((*count, self.dim), out) if bias else None,
            "gate": ((*count, self.dim, hidden), into) if gated else None,
            "gate_bias": ((*count, hidden), into) if gated and bias else None,
        }
        for name, known in shapes.items():
            made = None if known is None else torch.nn.Parameter(torch.empty(known[0]).uniform_(-known[1], known[1]))
            self.register_parameter(prefix + name, made)

    def _weights(self, prefix: str = "") -> ExpertWeights:
        return ExpertWeights(**{n: getattr(self, prefix + n) for n in ExpertWeights.__dataclass_fields__})

    def parts(self) -> Iterator[tuple[str, int, int]]:
        """The experts' weights, which replicas share by expert."""
        for name in ExpertWeights.__dataclass_fields__:
            if getattr(self, name) is not None:
                yield name, 0, 1

    def forward(self, x: Tensor) -> MixtureOutput:
        """Results of the experts on tokens ``x`` [..., dim].

        Raises:
            Error: Another number of features, tokens that do not divide into the parts of replicas; on the host also
                logits that are not finite.
        """
        if not x.dim() or x.shape[-1] != self.dim:
            raise Error(f"MixtureOfExperts takes tokens [..., {self.dim}], got {list(x.shape)}")
        tokens = x.reshape(-1, self.dim)
        # On the host all replicas' tokens come at once.
        groups = 1 if isRunningOnIpu() else self.group_size
        wide = torch.promote_types(x.dtype, torch.float32)
        logits = torch.nn.functional.linear(tokens.to(wide), self.router.weight.to(wide))
        weights = torch.softmax(logits, 1) if self.scores == "softmax" else torch.sigmoid(logits)
        check_scores(weights, self.top_k, 1, groups)
        if self.choice == "experts":
            made = self._of_experts_choice(tokens, weights, groups)
            balance = None
        else:
            made, experts, loads = self._of_tokens_choice(tokens, logits, weights, groups)
            shares = weights if self.scores == "softmax" else weights / weights.sum(1, keepdim=True)
            balance = load_balancing_loss(shares, experts, groups=groups, loads=loads)
        if self.shared_hidden:
            made = made + apply_experts(tokens.unsqueeze(0), self._weights("shared_"), self.activation)[0]
        return MixtureOutput(made.reshape(x.shape).to(x.dtype), self._auxiliary(logits, balance))

    def _capacity(self, tokens: int) -> int:
        factor = self.capacity_factor if self.training else (self.eval_capacity_factor or self.capacity_factor)
        return capacity_of(tokens, self.num_experts, self.top_k, factor)

    def _of_experts_choice(self, tokens: Tensor, weights: Tensor, groups: int) -> Tensor:
        chosen = choose_tokens(weights, self._capacity(tokens.shape[0] // groups), groups=groups)
        slots = torch.full((self.num_experts,), chosen.tokens.shape[1])
        self._count(slots, tokens.shape[0], torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.int64))
        return chosen.combine(self._experts(chosen.dispatch(tokens)))

    def _of_tokens_choice(
        self, tokens: Tensor, logits: Tensor, weights: Tensor, groups: int
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Results of experts, the experts of each token, and choices of each expert in each group where known."""
        selection = logits + torch.randn_like(logits) * self.noise if self.noise and self.training else None
        capacity = self._capacity(tokens.shape[0] // groups)
        if self.dropless:
            return *self._in_passes(tokens, weights, selection, capacity), None
        routing = route(weights, self.top_k, capacity, selection=selection, normalise=self.normalise, groups=groups)
        self._count(routing.load, tokens.shape[0], routing.dropped, torch.ones((), dtype=torch.int64))
        return routing.combine(self._experts(routing.dispatch(tokens))), routing.experts, routing.loads

    def _in_passes(
        self, tokens: Tensor, scores: Tensor, selection: Tensor | None, capacity: int
    ) -> tuple[Tensor, Tensor]:
        settings = PassSettings(capacity, self.activation, self.group_size)
        weights, experts = choose_experts(scores, self.top_k, selection=selection, normalise=self.normalise)
        choices = ChoicesInOrder.of(experts, self.num_experts, settings)
        self._count(choices.load, tokens.shape[0], torch.zeros((), dtype=torch.int64), choices.passes)
        made = apply_without_drops(tokens, choices, self._weights(), settings)
        return (made * weights.to(made.dtype).unsqueeze(2)).sum(1), experts

    def _experts(self, slots: Tensor) -> Tensor:
        made = apply_experts(to_experts(slots, self.group_size), self._weights(), self.activation)
        return from_experts(made, self.group_size)

    def _auxiliary(self, logits: Tensor, balance: Tensor | None) -> Tensor:
        total = torch.zeros((), dtype=logits.dtype)
        if balance is not None and self.balance_weight:
            total = total + balance * self.balance_weight
        return total + router_z_loss(logits) * self.z_weight if self.z_weight else total

    def _count(self, load: Tensor, tokens: int, dropped: Tensor, passes: Tensor) -> None:
        with torch.no_grad():
            numbers = torch.stack([torch.tensor(tokens), dropped, passes, torch.tensor(1)])
            self.routed.add_(torch.cat([load, numbers]))

    def load(self) -> ExpertLoad:
        """Figures of routing since the layer was made or :meth:`reset_load`; of several replicas, the first's.

        The device counts in 32 bits.
        """
        return ExpertLoad.of(self.routed.tolist()).warn_if_empty(f"this {type(self).__name__}")

    def reset_load(self) -> None:
        """Begin to count anew."""
        with torch.no_grad():
            self.routed.zero_()

    def extra_repr(self) -> str:
        """Sizes, and what is not usual."""
        kind = "dropless" if self.dropless else f"capacity_factor={self.capacity_factor}"
        replicas = f", group_size={self.group_size}" if self.group_size > 1 else ""
        return f"{self.dim}, {self.hidden}, num_experts={self.num_experts}, top_k={self.top_k}, {kind}{replicas}"


def _one_of(name: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        close = nearest(str(given), allowed)
        raise Error(
            f"MixtureOfExperts: {name} is {given!r}",
            because=f"it is {' or '.join(map(repr, allowed))}",
            remedy=f"did you mean {close!r}?" if close else None,
        )
