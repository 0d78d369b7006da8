"""``poptorch._impl``: private names of PopTorch that programs and tests touch."""

from __future__ import annotations

from typing import Any

from abele.frontends.poptorch.models import user_models
from abele.frontends.poptorch.program import recording

__all__ = ["_restoreWrapperIfNecessary", "isDispatchTracing"]


def isDispatchTracing() -> bool:
    """True while a model's ``forward`` is being recorded."""
    return recording.isRunningOnIpu()


def _restoreWrapperIfNecessary(model: Any) -> Any:
    """A model, of its own class, whoever wrapped it before it was pickled."""
    return user_models.restored(model)
