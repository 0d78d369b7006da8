"""Keras on its JAX backend: chosen before the first import of Keras, or refused with what to do."""

from __future__ import annotations

import os
import re
import sys
import warnings
from importlib import metadata
from typing import Any

from abele.errors import AbeleError, MissingPackageError

TESTED = {"keras": ((3, 15), (3, 16)), "jax": ((0, 10), (0, 11))}
"""Tested versions: from the first on, and below the second. Some of the names that are read are private to them."""
_VARIABLE = "KERAS_BACKEND"


class KerasBackendError(AbeleError, RuntimeError):
    """A setting of Keras or of JAX, made before this package was imported, with which it does not work."""


class UntestedVersionWarning(UserWarning):
    """A version of Keras or JAX that this package was not tested with."""


def require_jax_backend() -> Any:
    """Import Keras on its JAX backend.

    Returns:
        The module ``keras``.

    Raises:
        MissingPackageError: Keras or JAX is not installed.
        KerasBackendError: Keras was imported on another backend, or JAX has 64-bit types on.
    """
    loaded = sys.modules.get("keras")
    if loaded is None:
        os.environ[_VARIABLE] = "jax"
    keras = _imported("keras")
    if keras.backend.backend() != "jax":
        raise KerasBackendError(
            f"Keras runs on {keras.backend.backend()}, and Abele reads what Keras does on JAX",
            because="keras was imported before abele.keras, which chooses the backend",
            remedy=f"import abele.keras first, or set {_VARIABLE}=jax before the program starts",
        )
    jax = _imported("jax")
    if jax.config.jax_enable_x64:
        raise KerasBackendError(
            "jax_enable_x64 is on, and the machine has no 64-bit types",
            remedy='before abele.keras: jax.config.update("jax_enable_x64", False), or unset JAX_ENABLE_X64',
        )
    for name in TESTED:
        _check_version(name)
    return keras


def _imported(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise MissingPackageError(
            f"abele.keras needs {name}, which is not installed", remedy="pip install 'abele[keras]'"
        ) from error


def _check_version(name: str) -> None:
    version = metadata.version(name)
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    first, end = TESTED[name]
    if not first <= numbers < end:
        tested = f"{name}>={_text(first)},<{_text(end)}"
        warnings.warn(
            f"{name} {version} is outside the range that Abele was tested with; pip install '{tested}' is tested",
            UntestedVersionWarning,
            stacklevel=3,
        )


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
