"""``jax.jit`` of programs as ours: ``python -m abele.jax program.py``, or ``abele.jax.install()``."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from abele.frontends.jax.jit import jit

_JIT = jax.jit
_PACKAGE = str(Path(__file__).parents[2])
_LIBRARIES = (_PACKAGE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))
_WRAPPERS = ("equinox._jit", "flax.nnx.transforms.compilation")
"""Modules of libraries whose own ``jit`` is made of JAX's: what they compile is the user's."""
_PLACEMENT = ("in_shardings", "out_shardings", "device", "backend", "compiler_options")
"""Options of ``jax.jit`` that say where, and how, XLA computes."""


def install(**options: Any) -> None:
    """Let ``jax.jit`` be :func:`abele.jax.jit` for the functions of the program from now on.

    Libraries keep JAX's for functions of their own, as does whoever names a ``backend``. ``jax.devices()`` stays as it
    is, and functions that are not compiled run there.

    Args:
        **options: Options that every function gets, such as ``target`` or ``settings``.
    """

    @functools.wraps(_JIT)
    def jit_of_program(fn: Callable[..., Any] | None = None, /, **given: Any) -> Any:
        if not _is_of_program(sys._getframe(1)) or given.get("backend") not in (None, "ipu"):
            if given.get("backend") == "cpu":  # the default, whose name JAX deprecates
                del given["backend"]
            return _JIT(**given) if fn is None else _JIT(fn, **given)
        return jit(fn, **{n: v for n, v in given.items() if n not in _PLACEMENT}, **options)

    jax.jit = jit_of_program


def uninstall() -> None:
    """Let ``jax.jit`` be JAX's again."""
    jax.jit = _JIT


def _is_of_program(frame: Any) -> bool:
    """True for code outside of libraries, and for the libraries that wrap ``jax.jit``."""
    if frame.f_globals.get("__name__") in _WRAPPERS:
        return True
    return not frame.f_code.co_filename.startswith(_LIBRARIES)
