"""Keras on its JAX backend, before any test imports it."""

import pytest

pytest.importorskip("jax")
pytest.importorskip("keras")

from abele.frontends.keras import private  # noqa: E402, F401
