"""Products with quantised weights, and rows of quantised tables."""

from __future__ import annotations

import torch

from abele.frontends.poptorch.capture.registry import OperatorCall, aten, element_type
from abele.network import Value
from abele.network.ops import build


@aten("abele.quantised_linear")
def quantised_linear(
    call: OperatorCall, x: Value, codes: Value, scales: Value, offsets: Value | None, kind: str, group: int
) -> Value:
    """x · Wᵀ."""
    return build.quantised_linear(call.net, x, codes, scales, offsets, kind=kind, group=group)


@aten("abele.quantised_embedding")
def quantised_embedding(
    call: OperatorCall,
    index: Value,
    codes: Value,
    scales: Value,
    offsets: Value | None,
    kind: str,
    group: int,
    dtype: torch.dtype,
) -> Value:
    """Rows of a table."""
    return build.look_up_quantised(
        call.net, index, codes, scales, offsets, kind=kind, group=group, dtype=element_type(dtype)
    )
