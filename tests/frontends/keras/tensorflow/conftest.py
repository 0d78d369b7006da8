from __future__ import annotations

import importlib.util
from typing import Any

import pytest

if importlib.util.find_spec("keras") is None or importlib.util.find_spec("jax") is None:
    pytest.skip("needs Keras and JAX", allow_module_level=True)

import abele.keras  # It chooses the backend of Keras, which test modules import.


@pytest.fixture(scope="session")
def tf() -> Any:
    """The lookalike of TensorFlow."""
    return abele.keras.tensorflow


@pytest.fixture
def installed(tf: Any) -> Any:
    """The same, found by ``import tensorflow`` while a test runs."""
    abele.keras.install()
    yield tf
    abele.keras.uninstall()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keras' variables convert to NumPy arrays in a way that NumPy 2.4 deprecates."""
    item.add_marker(pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning"))
