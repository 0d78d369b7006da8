"""Weights that live on the device: the host's tensors are cells of sessions, and follow when they are looked at."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from abele.arrays import Array
from abele.frontends.poptorch.values.sparse import held_values, is_sparse
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.session.arrays import Holder, SharedArray

_OF_NO_VALUES = frozenset(
    [
        *(getattr(torch.Tensor, name) for name in ("size", "dim", "numel", "is_floating_point", "is_complex")),
        *(
            getattr(torch.Tensor, name).__get__
            for name in ("shape", "dtype", "device", "ndim", "layout", "is_leaf", "requires_grad", "retains_grad")
        ),
        torch.is_floating_point,
        torch.is_complex,
    ]
)
"""Functions that ask for no values. A new optimiser, which many programs make at every step, asks this of all
weights.
"""


class _Followed:
    """Mixin of tensors that ask their owner for the newest values before any use of them."""

    plain: ClassVar[type[torch.Tensor]]

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Bring the tensors among the arguments up to date, then call ``function`` as if they were plain."""
        if function not in _OF_NO_VALUES:
            for argument in _tensors((args, kwargs or {})):
                bring_up_to_date(argument)
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickled as the plain tensor that it stands for, with the newest values."""
        twin: Any = _plain_twin(self)
        return twin.__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        """A plain tensor with the newest values."""
        if id(self) not in memo:
            memo[id(self)] = copy.deepcopy(_plain_twin(self), memo)
        twin: torch.Tensor = memo[id(self)]
        return twin


class PoptorchParameter(_Followed, torch.nn.Parameter):
    """A parameter whose newest values are on the device."""

    plain = torch.nn.Parameter


class PoptorchBuffer(_Followed, torch.Tensor):
    """A buffer whose newest values are on the device."""

    plain = torch.Tensor


def _plain_twin(tensor: Any) -> torch.Tensor:
    """A plain tensor over the same memory, up to date."""
    bring_up_to_date(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        plain: torch.Tensor = tensor.detach().as_subclass(torch.Tensor)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(plain, tensor.requires_grad)
        return plain.requires_grad_(tensor.requires_grad) if tensor.is_leaf else plain


def bring_up_to_date(tensor: torch.Tensor) -> None:
    """Copy newest values to the host, if a session has them."""
    cell = _CELLS.get(id(tensor))
    if cell is not None:
        cell.bring_up_to_date()


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, (PoptorchParameter, PoptorchBuffer)):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _tensors(item)
    elif isinstance(tree, dict):
        yield from _tensors(tuple(tree.values()))


class TensorCell(SharedArray):
    """A parameter or buffer as sessions see it. While a session holds it, it is of a class that asks for its values.

    Args:
        tensor: The parameter or buffer.
    """

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor
        # Words that tell the device a sparse pattern: no program changes them, and all are to have the same.
        self.follows_host = tensor.dtype == torch.uint16

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions."""
        with torch._C.DisableTorchFunctionSubclass():
            return tuple(self._held.shape)

    @property
    def version(self) -> int:
        """Something that differs once the tensor was written."""
        with torch._C.DisableTorchFunctionSubclass():
            return self._tensor._version

    def values(self) -> Array:
        """Values of the tensor on the host."""
        return to_array(self._held)

    @property
    def _held(self) -> torch.Tensor:
        """The tensor; of a sparse one its values."""
        return held_values(self._tensor) if is_sparse(self._tensor) else self._tensor

    def assign(self, values: npt.ArrayLike) -> None:
        """Write the tensor."""
        with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
            self._held.copy_(from_array(np.asarray(values)))

    def hold(self, holder: Holder) -> None:
        """Let the tensor ask ``holder`` for its values from now on."""
        super().hold(holder)
        is_parameter = isinstance(self._tensor, torch.nn.Parameter)
        self._tensor.__class__ = PoptorchParameter if is_parameter else PoptorchBuffer

    def release(self, holder: Holder) -> None:
        """Make the tensor plain again where ``holder`` held it."""
        if self.holder in (holder, None):
            super().release(holder)
            _make_plain(self._tensor)


_CELLS: weakref.WeakValueDictionary[int, TensorCell] = weakref.WeakValueDictionary()
"""The cell of a tensor, by ``id``: a cell keeps its tensor, so that the number stays its own."""


def cell_of(tensor: torch.Tensor) -> TensorCell:
    """The one cell of a tensor, whichever models it belongs to."""
    cell = _CELLS.get(id(tensor))
    if cell is None:
        cell = _CELLS[id(tensor)] = TensorCell(tensor)
    return cell


def _make_plain(tensor: torch.Tensor) -> None:
    if isinstance(tensor, _Followed):
        # Type checkers let no instance change its class; both classes are Tensor with other methods.
        tensor.__class__ = type(tensor).plain  # type: ignore[assignment]


@contextmanager
def plain(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Bring ``tensors`` up to date and make them plain inside, for code that cannot handle subclasses."""
    followed = [(t, type(t)) for t in tensors if isinstance(t, _Followed)]
    for tensor, _ in followed:
        bring_up_to_date(tensor)
        _make_plain(tensor)
    try:
        yield
    finally:
        for tensor, kind in followed:
            tensor.__class__ = kind
