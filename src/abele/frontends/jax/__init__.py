"""The front end of JAX: ``jit`` over the reader of jaxprs."""

import abele.frontends.jaxpr  # noqa: F401  (it says what to install where JAX is missing)  # isort: skip

import warnings

import jax

from abele.frontends.jax.errors import (
    ArgumentPlaceError,
    BooleanIndexError,
    CallError,
    ConcreteValueError,
    DonatedError,
    LeakedTracerError,
    NoArrayError,
    ResultError,
    StaticError,
    TracedSizeError,
    TracerArrayError,
    TracerBoolError,
    TracerIntegerError,
    TransformError,
)
from abele.frontends.jax.install import install, uninstall
from abele.frontends.jax.jit import Compiled, Jitted, Lowered, jit
from abele.frontends.jax.memory import MemoryStats
from abele.frontends.jax.pmap import pmap
from abele.frontends.jax.resident import DeviceArray

TESTED = (0, 10)
"""Version of JAX that is tested: what it says of traces has no promise beyond a minor version."""


def warn_of_jax(version: tuple[int, ...], *, has_x64: bool) -> None:
    """Say what of the installed JAX will not work, and what to do."""
    if version[:2] != TESTED:
        shown, tested = ".".join(map(str, version)), ".".join(map(str, TESTED))
        warnings.warn(
            f"abele.jax is tested with JAX {tested}.x, and {shown} is installed; functions may not be read. "
            f"Try: pip install 'jax=={tested}.*'",
            stacklevel=3,
        )
    if has_x64:
        warnings.warn(
            "jax_enable_x64 is on, and the device has no 64-bit types: functions that use them are refused. "
            "Try: jax.config.update('jax_enable_x64', False), or unset JAX_ENABLE_X64",
            stacklevel=3,
        )


warn_of_jax(jax.version.__version_info__, has_x64=bool(jax.config.jax_enable_x64))

__all__ = [
    "ArgumentPlaceError",
    "BooleanIndexError",
    "CallError",
    "Compiled",
    "ConcreteValueError",
    "DeviceArray",
    "DonatedError",
    "Jitted",
    "LeakedTracerError",
    "Lowered",
    "MemoryStats",
    "NoArrayError",
    "ResultError",
    "StaticError",
    "TracedSizeError",
    "TracerArrayError",
    "TracerBoolError",
    "TracerIntegerError",
    "TransformError",
    "install",
    "jit",
    "pmap",
    "uninstall",
    "warn_of_jax",
]
