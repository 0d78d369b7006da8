"""Errors of calls that PyTorch refuses while a model is recorded, as its users know them, with their line.

While a model is recorded its tensors have no data, and PyTorch's messages speak of how it records. So a call that fails
is made once more on the host, on zeros of the same shapes and types: what that raises is what the user would have seen
there, ``mat1 and mat2 shapes cannot be multiplied (24x5 and 12x16)``. Where the host would have gone on, the call
depends on values, as ``torch.ones(mask.nonzero().size(0))`` does.
"""

from __future__ import annotations

import dis
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, PendingUnbackedSymbolNotFound
from torch.overrides import TorchFunctionMode

from abele.errors import AbeleError
from abele.frontends.poptorch.capture.known_values import is_foreign, on_host
from abele.frontends.poptorch.capture.source_lines import PYTORCH, line_now, line_of, shown
from abele.frontends.poptorch.errors import Error, error_like

FOR_EXPERTS = "where experts take the tokens routed to them, poptorch.MixtureOfExperts"
"""Remedy of loops over experts, which pick tokens by masks."""

_MOST_ELEMENTS = 1 << 26
"""Of tensors on which a call is made again; larger ones have shapes and types alone."""

_OF_VALUES = (
    GuardOnDataDependentSymNode,
    PendingUnbackedSymbolNotFound,
    DataDependentOutputException,
    DynamicOutputShapeException,
)
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_OF_SIZES = ("specialized integer", "SymIntArrayRef", "Pending unbacked symbols")

_PASSED = (AbeleError, AttributeError, StopIteration)
"""Errors asked for by Python's own protocols, and errors with a full explanation."""


class CallErrors(TorchFunctionMode):
    """Raises what PyTorch would raise on the host for a call that fails."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of the call."""
        given = kwargs or {}
        try:
            return function(*args, **given)
        except _PASSED:
            raise
        except Exception as error:
            raise _of_call(error, function, args, given) from error


def of_values(place: tuple[str, int], *, size: bool) -> Error:
    """The error that code at ``place`` depends on values: a size does, or else which way Python takes."""
    at, line = shown(place)
    if size:
        return Error(
            "a size depends on the values of a tensor, which are not known before the model runs",
            at=at,
            because=line,
            remedy="pass the size as a plain number (size=, dim_size=, num_graphs=, num_nodes=, num_classes=, "
            "output_size=), or take it from a shape or from a buffer that forward does not change; for x[i : i + n], "
            f"poptorch.dynamic_slice(x, dim, i, n, 1); {FOR_EXPERTS}",
        )
    return Error(
        "the model's Python code depends on the value of a tensor, so it cannot be compiled ahead of time",
        at=at,
        because=line,
        remedy="use torch.cond or torch.where instead of a Python condition, and poptorch.for_loop instead of a loop; "
        f"plain numbers, and buffers that forward does not change, may be looked at; {FOR_EXPERTS}",
    )


def of_recording(error: Exception) -> Exception:
    """Error for the user in place of one raised while a model was recorded, by their code or by PyTorch."""
    if isinstance(error, AbeleError):
        return error
    place, text = line_of(error.__traceback__), str(error)
    if isinstance(error, _OF_VALUES) or "data-dependent" in text.lower():
        return of_values(place, size=any(part in text for part in _OF_SIZES))
    if not _from_pytorch(error) and "FakeTensor" not in text:
        return error
    message = text.strip().replace("FakeTensor", "Tensor") or type(error).__name__
    return _typed(error, message, place)


def _of_call(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    # Not the trace of the error: at this level it goes through the call alone.
    place, text = line_now(), str(error)
    if isinstance(error, _OF_VALUES):
        return of_values(place, size=any(part in text for part in _OF_SIZES))
    if any(map(_depends_on_values, pytree.tree_leaves((args, kwargs)))):
        return of_values(place, size=True)
    if is_foreign(function) or not _from_pytorch(error):
        return error
    on_host = _on_host(function, args, kwargs)
    return error if on_host is None else _typed(on_host, str(on_host).strip(), place)


def _typed(error: Exception, message: str, place: tuple[str, int]) -> Exception:
    at, line = shown(place)
    made: Exception = error_like(type(error))(message, at=at, because=line)
    return made


def _from_pytorch(error: Exception) -> bool:
    """True unless a Python frame of the user's own raised the error, or called what is not PyTorch's."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename.startswith(PYTORCH) or _is_ours(trace.tb_frame):
        return True
    # Functions in C that are called with wrong arguments leave no frame.
    step = dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return isinstance(error, TypeError) and step not in ("RAISE_VARARGS", "RERAISE")


def _is_ours(frame: Any) -> bool:
    """True for a frame of a mode here, through which functions written in C raise."""
    return bool(frame.f_code.co_name == "__torch_function__")


def _depends_on_values(leaf: Any) -> bool:
    if isinstance(leaf, torch.Tensor):
        return isinstance(leaf, FakeTensor) and any(isinstance(size, torch.SymInt) for size in leaf.shape)
    return isinstance(leaf, _NUMBERS) or (
        isinstance(leaf, slice) and any(isinstance(end, _NUMBERS) for end in (leaf.start, leaf.stop, leaf.step))
    )


def refused_on_host(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise what PyTorch raises on the host for a call, whose checks are fewer where tensors have no data.

    Raises:
        Error: The call is refused.
    """
    error = _on_host(function, args, kwargs)
    if error is not None:
        raise _typed(error, str(error).strip(), line_now())


def _on_host(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Exception that the call raises on tensors with data."""
    with on_host():
        try:
            given, named = pytree.tree_map_only(torch.Tensor, _with_data, (args, kwargs))
            function(*given, **named)
        except Exception as error:
            return error
    return None


def _with_data(tensor: torch.Tensor) -> torch.Tensor:
    device = "cpu" if tensor.numel() <= _MOST_ELEMENTS else "meta"
    return torch.zeros(tuple(tensor.shape), dtype=tensor.dtype, device=device)
