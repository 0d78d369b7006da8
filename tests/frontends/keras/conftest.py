"""Keras on its JAX backend, chosen before any test imports it, and a configuration for each test."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

pytest.importorskip("jax")
pytest.importorskip("keras")

from abele.frontends.keras.ipu import config, ipu_strategy

import keras  # isort: skip


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    config.reset_ipu_configuration()
    keras.utils.set_random_seed(1)
    with warnings.catch_warnings():
        # Keras' variables as arrays of NumPy 2.
        warnings.filterwarnings("ignore", "__array__ implementation", DeprecationWarning)
        yield
    config.reset_ipu_configuration()


@pytest.fixture
def ipus() -> Callable[[int], AbstractContextManager[Any]]:
    """The scope of a strategy on so many IPUs."""

    def scope(count: int = 1) -> AbstractContextManager[Any]:
        config.reset_ipu_configuration()
        chosen = config.IPUConfig()
        chosen.auto_select_ipus = count
        chosen.configure_ipu_system()
        return ipu_strategy.IPUStrategy().scope()

    return scope
