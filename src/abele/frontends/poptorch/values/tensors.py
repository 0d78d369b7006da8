"""Tensors as NumPy arrays and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]


def to_array(tensor: torch.Tensor) -> Array:
    """The elements of a tensor on the host, over the same memory where NumPy knows their type."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = tensor.detach().cpu()
        array: Array = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
        return array


def from_array(array: Array) -> torch.Tensor:
    """A tensor of what came from the device."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.asarray(array.astype(np.float32))).to(torch.bfloat16)
    return torch.from_numpy(np.asarray(array, order="C"))
