"""``ipu_compiler``: a computation as one program, from before strategies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from abele.frontends.keras.ipu.running import run_function

__all__ = ["compile"]


def compile(computation: Callable[..., Any], inputs: Sequence[Any] | None = None) -> Any:
    """Results of a computation that ran as one program, as ``IPUStrategy.run`` runs it."""
    return run_function(computation, tuple(inputs or ()), {})
