"""Hints to planners from within a model: checked, and kept beside what is recorded. Results do not depend on them.

Plans are made with the share of memory and the type of partial sums that the options say, and convolutions of a group
run one after the other.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import torch

from abele.frontends.poptorch.capture.torch_export import annotate
from abele.frontends.poptorch.enums import MultiConvPlanType
from abele.frontends.poptorch.errors import OptionValueError


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """The result of a product or a convolution as it is, with the share of a tile's memory that it should plan with.

    Raises:
        OptionValueError: The share is no number above 0, at most 1; or it is given for something else than a tensor.
    """
    if not isinstance(tensor, torch.Tensor):
        raise OptionValueError(f"set_available_memory takes the tensor that a product gives, got {tensor!r}")
    _check_share(available_memory_proportion)
    return tensor


def _check_share(share: object) -> None:
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise OptionValueError(f"a share of a tile's memory is a number above 0, at most 1, got {share!r}")


class MultiConv:
    """Convolutions inside are one group: ``with poptorch.MultiConv().planType(...): ...``."""

    def __init__(self) -> None:
        self._hints: dict[str, Any] = {}

    def availableMemoryProportions(self, value: float | list[float] | tuple[float, ...]) -> Self:
        """Share of a tile's memory: for all convolutions, or for each."""
        for share in value if isinstance(value, (list, tuple)) else [value]:
            _check_share(share)
        return self._with("availableMemoryProportions", value)

    def partialsTypes(self, value: torch.dtype | list[torch.dtype] | tuple[torch.dtype, ...]) -> Self:
        """Type of partial sums, float32 or float16: for all convolutions, or for each."""
        for dtype in value if isinstance(value, (list, tuple)) else [value]:
            if dtype not in (torch.float32, torch.float16):
                raise OptionValueError(f"partial sums are torch.float32 or torch.float16, not {dtype}")
        return self._with("partialsTypes", value)

    def enableConvDithering(self, value: bool | list[bool] | tuple[bool, ...]) -> Self:
        """True to place convolutions apart: for all, or for each."""
        for flag in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(flag, bool):
                raise OptionValueError(f"dithering is true or false, got {flag!r}")
        return self._with("enableConvDithering", value)

    def planType(self, value: MultiConvPlanType) -> Self:
        """Whether they run beside each other or one after the other."""
        if not isinstance(value, MultiConvPlanType):
            raise OptionValueError(f"planType takes a poptorch.MultiConvPlanType, got {value!r}")
        return self._with("planType", value)

    def perConvReservedTiles(self, value: int) -> Self:
        """Tiles that each convolution has for itself at least."""
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise OptionValueError(f"perConvReservedTiles takes a whole number from 0 on, got {value!r}")
        return self._with("perConvReservedTiles", value)

    def cycleBackOff(self, value: float) -> Self:
        """How much slower than alone the slowest may be."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise OptionValueError(f"cycleBackOff takes a number from 0 on, got {value!r}")
        return self._with("cycleBackOff", value)

    def _with(self, name: str, value: Any) -> Self:
        self._hints[name] = value
        return self

    def __enter__(self) -> None:
        self._annotation = annotate({"abele_multi_conv": self._hints})
        self._annotation.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._annotation.__exit__(kind, error, trace)
