from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("keras") is None or importlib.util.find_spec("jax") is None:
    pytest.skip("needs Keras and JAX", allow_module_level=True)


@pytest.fixture(scope="session")
def tf() -> Any:
    """The lookalike of TensorFlow."""
    from abele.keras import tensorflow

    return tensorflow


@pytest.fixture
def installed(tf: Any) -> Any:
    """The same, found by ``import tensorflow`` while a test runs."""
    from abele import keras

    keras.install()
    yield tf
    keras.uninstall()
