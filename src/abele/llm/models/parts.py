"""Parts that families share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from abele.llm.config import Activation, ModelConfig

_ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}


def activation(name: Activation) -> Callable[[torch.Tensor], torch.Tensor]:
    """The nonlinearity of this name."""
    return _ACTIVATIONS[name]


class SideBySide(nn.Module):
    """A part whose first products read the same input; they may become one product.

    SmolLM2's queries, keys and values are products with 576, 192 and 192 columns. Each waits for its own exchange and
    its own sum of partials; joined, they are one with 960 columns.

    Attributes:
        names: Names of the products.
        joined: The one product that they became, or None.
        apart: True where the products must stay apart.
    """

    names: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self.joined: nn.Linear | None = None
        self.apart = False
        self.widths: list[int] = []

    def products(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Results of all products of x."""
        if self.joined is None:
            return tuple(getattr(self, name)(x) for name in self.names)
        return self.joined(x).split(self.widths, -1)  # type: ignore[no-any-return]

    def join(self) -> None:
        """One product in place of all, unless one of them is no plain linear layer."""
        parts = [getattr(self, name, None) for name in self.names]
        linear = [part for part in parts if type(part) is nn.Linear]
        if self.apart or len(linear) < len(parts):
            return
        self.widths = [part.out_features for part in linear]
        with torch.device("meta"):
            joined = nn.Linear(linear[0].in_features, sum(self.widths), bias=linear[0].bias is not None)
        with torch.no_grad():
            for name, _ in list(joined.named_parameters()):
                whole = torch.cat([part.get_parameter(name) for part in linear])
                setattr(joined, name, nn.Parameter(whole, requires_grad=linear[0].weight.requires_grad))
        self.joined = joined
        for name in self.names:
            delattr(self, name)


def join_products(model: nn.Module) -> nn.Module:
    """The model with one product wherever several read the same input; done in place, for generating.

    Names of weights change, so weights are loaded and quantised before.
    """
    for part in list(model.modules()):
        if isinstance(part, SideBySide):
            part.join()
    return model


class Projections(SideBySide):
    """Queries, keys and values of a residual stream, and what joins the heads again.

    Args:
        config: Sizes.
        query_bias: True for biases of queries, keys and values.
        out_bias: True for a bias of the output.
    """

    names = ("query", "key", "value")

    def __init__(self, config: ModelConfig, *, query_bias: bool, out_bias: bool) -> None:
        super().__init__()
        self.head_size = config.head_size
        wide, narrow = config.heads * config.head_size, config.kv_heads * config.head_size
        self.query = nn.Linear(config.hidden, wide, bias=query_bias)
        self.key = nn.Linear(config.hidden, narrow, bias=query_bias)
        self.value = nn.Linear(config.hidden, narrow, bias=query_bias)
        self.out = nn.Linear(wide, config.hidden, bias=out_bias)

    def projected(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries [B, T, heads, d], keys and values [B, T, kv_heads, d] of x [B, T, hidden]."""
        q, k, v = (part.reshape(*part.shape[:2], -1, self.head_size) for part in self.products(x))
        return q, k, v

    def output(self, heads: torch.Tensor) -> torch.Tensor:
        """Addition of the heads [B, T, heads, d] to the residual stream."""
        out: torch.Tensor = self.out(heads.flatten(2))
        return out


class FeedForward(nn.Module):
    """Feed-forward part without a gate: down(act(up(x)))."""

    def __init__(self, config: ModelConfig, *, bias: bool) -> None:
        super().__init__()
        self.up = nn.Linear(config.hidden, config.wide, bias=bias)
        self.down = nn.Linear(config.wide, config.hidden, bias=bias)
        self.act = activation(config.activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Addition to the residual stream."""
        out: torch.Tensor = self.down(self.act(self.up(x)))
        return out


class GatedFeedForward(SideBySide):
    """Feed-forward part with a gate: down(act(gate(x)) · up(x))."""

    names = ("gate", "up")

    def __init__(self, config: ModelConfig, *, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(config.hidden, config.wide, bias=bias)
        self.up = nn.Linear(config.hidden, config.wide, bias=bias)
        self.down = nn.Linear(config.wide, config.hidden, bias=bias)
        self.act = activation(config.activation)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Addition to the residual stream."""
        gate, up = self.products(x)
        out: torch.Tensor = self.down(self.act(gate) * up)
        return out
