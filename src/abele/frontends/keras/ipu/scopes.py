"""``scopes``: marks of TensorFlow's graphs, which nothing here needs.

A program runs where its strategy says, stages are those of ``PipelineStage``, and partial sums and rounding are set for
a whole program by ``IPUConfig``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "frontend_attribute",
    "ipu_jit_scope",
    "ipu_scope",
    "ipu_shard",
    "outside_compilation_scope",
    "partials_type",
    "stochastic_rounding",
]


@contextmanager
def _unmarked(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Nothing: what is computed inside is computed as elsewhere."""
    yield


frontend_attribute = ipu_jit_scope = ipu_scope = ipu_shard = outside_compilation_scope = _unmarked
partials_type = stochastic_rounding = _unmarked
