"""Sampling of images at places that the machine computes."""

from __future__ import annotations

from abele.frontends.poptorch.capture.registry import OperatorCall, aten
from abele.network import Value
from abele.network.ops.grids import Mode, Padding, grid_sample

_MODES: tuple[Mode, ...] = ("linear", "nearest", "cubic")
_PADDINGS: tuple[Padding, ...] = ("zeros", "border", "reflection")
"""By PyTorch's numbers."""


@aten("aten.grid_sampler", "aten.grid_sampler_2d", "aten.grid_sampler_3d")
def grid_sampler(call: OperatorCall, value: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    """The value [batch, channels, *field] at places [batch, *outputs, dims], whose last dimension comes first."""
    return grid_sample(call.net, value, grid, _MODES[mode], _PADDINGS[padding], align_corners)
