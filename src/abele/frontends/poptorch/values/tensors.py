"""Tensors as NumPy arrays and back."""

from __future__ import annotations

import numpy as np
import torch

from abele.arrays import Array
from abele.numerics import f8_143, f8_152

QUARTERS = {torch.float8_e4m3fnuz: f8_143, torch.float8_e5m2fnuz: f8_152}
"""PyTorch's 8-bit floats of the same bits as the machine's, with no scale."""


def to_array(tensor: torch.Tensor) -> Array:
    """The elements of a tensor on the host, over the same memory where NumPy knows their type."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach().cpu()
        if plain.dtype in QUARTERS:
            return plain.view(torch.uint8).numpy().view(QUARTERS[plain.dtype].np)
        array: Array = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
        return array


def from_array(array: Array) -> torch.Tensor:
    """A tensor of values from the device."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.asarray(array.astype(np.float32))).to(torch.bfloat16)
    for dtype, quarter in QUARTERS.items():
        if array.dtype == quarter.np:
            return torch.from_numpy(np.asarray(array, order="C").view(np.uint8)).view(dtype)
    return torch.from_numpy(np.asarray(array, order="C"))
