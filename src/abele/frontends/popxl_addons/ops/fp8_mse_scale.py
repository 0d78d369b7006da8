"""The power of two with which 8-bit floats lose least of a tensor."""

from __future__ import annotations

import math
from typing import Any

from abele.expr import Const, apply, select
from abele.expr.derivative import arg
from abele.frontends.popxl.errors import GraphArgumentError
from abele.frontends.popxl.ops.common import checked, emit
from abele.frontends.popxl.tensors import Tensor
from abele.network import BlockBuilder, Value
from abele.network.ops import build
from abele.network.ops.float8 import pow2scale_cast_from_fp8, pow2scale_cast_to_fp8
from abele.numerics import f32, i32

x, y = arg(0), arg(1)
LARGEST = {"F143": 240.0, "F152": 57344.0}
"""The largest number of each format."""
_TRIED = (0, 1, 2, 3, -1)
"""Scales to try beside the largest without overflow: larger ones cut off the largest numbers."""


def format_name(given: Any) -> str:
    """``F143`` or ``F152``, of its name or of popxl's type.

    Raises:
        GraphArgumentError: Something else.
    """
    name = str(getattr(given, "name", given)).upper().replace("FLOAT8_", "F")
    if name not in LARGEST:
        raise GraphArgumentError(f"the format of 8-bit floats is F143 or F152, not {given!r}")
    return name


def fp8_mse_scale(t: Tensor, fp8_format: Any = "F143") -> Tensor:
    """The log2 scale s, one int32, with which t · 2^s in 8 bits has the least mean square error.

    Args:
        t: float16 or float32.
        fp8_format: ``F143`` or ``F152``, or popxl's type of it.

    Model: scales from one below to three above the largest at which nothing overflows are tried; numbers that overflow
    are taken to the largest.
    """
    checked("fp8_mse_scale", t)
    name = format_name(fp8_format)
    if not t.dtype.is_floating_point:
        raise GraphArgumentError(f"fp8_mse_scale takes floats, {t.id!r} is {t.dtype.name}")
    limit = math.log2(LARGEST[name])

    def meaning(net: BlockBuilder, value: Value) -> Value:
        wide = build.cast(net, value, f32)
        largest = build.reduce(net, build.map_(net, apply("abs", x), [wide]), range(value.ndim), "max")
        room = apply("floor", limit - apply("log", apply("max", x, 1e-30)) * math.log2(math.e))
        fits = build.map_(net, apply("max", apply("min", room, 31.0), -31.0), [largest], f32)
        best, least = build.cast(net, fits, i32), None
        for step in _TRIED:
            scale = build.cast(
                net, build.map_(net, apply("max", apply("min", x + float(step), 31.0), -31.0), [fits]), i32
            )
            error = _error(net, wide, scale, name)
            if least is not None:
                better = build.map_(net, select(x < y, 1.0, 0.0), [error, least], f32)
                scale = build.map_(net, select(arg(2).eq(Const(1.0, f32)), x, y), [scale, best, better], i32)
                error = build.map_(net, apply("min", x, y), [error, least], f32)
            best, least = scale, error
        return best

    return emit("fp8_mse_scale", meaning, t)


def _error(net: BlockBuilder, value: Value, scale: Value, name: str) -> Value:
    """The mean square of what 8 bits lose at a scale."""
    narrow = pow2scale_cast_to_fp8(net, value, scale, name, saturate=True, throws=False)
    back = build.map_(net, -x, [scale], i32)
    again = pow2scale_cast_from_fp8(net, narrow, back, f32, throws=False)
    lost = build.map_(net, (x - y) * (x - y), [value, again], f32)
    return build.reduce(net, lost, range(value.ndim), scale=1.0 / max(1, value.size))


__all__ = ["LARGEST", "format_name", "fp8_mse_scale"]
