"""``poptorch._impl``: private names of PopTorch that programs and tests touch."""

from __future__ import annotations

from typing import Any

from abele.frontends.poptorch.models import user_models
from abele.frontends.poptorch.program import recording

__all__ = ["_restoreWrapperIfNecessary", "isDispatchTracing", "rewrapModelIfNecessary", "unwrapModelIfNecessary"]


def isDispatchTracing() -> bool:
    """True while a model's ``forward`` is being recorded."""
    return recording.isRunningOnIpu()


def _restoreWrapperIfNecessary(model: Any) -> Any:
    """A model, of its own class, whoever wrapped it before it was pickled."""
    return user_models.restored(model)


def unwrapModelIfNecessary(model: Any) -> Any:
    """A model, of its own class with the newest weights, until :func:`rewrapModelIfNecessary`."""
    if user_models.owner_of(model) is not None:
        model.copyWeightsToHostIfNeeded()
    return user_models.restored(model)


def rewrapModelIfNecessary(model: Any) -> None:
    """Give a model back the class that it had before :func:`unwrapModelIfNecessary`, if a wrapper has it."""
    owner = user_models.owner_of(model)
    if owner is not None:
        user_models.own(model, owner)
