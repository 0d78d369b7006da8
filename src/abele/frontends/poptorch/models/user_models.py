"""The user's own model while a training wrapper has it: of a class that can bring its weights home and let go.

``type(model).__name__`` is then ``Poptorch`` and the class's name. Copies and pickles are of the model's own class.
"""

from __future__ import annotations

import contextlib
import copyreg
import weakref
from collections.abc import Iterator
from typing import Any, Protocol

import torch


class ModelWrapper(Protocol):
    """Owner of a model."""

    def destroy(self) -> None:
        """Let go of it."""

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Bring its weights to the host."""


_OWNERS: weakref.WeakKeyDictionary[torch.nn.Module, weakref.ref[Any]] = weakref.WeakKeyDictionary()


class _OwnedModel:
    """Methods of a model while it is wrapped."""

    _abele_plain: type[torch.nn.Module]

    def destroy(self) -> None:
        """Release the compiled program; the model is of its own class again."""
        owner = owner_of(self)
        if owner is not None:
            owner.destroy()

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Bring the newest weights to the host, if the device has newer ones; returns whether it had."""
        owner = owner_of(self)
        return owner is not None and owner.copyWeightsToHostIfNeeded()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle as a model of the plain class."""
        made: Any = super().__reduce_ex__(protocol)
        if isinstance(made, str):
            return made
        function, args, *rest = made
        own, plain = type(self), self._abele_plain
        plain_args = tuple(plain if arg is own else arg for arg in args)
        return _new if function is copyreg.__newobj__ else function, plain_args, *rest  # type: ignore[attr-defined]


def _new(kind: type[Any], *args: Any) -> Any:
    """An object of a class; pickle wants that of the object itself for the function of its own."""
    return kind.__new__(kind, *args)


def owner_of(model: object) -> ModelWrapper | None:
    """The training wrapper that has a model now."""
    reference = _OWNERS.get(model) if isinstance(model, torch.nn.Module) else None
    owner: ModelWrapper | None = reference() if reference is not None else None
    return owner


_OWNED: dict[type[torch.nn.Module], Any] = {}


def _owned_class(plain: type[torch.nn.Module]) -> Any:
    if plain in _OWNED:
        return _OWNED[plain]
    names = {"_abele_plain": plain, "__module__": plain.__module__, "__doc__": plain.__doc__}
    return _OWNED.setdefault(plain, type(f"Poptorch{plain.__name__}", (_OwnedModel, plain), names))


def plain_class(model: torch.nn.Module) -> type[torch.nn.Module]:
    """The class of a model, whoever has it."""
    return model._abele_plain if isinstance(model, _OwnedModel) else type(model)


def own(model: torch.nn.Module, owner: ModelWrapper) -> None:
    """Let a wrapper have a model."""
    _OWNERS[model] = weakref.ref(owner)
    if not isinstance(model, _OwnedModel):
        with contextlib.suppress(TypeError):  # A class with another layout, such as one with slots.
            model.__class__ = _owned_class(type(model))


def disown(model: torch.nn.Module, owner: ModelWrapper) -> None:
    """Make a model plain again, if this wrapper has it."""
    if owner_of(model) in (owner, None):
        _OWNERS.pop(model, None)
        restored(model)


def restored(model: Any) -> Any:
    """A model, of its own class again."""
    plain: Any = getattr(type(model), "_abele_plain", None)
    if plain is not None:
        model.__class__ = plain
    return model


@contextlib.contextmanager
def as_plain(model: torch.nn.Module) -> Iterator[None]:
    """The model of its own class inside."""
    kind = type(model)
    restored(model)
    try:
        yield
    finally:
        if type(model) is not kind:
            model.__class__ = kind
