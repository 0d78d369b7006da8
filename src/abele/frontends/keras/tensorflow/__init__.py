"""A lookalike of ``tensorflow`` for programs of Keras: tensors are JAX arrays, ``tf.keras`` is Keras 3."""

from __future__ import annotations
