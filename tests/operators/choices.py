"""Operators whose results are places of elements: which of several equal ones they find, is nowhere said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import SampleInput

_ARGUMENT = {"sort": 0, "argsort": 0, "mode": 0, "median": 0, "nanmedian": 0, "topk": 1, "kthvalue": 1}
"""Place of the dimension among the arguments after the input; the last dimension where it is left out."""


def determined(name: str, sample: SampleInput) -> Callable[[Any], Any] | None:
    """Part of a result that is the same whichever of several equal elements are chosen; None if it chooses nothing.

    That is the values, the elements at the places, and whether no place is named twice.
    """
    if name not in _ARGUMENT or sample.kwargs.get("stable"):
        return None
    place = _ARGUMENT[name]
    dim = sample.kwargs.get("dim", sample.args[place] if len(sample.args) > place else -1)
    kept = sample.kwargs.get("keepdim") or (len(sample.args) > place + 1 and sample.args[place + 1])
    if sample.input.ndim == 0 or (name.endswith("median") and not (sample.args or sample.kwargs)):
        return None  # There is nothing to choose from, or only a value comes back.
    reduces = name not in ("sort", "argsort", "topk") and not kept
    return lambda result: _said(sample.input.detach(), result, dim, reduces)


def _said(x: torch.Tensor, result: Any, dim: int, reduces: bool) -> list[torch.Tensor]:
    *values, places = result if isinstance(result, (tuple, list)) else [result]
    along = (places.unsqueeze(dim) if reduces else places).long()
    ordered = along.sort(dim).values
    return [*values, torch.gather(x, dim, along), (ordered.diff(dim=dim) > 0).all()]
