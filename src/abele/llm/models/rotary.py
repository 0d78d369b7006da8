"""Rotary position embeddings: pairs of channels turned by angles that grow with the position."""

from __future__ import annotations

import math

import torch
from torch import nn

from abele.llm.config import Rotary, RotaryScaling

Turn = tuple[torch.Tensor, torch.Tensor]


def frequencies(config: Rotary, head_size: int) -> torch.Tensor:
    """Radians per position of each pair of channels, f32[size / 2]."""
    size = config.size(head_size)
    plain = 1.0 / (config.base ** (torch.arange(0, size, 2, dtype=torch.int64).float() / size))
    return plain if config.scaling is None else _scaled(plain, config.scaling)


def _scaled(plain: torch.Tensor, scaling: RotaryScaling) -> torch.Tensor:
    """Frequencies for longer contexts: low ones divided by the factor, high ones as they are, a blend between."""
    if scaling.kind == "linear":
        return plain / scaling.factor
    wavelengths = 2 * math.pi / plain
    blend = (scaling.trained / wavelengths - scaling.low) / (scaling.high - scaling.low)
    blend = blend.clamp(0, 1)
    return plain * (blend + (1 - blend) / scaling.factor)


_FINE = 128
"""Positions of the fine table."""


class RotaryTurn(nn.Module):
    """Cosines and sines of positions, made once per step and used by every layer.

    The angle of position 128·i + j is that of 128·i and that of j together, so two small tables stand for a large one:
    131,072 positions take 1,024 + 128 rows. Sines of one position would take a tile longer than a layer.

    Args:
        config: Base, layout and scaling.
        head_size: Channels per head.
        positions: Longest context.
    """

    coarse: torch.Tensor
    fine: torch.Tensor

    def __init__(self, config: Rotary, head_size: int, positions: int) -> None:
        super().__init__()
        self.config, self.size = config, config.size(head_size)
        per_position = frequencies(config, head_size).double()
        for name, places in (("coarse", torch.arange(0, positions, _FINE)), ("fine", torch.arange(_FINE))):
            angles = places[:, None] * per_position
            self.register_buffer(name, torch.cat((angles.cos(), angles.sin()), -1).float(), persistent=False)

    def _apply(self, fn: object, recurse: bool = True) -> RotaryTurn:
        """The module in another type or on another device: the tables stay f32."""
        kept = self.coarse, self.fine
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.coarse, self.fine = (
            table.to(now.device) for table, now in zip(kept, (self.coarse, self.fine), strict=True)
        )
        return self

    def forward(self, positions: torch.Tensor, dtype: torch.dtype) -> Turn:
        """Factors [B, T, 1, size] of channels and of their partners at positions [B, T]."""
        far = torch.div(positions, _FINE, rounding_mode="floor").clamp(max=self.coarse.shape[0] - 1)
        cos, sin = self.coarse[far].chunk(2, -1)
        cos_on, sin_on = self.fine[positions % _FINE].chunk(2, -1)
        cos, sin = cos * cos_on - sin * sin_on, sin * cos_on + cos * sin_on
        own, other = self._side_by_side(cos, cos), self._side_by_side(-sin, sin)
        return own.to(dtype)[:, :, None], other.to(dtype)[:, :, None]

    def both_turned(self, q: torch.Tensor, k: torch.Tensor, turn: Turn) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries [B, T, H, d] and keys [B, T, KV, d] turned in one pass over both."""
        turned = self.turned(torch.cat((q, k), 2), turn)
        return turned[:, :, : q.shape[2]], turned[:, :, q.shape[2] :]

    def turned(self, x: torch.Tensor, turn: Turn) -> torch.Tensor:
        """Heads [B, T, H, d] with their first channels turned: each becomes own · x + other · partner."""
        own, other = turn
        part = x[..., : self.size]
        turned = own * part + other * self._partners(part)
        return turned if self.size == x.shape[-1] else torch.cat((turned, x[..., self.size :]), -1)

    def _side_by_side(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Factors of the first and the second channels of pairs, in the layout of heads."""
        return torch.cat((a, b), -1) if self.config.layout == "halves" else torch.stack((a, b), -1).flatten(-2)

    def _partners(self, x: torch.Tensor) -> torch.Tensor:
        """For each channel the one that it turns with."""
        if self.config.layout == "halves":
            return torch.cat(x.chunk(2, -1)[::-1], -1)
        return torch.stack((x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
