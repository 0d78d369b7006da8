"""What a model makes of constants alone is known while it is recorded: sizes of masks are numbers.

PyTorch keeps the values of constants of one element beside their stand-ins without data, computes with them, and
forgets them where something unknown is written into them. Inside :func:`values_kept` it does so for larger ones too,
and for what factories such as ``torch.ones`` make. What is recorded stays the same; but ``x[mask]`` and
``torch.nonzero(mask)`` get their sizes from a mask that is known, where they were unknown numbers that no later view or
``cat`` takes, and Python code may ask whether a mask is causal, as PyTorch's own transformers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverloadPacket
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch

from abele.frontends.poptorch.capture.patches import patched

_MOST_ELEMENTS = 1 << 20
"""Of a constant that is kept: as many as a mask of 1024 tokens by 1024 has."""

_FACTORIES = frozenset(
    {
        torch.arange,
        torch.eye,
        torch.full,
        torch.linspace,
        torch.ones,
        torch.tril_indices,
        torch.triu_indices,
        torch.zeros,
    }
)

_OWN = ("aten::", "prims::")


@contextmanager
def values_kept() -> Iterator[None]:
    """Keep the values of constants inside."""
    with patched(fake_tensor, CONSTANT_NUMEL_LIMIT=_MOST_ELEMENTS), _Known():
        yield


class _Known(TorchFunctionMode):
    """Keeps what factories make, and forgets what enters operators that are not PyTorch's own.

    Bodies of loops take values that are different on every trip, and PyTorch would run what computes on known values
    right away, whatever it does on the host.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of the function."""
        given = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # Bodies of PyTorch's control flow: nothing is known in them.
            return function(*args, **given)
        if _is_foreign(function):
            for value in pytree.tree_leaves((args, given)):
                if isinstance(value, FakeTensor) and value.constant is not None:
                    value.fake_mode.fake_tensor_converter.invalidate_constant_aliases(value.constant)
        made = function(*args, **given)
        reads = any(isinstance(value, torch.Tensor) for value in pytree.tree_leaves((args, given)))
        if function in _FACTORIES and not reads and _is_plain(made):
            with no_dispatch():
                made.constant = function(*args, **given)
            made.fake_mode.fake_tensor_converter.add_constant_storage_mapping(made)
        return made


def _is_plain(made: Any) -> bool:
    """True for a tensor to keep the values of; inside of ``torch.func.vmap`` and its kin real tensors are wrapped."""
    is_small = isinstance(made, FakeTensor) and made.numel() <= _MOST_ELEMENTS
    return is_small and torch._C._functorch.peek_interpreter_stack() is None


def _is_foreign(function: Any) -> bool:
    """True for an operator of a library other than PyTorch's."""
    packet = getattr(function, "overloadpacket", function)
    return isinstance(packet, OpOverloadPacket) and not packet._qualified_op_name.startswith(_OWN)
