"""Random numbers that depend on a key and an element's number alone: the same on the host and on the device."""

from __future__ import annotations

import numpy as np
import torch

from abele.frontends.poptorch.errors import Error
from abele.network.ops.threefry import encrypted


class KeyShapeError(Error, ValueError, TypeError):
    """Keys of random numbers other than pairs of 32-bit integers, or a count of numbers below one."""


@torch.library.custom_op("abele::keyed_uniform", mutates_args=())
def _keyed_uniform(keys: torch.Tensor, count: int) -> torch.Tensor:
    words = keys.detach().cpu().numpy().astype(np.int64).astype(np.uint32).reshape(-1, 2)
    numbers = np.arange(count, dtype=np.uint32)
    one, other = encrypted(words[:, :1], words[:, 1:], np.zeros((), np.uint32), numbers)
    odd = ((one ^ other) >> np.uint32(9)).astype(np.float32)
    drawn = odd * np.float32(2.0**-23) + np.float32(2.0**-24)
    return torch.from_numpy(drawn.reshape((*keys.shape[:-1], count)))


@_keyed_uniform.register_fake
def _(keys: torch.Tensor, count: int) -> torch.Tensor:
    return keys.new_empty((*keys.shape[:-1], count), dtype=torch.float32)


def keyed_uniform(keys: torch.Tensor, count: int) -> torch.Tensor:
    """Uniform numbers in (0, 1) of each key, f32[..., count]: odd multiples of 2⁻²⁴, neither 0 nor 1.

    Number i of a key is the same whatever other keys there are, and on whatever machine: Threefry's words of i.

    Args:
        keys: Two words per key, i32[..., 2].
        count: Numbers per key.

    Raises:
        KeyShapeError: Keys of another shape or type, or no count.
    """
    if keys.dtype not in (torch.int32, torch.int64) or not keys.dim() or keys.shape[-1] != 2:
        raise KeyShapeError(f"keyed_uniform takes keys int32[..., 2], got {keys.dtype} {list(keys.shape)}")
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise KeyShapeError(f"keyed_uniform draws a number of values above zero, got {count!r}")
    drawn: torch.Tensor = torch.ops.abele.keyed_uniform(keys, count)
    return drawn
