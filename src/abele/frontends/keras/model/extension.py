"""Models made inside the scope of a strategy: Keras' classes with the methods of IPU models.

``keras.Model`` and ``Sequential`` are not changed: an object that is made inside gets, as its class, a subclass of its
own class. So models that were made outside, and isinstance checks, stay as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from abele.frontends.keras.model.methods import IpuMethods
from abele.frontends.keras.private import Model

_LOCK = threading.RLock()
_CLASSES: dict[type, type] = {}
_METHODS = {
    name: value for name, value in vars(IpuMethods).items() if name not in ("__dict__", "__weakref__", "__doc__")
}
MARK = "_abele_extended"
_depth = 0


def is_extended(model: Any) -> bool:
    """True for a model with the methods of IPU models."""
    return MARK in vars(type(model))


def extended_class(kind: type) -> type:
    """The class of models of ``kind`` on the device."""
    if MARK in vars(kind):
        return kind
    if kind not in _CLASSES:
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__, MARK: True}
        _CLASSES[kind] = type(kind.__name__, (kind,), _METHODS | names)
    return _CLASSES[kind]


@contextmanager
def extended_models() -> Iterator[None]:
    """Models that are made inside have the methods of IPU models."""
    global _depth
    original = Model.__new__

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        made = original(cls, *args, **kwargs)
        if isinstance(made, Model):
            made.__class__ = extended_class(type(made))
        return made

    with _LOCK:
        _depth += 1
        if _depth == 1:
            Model.__new__ = new
            _undo.append(original)
    try:
        yield
    finally:
        with _LOCK:
            _depth -= 1
            if _depth == 0:
                Model.__new__ = _undo.pop()


_undo: list[Any] = []
