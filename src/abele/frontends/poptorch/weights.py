"""Weights that live on the device: the host's tensors follow when they are looked at."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

import torch


class WeightOwner(Protocol):
    """Who holds the newest weights."""

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copy them to the host if they changed since."""


_OWNERS: dict[int, tuple[weakref.ref[torch.Tensor], weakref.ref[Any]]] = {}


class _Followed:
    """Mixin of tensors that ask their owner for the newest values before any use."""

    plain: ClassVar[type[torch.Tensor]]

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Bring the tensors among the arguments up to date, then call ``function`` as if they were plain."""
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


def bring_up_to_date(tensor: torch.Tensor, *, but: WeightOwner | None = None) -> bool:
    """Copy newest values to the host, unless ``but`` has them; returns whether another owner has them at all."""
    owner = owner_of(tensor)
    if owner is None or owner is but:
        return False
    owner.copyWeightsToHostIfNeeded()
    return True


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, (PoptorchParameter, PoptorchBuffer)):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _tensors(item)
    elif isinstance(tree, dict):
        yield from _tensors(tuple(tree.values()))


def owner_of(tensor: torch.Tensor) -> WeightOwner | None:
    """Who holds the newest values of ``tensor``, if anyone does."""
    entry = _OWNERS.get(id(tensor))
    if entry is None or entry[0]() is not tensor:
        return None
    owner: WeightOwner | None = entry[1]()
    return owner


def follow(tensors: Iterable[torch.Tensor], owner: WeightOwner) -> None:
    """Let ``tensors`` ask ``owner`` for their values from now on."""
    for tensor in tensors:
        _OWNERS[id(tensor)] = (weakref.ref(tensor), weakref.ref(owner))
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        tensor.__class__ = PoptorchParameter if is_parameter else PoptorchBuffer


def release(tensors: Iterable[torch.Tensor], owner: WeightOwner) -> None:
    """Make ``tensors`` plain again where ``owner`` held them."""
    for tensor in tensors:
        if owner_of(tensor) in (owner, None):
            _OWNERS.pop(id(tensor), None)
            _make_plain(tensor)


def _make_plain(tensor: torch.Tensor) -> None:
    if isinstance(tensor, _Followed):
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
