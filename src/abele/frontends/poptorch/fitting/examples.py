"""Examples: arguments of a micro-batch, in other sizes."""

from __future__ import annotations

from typing import Any

import torch

from abele.frontends.poptorch.errors import ArgumentError, Error
from abele.frontends.poptorch.values import structures


def batch_of(example: Any) -> int:
    """Samples of an example: the first dimension of its first tensor that has any.

    Raises:
        Error: It has no such tensor.
    """
    for leaf in structures.leaves(example):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return int(leaf.shape[0])
    raise Error("the example inputs have no tensor with a batch dimension", remedy="pass the inputs of one micro-batch")


def resized(example: Any, size: int) -> Any:
    """An example of another number of samples: tensors whose first dimension is the batch are cut or repeated."""
    batch = batch_of(example)

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or tensor.shape[0] != batch or size == batch:
            return tensor
        times = -(-size // batch)
        return tensor.repeat(times, *(1 for _ in tensor.shape[1:]))[:size]

    return structures.map_tensors(changed, example)


def arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An example as arguments and keyword arguments of a call.

    Raises:
        ArgumentError: It is neither a tensor nor a tuple, list or mapping of arguments.
    """
    if isinstance(example, torch.Tensor):
        return (example,), {}
    if isinstance(example, dict):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    raise ArgumentError(
        f"the example inputs are {type(example).__name__}, not a tensor, or a tuple or mapping of the model's arguments"
    )
