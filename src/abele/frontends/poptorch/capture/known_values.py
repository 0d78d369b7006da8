"""Known values: results of constants alone are computed while a model is recorded, so that sizes of masks are numbers.

PyTorch keeps the values of constants of one element beside their stand-ins without data, computes with them, and
forgets them where something unknown is written into them. Inside :class:`KnownValues` it does so for larger ones too,
for what factories such as ``torch.ones`` make, for buffers that the model does not change, and for tensors that are
none of the model's. What is recorded stays the same; but ``x[mask]`` and ``torch.nonzero(mask)`` get their sizes from
a mask that is known, ``x[: self.count.item()]`` is a slice, and Python code may ask whether a mask is causal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverloadPacket
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

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

_LIKE: Mapping[Any, float] = {torch.zeros_like: 0, torch.ones_like: 1}
_READS = frozenset(
    {
        *(getattr(torch.Tensor, name) for name in ("item", "tolist", "numpy", "equal", "allclose", "is_nonzero")),
        *(getattr(torch.Tensor, f"__{name}__") for name in ("array", "bool", "float", "index", "int")),
        torch.equal,
        torch.allclose,
        torch.is_nonzero,
    }
)
"""Functions that make of tensors what Python can look at."""

_SIZED = frozenset(
    [
        "argwhere",
        "bincount",
        "masked_select",
        "nonzero",
        "one_hot",
        "repeat_interleave",
        "unique",
        "unique_consecutive",
        "where",
        "_return_output",
        "_return_inverse",
        "_return_counts",
        "_unique_impl",
        "_unique_consecutive_impl",
    ]
)
"""Functions whose results' sizes depend on values."""

_INDEXING = frozenset({torch.Tensor.__getitem__, torch.Tensor.__setitem__})
_MASKS = (torch.bool, torch.uint8)
_OWN = ("aten::", "prims::")


class KnownValues(TorchFunctionMode):
    """Keeps what factories make and what buffers hold, and forgets what enters operators that are not PyTorch's own.

    Bodies of loops take values that are different on every trip, and PyTorch would run what computes on known values
    right away, whatever it does on the host.

    Args:
        buffers: The values of buffers, by name.

    Attributes:
        was_read: True once Python looked at a value.
    """

    def __init__(self, buffers: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.was_read = False
        self._buffers = buffers
        self._copies: dict[tuple[int, int], tuple[torch.Tensor, object, torch.Tensor]] = {}

    @contextmanager
    def of(self, model: torch.nn.Module) -> Iterator[None]:
        """Keep the values of a model's buffers, and of constants, inside."""
        for name, buffer in model.named_buffers():
            if name in self._buffers:
                _know(buffer, functools.partial(self._buffers.__getitem__, name))
        with patched(fake_tensor, CONSTANT_NUMEL_LIMIT=_MOST_ELEMENTS), self:
            yield

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The result of the function."""
        given = kwargs or {}
        if torch.compiler.is_dynamo_compiling():  # Bodies of PyTorch's control flow: nothing is known in them.
            return function(*args, **given)
        tensors = [leaf for leaf in pytree.tree_leaves((args, given)) if isinstance(leaf, torch.Tensor)]
        if any(type(t) is torch.Tensor for t in tensors) and _is_outermost():
            args, given = pytree.tree_map_only(torch.Tensor, self._own_copy, (args, given))
        if is_foreign(function):
            for value in tensors:
                if isinstance(value, FakeTensor) and value.constant is not None:
                    value.fake_mode.fake_tensor_converter.invalidate_constant_aliases(value.constant)
        if function in _READS and all(known_value(t) is not None for t in tensors):
            self.was_read = True
            with on_host():
                made = function(*pytree.tree_map_only(torch.Tensor, known_value, args), **given)
                return made.copy() if isinstance(made, np.ndarray) else made
        if function in _INDEXING and tensors:
            args = (args[0], pytree.tree_map_only(torch.Tensor, self._as_mask, args[1]), *args[2:])
        elif getattr(function, "__name__", None) in _SIZED:
            args, given = pytree.tree_map_only(torch.Tensor, self._as_constant, (args, given))
        made = function(*args, **given)
        if not tensors and function in _FACTORIES and _is_plain(made):
            _know(made, lambda: function(*args, **given))
        elif function in _LIKE and _is_plain(made):
            _know(made, lambda: torch.full(made.shape, _LIKE[function], dtype=made.dtype))
        return made

    def _own_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """Stand-in for a tensor with data: a copy, which ``forward`` may change without changing the host's."""
        # Wrappers of torch.func are plain tensors too, also once their transform has ended: they carry gradients.
        if type(tensor) is not torch.Tensor or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
            return tensor
        # Functions within the model may be recorded by themselves, and a copy is of one recording.
        mode = get_proxy_mode()
        key = id(tensor), id(mode)
        if key not in self._copies:
            # Tensor and recording are kept too: their numbers would else be others'.
            self._copies[key] = tensor, mode, torch.ops.aten.lift_fresh_copy.default(tensor)
        return self._copies[key][2]

    def _as_mask(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._as_constant(tensor) if tensor.dtype in _MASKS else tensor

    def _as_constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor of whole numbers that is known, as a constant of the program."""
        known = tensor.constant if isinstance(tensor, FakeTensor) and not tensor.is_floating_point() else None
        if known is None or not _is_outermost():
            return tensor
        self.was_read = True
        made: torch.Tensor = torch.ops.aten.lift_fresh_copy.default(known)
        return made


def buffer_values(model: torch.nn.Module, changing: Collection[str]) -> dict[str, torch.Tensor]:
    """Values of the buffers of a model that can be known while it is recorded; those that are ``changing`` cannot.

    They are copies: PyTorch computes changes in place on them too.
    """
    return {
        name: buffer.detach().clone()
        for name, buffer in model.named_buffers()
        if name not in changing and buffer.numel() <= _MOST_ELEMENTS and not buffer.is_complex()
    }


@contextmanager
def on_host() -> Iterator[None]:
    """Nothing is recorded inside: calls compute, on tensors that have data."""
    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def known_value(tensor: Any) -> torch.Tensor | None:
    """The values of a tensor, where they are known while a model is recorded."""
    return tensor.constant if isinstance(tensor, FakeTensor) else None


def is_foreign(function: Any) -> bool:
    """True for an operator of a library other than PyTorch's."""
    packet = getattr(function, "overloadpacket", function)
    return isinstance(packet, OpOverloadPacket) and not packet._qualified_op_name.startswith(_OWN)


def _know(tensor: Any, value: Callable[[], torch.Tensor]) -> None:
    if isinstance(tensor, FakeTensor) and tensor.constant is None:
        with on_host():
            tensor.constant = value()
        tensor.fake_mode.fake_tensor_converter.add_constant_storage_mapping(tensor)


def _is_plain(made: Any) -> bool:
    """True for a tensor to keep the values of; inside of ``torch.func.vmap`` and its kin real tensors are wrapped."""
    if not isinstance(made, FakeTensor) or not _is_outermost():
        return False
    return not any(isinstance(size, torch.SymInt) for size in made.shape) and made.numel() <= _MOST_ELEMENTS


def _is_outermost() -> bool:
    return torch._C._functorch.peek_interpreter_stack() is None
