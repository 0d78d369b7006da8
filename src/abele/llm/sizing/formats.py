"""Number formats of weights: bits of each, with scales of groups."""

from __future__ import annotations

import torch

from abele.errors import InvalidOptionError, nearest

_BITS = {"f32": 32.0, "f16": 16.0, "int8": 8.0, "f143": 8.0}
"""Bits of a weight, but for int4, whose groups have a scale and an offset in f16 each."""
_GROUPS = (16, 32, 64, 128, 256)
"""Weights of a group of int4."""


def check_format(format: str) -> None:
    """Raise unless weights may have a format.

    Raises:
        InvalidOptionError: They may not; the nearest is named.
    """
    known = [*_BITS, *(f"int4-{size}" for size in _GROUPS)]
    if format not in known:
        close = nearest(str(format), known)
        raise InvalidOptionError(
            f"weights have no format {format!r}",
            because=f"the formats are {', '.join(known)}",
            remedy=f"did you mean {close}?" if close else None,
        )


def is_quantised(format: str) -> bool:
    """True for codes with scales."""
    return format not in ("f32", "f16")


def kind_of(format: str) -> tuple[str, int | None]:
    """Kind of a quantised product, and weights that share a scale; None for all of a row."""
    kind, _, size = format.partition("-")
    return kind, int(size) if size else None


def bits_of(format: str) -> float:
    """Bits of a weight, scales of groups included."""
    _, size = kind_of(format)
    return _BITS[format] if size is None else 4 + 32 / size


def dtype_of(format: str) -> torch.dtype:
    """Type of activations and of the cache."""
    return torch.float32 if format == "f32" else torch.float16
