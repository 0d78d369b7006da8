"""A lookalike of ``tensorflow`` for programs of Keras: tensors are JAX arrays, ``tf.keras`` is Keras 3.

``tensorflow()`` is the module; :mod:`importing` lets programs find it under its name.
"""

from __future__ import annotations

from ..backend import require_jax_backend

require_jax_backend()

from .importing import install, uninstall  # noqa: E402
from .root import tensorflow  # noqa: E402

__all__ = ["install", "tensorflow", "uninstall"]
