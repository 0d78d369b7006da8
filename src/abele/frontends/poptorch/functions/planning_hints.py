"""Hints to planners from within a model. Results do not depend on them, but for the rounding of partial sums."""

from __future__ import annotations

import itertools
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

from abele.frontends.poptorch.capture import host_words
from abele.frontends.poptorch.capture.conv_groups import MULTI_CONV, NUMBER
from abele.frontends.poptorch.enums import MultiConvPlanType
from abele.frontends.poptorch.errors import Error, OptionValueError
from abele.frontends.poptorch.program.blocks import annotate, user_line
from abele.frontends.poptorch.program.recording import isRunningOnIpu

assert host_words, "importing it registers its operators"
_numbers = itertools.count(1)
_in_group: ContextVar[bool] = ContextVar("poptorch_multi_conv", default=False)


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """The result of a product, a convolution or a recurrent layer as it is, which plans with a share of memory.

    What computes the tensor, and its gradients, plan with this share of a tile's memory in place of the one that
    ``Options.setAvailableMemoryProportion`` gives to all. A tensor that nothing planned gives causes a warning.

    Raises:
        OptionValueError: The share is no number above 0, at most 1; or it is given for something else than a tensor.
    """
    if not isinstance(tensor, torch.Tensor):
        raise OptionValueError(f"set_available_memory takes the tensor that a product gives, got {tensor!r}")
    _check_share(available_memory_proportion)
    if not isRunningOnIpu():
        return tensor
    planned: torch.Tensor = torch.ops.abele.plan_with(tensor, float(available_memory_proportion))
    return planned


def _check_share(share: object) -> None:
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise OptionValueError(f"a share of a tile's memory is a number above 0, at most 1, got {share!r}")


class MultiConv:
    """Convolutions inside are one group: ``with poptorch.MultiConv().planType(...): ...``.

    They run at the same time, each on tiles of its own, in the supersteps of one; so do their gradients by inputs, and
    those by weights. None may read what another one gives. Groups are not nested, and none is empty.
    """

    def __init__(self) -> None:
        self._hints: dict[str, Any] = {}
        self._convolutions = _Convolutions()

    def availableMemoryProportions(self, value: float | list[float] | tuple[float, ...]) -> Self:
        """Share of a tile's memory: for all convolutions, or for each."""
        for share in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(share, float) or not 0 < share <= 1:
                raise OptionValueError(f"a share of a tile's memory is a float above 0, at most 1, got {share!r}")
        return self._with("availableMemoryProportions", value)

    def partialsTypes(self, value: torch.dtype | list[torch.dtype] | tuple[torch.dtype, ...]) -> Self:
        """Type of partial sums, float32 or float16: for all convolutions, or for each."""
        for dtype in value if isinstance(value, (list, tuple)) else [value]:
            if dtype not in (torch.float32, torch.float16):
                raise OptionValueError(f"partial sums are torch.float32 or torch.float16, not {dtype}")
        return self._with("partialsTypes", value)

    def enableConvDithering(self, value: bool | list[bool] | tuple[bool, ...]) -> Self:
        """True for convolutions to begin at tiles of their own: for all, or for each."""
        for flag in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(flag, bool):
                raise OptionValueError(f"dithering is true or false, got {flag!r}")
        return self._with("enableConvDithering", value)

    def planType(self, value: MultiConvPlanType) -> Self:
        """Run the convolutions beside each other, as by default, or one after the other on all tiles."""
        if not isinstance(value, MultiConvPlanType):
            raise OptionValueError(f"planType takes a poptorch.MultiConvPlanType, got {value!r}")
        return self._with("planType", value)

    def perConvReservedTiles(self, value: int) -> Self:
        """Tiles that each convolution has for itself at least."""
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise OptionValueError(f"perConvReservedTiles takes a whole number from 0 on, got {value!r}")
        return self._with("perConvReservedTiles", value)

    def cycleBackOff(self, value: float) -> Self:
        """Set the proportion by which the longest may take longer than the shortest before tiles are shared anew."""
        if not isinstance(value, float) or not 0 <= value <= 1:
            raise OptionValueError(f"cycleBackOff takes a float from 0 to 1, got {value!r}")
        return self._with("cycleBackOff", value)

    def _with(self, name: str, value: Any) -> Self:
        self._hints[name] = value
        return self

    def __enter__(self) -> None:
        if _in_group.get():
            raise Error("Nested poptorch.MultiConv is not supported.", at=user_line() or None)
        _in_group.set(True)
        self._convolutions.begin()
        self._annotation = annotate({MULTI_CONV: {**self._hints, NUMBER: next(_numbers)}})
        self._annotation.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _in_group.set(False)
        self._annotation.__exit__(kind, error, trace)
        self._convolutions.end()
        if kind is None and not self._convolutions.count:
            raise Error(
                "Empty poptorch.MultiConv: there is no convolution inside.",
                at=user_line() or None,
                remedy="call the convolutions of the group inside of the context",
            )


class _Convolutions(TorchFunctionMode):
    """Counts the convolutions that are called inside."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def begin(self) -> None:
        """Count from 0."""
        self.count = 0
        super().__enter__()  # type: ignore[no-untyped-call]  # PyTorch's own

    def end(self) -> None:
        """Stop counting."""
        super().__exit__(None, None, None)  # type: ignore[no-untyped-call]  # PyTorch's own

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function's result."""
        self.count += "conv" in getattr(function, "__name__", "")
        return function(*args, **(kwargs or {}))
