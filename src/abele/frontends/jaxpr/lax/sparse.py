"""Sparse arrays of ``jax.experimental.sparse``: numbers, and the indices at which they are.

JAX has a definition in gathers, scatters and sums for each operation on them, which its own CPU lowering takes too.
They are read in the place of the operation: the product of a BCOO matrix with n numbers and a dense one gathers n rows,
scales them, and adds them up by number.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from abele.frontends.jaxpr.registry import PrimitiveCall, primitive
from abele.network import Value

_OPERATIONS = {
    "bcoo": "todense fromdense extract transpose dot_general dot_general_sampled spdot_general sort_indices",
    "bcsr": "todense fromdense extract dot_general",
    "coo": "todense fromdense matvec matmat",
    "csr": "todense fromdense matvec matmat",
}
_NAMES = tuple(f"{kind}_{what}" for kind, names in _OPERATIONS.items() for what in names.split())


def _definition(name: str) -> Callable[..., Any]:
    """Function by which JAX defines an operation."""
    kind = "api" if name == "todense" else name.split("_")[0]
    module = importlib.import_module(f"jax.experimental.sparse.{kind}")
    found: Callable[..., Any] = getattr(module, f"_{name}_impl")
    return found


@primitive(*_NAMES, "bcoo_sum_duplicates", "todense")
def sparse(call: PrimitiveCall, *operands: Value) -> tuple[Value, ...]:
    """Results of JAX's definition."""
    definition, params = _definition(call.name), call.eqn.params
    return call.traced(lambda *given: definition(*given, **params), *operands)
