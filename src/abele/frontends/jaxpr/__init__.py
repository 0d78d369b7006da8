"""The reader of JAX's traces: a jaxpr becomes a network, whoever traced it."""

import importlib.util

from abele.errors import MissingPackageError

if importlib.util.find_spec("jax") is None:
    raise MissingPackageError(
        "abele.jax and abele.keras need JAX, which is not installed",
        remedy="pip install 'abele[jax]', or 'abele[keras]'",
    )

from abele.frontends.jaxpr import lax as _lax  # noqa: F401  (registers the handlers)
from abele.frontends.jaxpr.capture import Captured, capture, read_into
from abele.frontends.jaxpr.registry import HANDLERS, PrimitiveCall, primitive
from abele.frontends.jaxpr.types import element_type, is_key, type_of

__all__ = [
    "HANDLERS",
    "Captured",
    "PrimitiveCall",
    "capture",
    "element_type",
    "is_key",
    "primitive",
    "read_into",
    "type_of",
]
