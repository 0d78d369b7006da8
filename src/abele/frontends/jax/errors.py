"""Errors that users of JAX know, as kinds of our own; each is of JAX's or Python's kind as well."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Iterator
from types import TracebackType

import jax

from abele.errors import AbeleError, ElementRangeError, SignatureError, TypeMismatchError

_FOREIGN = (os.path.dirname(jax.__file__), os.path.dirname(os.path.dirname(os.path.dirname(__file__))))


class DonatedError(AbeleError, RuntimeError):
    """An array that is used after it was donated, or donated and used in the same call."""


class CallError(SignatureError, TypeError):
    """Arguments of a compiled function that differ from those it was compiled for."""


class ResultError(TypeMismatchError):
    """A function that returns something else than arrays."""


class NoArrayError(TypeMismatchError):
    """An argument that is no array, and not said to be static."""


class ArgumentPlaceError(AbeleError, ValueError):
    """An argument that is not in the memory of the host."""


class StaticError(AbeleError, ValueError):
    """A static argument that cannot be hashed, or is there twice."""


class TransformError(AbeleError, NotImplementedError):
    """A transformation of JAX that a compiled function does not have from outside."""


class _TraceError(AbeleError):
    """Base of errors of tracing, whose kinds in JAX take other arguments."""

    def __init__(
        self, message: str, *, at: str | None = None, because: str | None = None, remedy: str | None = None
    ) -> None:
        self.message, self.at, self.because, self.remedy = message, at, because, remedy
        Exception.__init__(self, message)


class ConcreteValueError(_TraceError, jax.errors.ConcretizationTypeError):  # type: ignore[misc]
    """A value that has to be known while the function is traced, such as a size."""


class TracedSizeError(AbeleError, TypeError):
    """A shape that holds a value of the device."""


class BooleanIndexError(_TraceError, jax.errors.NonConcreteBooleanIndexError):  # type: ignore[misc]
    """A selection by a mask, whose size depends on values."""


class TracerBoolError(_TraceError, jax.errors.TracerBoolConversionError):  # type: ignore[misc]
    """A Python branch on a value of the device."""


class TracerIntegerError(_TraceError, jax.errors.TracerIntegerConversionError):  # type: ignore[misc]
    """A Python index or size that is a value of the device."""


class TracerArrayError(_TraceError, jax.errors.TracerArrayConversionError):  # type: ignore[misc]
    """A function of NumPy on a value of the device."""


class LeakedTracerError(_TraceError, jax.errors.UnexpectedTracerError):  # type: ignore[misc]
    """A value of one trace that is used in another, or after it."""


_SIZES = "give sizes as static arguments, or choose with jnp.where among arrays of one size (size= of jnp.nonzero)"

_KINDS: dict[type[Exception], tuple[type[_TraceError], str]] = {
    jax.errors.TracerBoolConversionError: (
        TracerBoolError,
        "jax.lax.cond, jnp.where or jax.lax.while_loop; or make the argument static (static_argnames)",
    ),
    jax.errors.NonConcreteBooleanIndexError: (BooleanIndexError, _SIZES),
    jax.errors.TracerIntegerConversionError: (TracerIntegerError, _SIZES),
    jax.errors.TracerArrayConversionError: (TracerArrayError, "use jax.numpy in place of numpy"),
    jax.errors.UnexpectedTracerError: (
        LeakedTracerError,
        "return the value from the traced function; keep none in globals or objects",
    ),
    jax.errors.ConcretizationTypeError: (ConcreteValueError, _SIZES),
}
"""Errors of tracing by JAX's kind, derived ones first: ours, and what to do."""


def users_line(trace: TracebackType | None) -> str | None:
    """The last line of a traceback that is neither JAX's nor ours: ``file:line``."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_FOREIGN)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


@contextlib.contextmanager
def traced_errors(name: str) -> Iterator[None]:
    """Let what JAX raises while it traces a function come out as kinds of ours, with the user's line."""
    try:
        yield
    except AbeleError:
        raise
    except tuple(_KINDS) as error:
        ours, remedy = next(found for kind, found in _KINDS.items() if isinstance(error, kind))
        first, *rest = [line for line in str(error).splitlines() if line and "See https" not in line]
        at = users_line(error.__traceback__)
        raise ours(f"{name} cannot be traced: {first}", at=at, because="\n".join(rest) or None, remedy=remedy) from None
    except OverflowError as error:
        raise ElementRangeError(
            f"an integer of {name} does not fit in 32 bits",
            because=str(error).splitlines()[0],
            remedy="numbers within ±2³¹, or float32",
        ) from None
    except TypeError as error:
        kind = _type_error(name, error)
        if kind is None:
            raise
        raise kind from None


def _type_error(name: str, error: TypeError) -> AbeleError | None:
    first = str(error).splitlines()[0] if str(error) else ""
    if "not a valid JAX type" in first and "returned" in first:
        return ResultError(
            f"{name} returns what is no array: {first}",
            remedy="return arrays, numbers, and lists, tuples, dicts or registered classes of them",
        )
    if first.startswith("Error interpreting argument"):
        return NoArrayError(
            f"an argument of {name} is no array: {first}",
            remedy="pass arrays and numbers, or name it in static_argnums or static_argnames",
        )
    if first.startswith("Shapes must be 1D sequences of concrete values"):
        return TracedSizeError(
            f"{name} cannot be traced: a shape holds a value of the device",
            at=users_line(error.__traceback__),
            because=first,
            remedy=_SIZES,
        )
    return None
