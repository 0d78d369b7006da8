"""Recording of models: whether one goes on, and hooks around it."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.hooks import RemovableHandle

from abele.session.array_sync import ForkLock

_state = {"recording": False}

COMPILING = ForkLock()
"""Held while a model is recorded: PyTorch's recording is one for the whole process."""

Hook = Callable[[], Any]
_PRE_HOOKS: OrderedDict[int, Hook] = OrderedDict()
_POST_HOOKS: OrderedDict[int, Hook] = OrderedDict()


def isRunningOnIpu() -> bool:
    """True if a model's ``forward`` is being recorded right now."""
    return _state["recording"]


@contextlib.contextmanager
def recording() -> Iterator[None]:
    """Marks that a model is being recorded; hooks run around it."""
    for hook in list(_PRE_HOOKS.values()):
        hook()
    _state["recording"] = True
    try:
        yield
    finally:
        _state["recording"] = False
        for hook in list(_POST_HOOKS.values()):
            hook()


def registerPreCompileHook(hook: Hook) -> RemovableHandle:
    """Call ``hook`` before any model is recorded.

    Raises:
        RuntimeError: It cannot be called.
    """
    return _register(hook, _PRE_HOOKS, "Pre-compile hook must be callable")


def registerPostCompileHook(hook: Hook) -> RemovableHandle:
    """Call ``hook`` after any model was recorded.

    Raises:
        RuntimeError: It cannot be called.
    """
    return _register(hook, _POST_HOOKS, "Post-compile hook must be callable")


def _register(hook: Hook, hooks: OrderedDict[int, Hook], refusal: str) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(refusal)
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
