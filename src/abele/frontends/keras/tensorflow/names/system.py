"""Names around computing: devices, checks, messages, summaries, errors, and what TensorFlow 1 left."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import time
import unittest
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from abele.errors import AbeleError, SessionError

from ..data.dataset import OutOfRangeError
from ..data.nodes import InvalidArgumentError
from ..tensors import StringTensor, numpy_of, tensor_of
from .table import shape_vector

LOGGER = logging.getLogger("tensorflow")
PhysicalDevice = namedtuple("PhysicalDevice", ["name", "device_type"])
_KINDS = ("CPU", "IPU")


def _devices(prefix: str) -> Callable[..., list[Any]]:
    def listed(device_type: str | None = None) -> list[Any]:
        return [PhysicalDevice(f"{prefix}:{kind}:0", kind) for kind in _KINDS if device_type in (None, kind)]

    return listed


def nothing(*_: Any, **__: Any) -> None:
    """Do nothing: a setting of TensorFlow's that makes no difference here."""


def constant(value: Any) -> Callable[..., Any]:
    """A function that gives one value whatever it is called with."""
    return lambda *_, **__: value


CONFIG = {
    "list_physical_devices": _devices("/physical_device"),
    "list_logical_devices": _devices("/device"),
    "get_visible_devices": _devices("/physical_device"),
    "set_visible_devices": nothing,
    "set_soft_device_placement": nothing,
    "run_functions_eagerly": nothing,
    "functions_run_eagerly": constant(True),
    "experimental_run_functions_eagerly": nothing,
    "experimental_connect_to_cluster": nothing,
}
CONFIG_EXPERIMENTAL = CONFIG | {
    "set_memory_growth": nothing,
    "get_memory_growth": constant(False),
    "enable_tensor_float_32_execution": nothing,
    "enable_op_determinism": nothing,
    "set_synchronous_execution": nothing,
}
THREADING = dict.fromkeys(
    ("set_inter_op_parallelism_threads", "set_intra_op_parallelism_threads"), nothing
) | dict.fromkeys(("get_inter_op_parallelism_threads", "get_intra_op_parallelism_threads"), constant(0))
OPTIMIZER = {"set_jit": nothing, "get_jit": constant(""), "set_experimental_options": nothing}


def _assertion(name: str, holds: Callable[..., Any]) -> Callable[..., None]:
    def check(x: Any, y: Any = None, message: str | None = None, **_: Any) -> None:
        operands = [tensor_of(part) for part in (x, y) if part is not None]
        true = holds(*operands)
        if not isinstance(true, jax.core.Tracer) and not bool(jnp.all(true)):
            shown = ", ".join(np.array2string(np.asarray(part), threshold=8) for part in operands)
            raise InvalidArgumentError(f"tf.debugging.{name}: {message or 'not true'}", because=f"of {shown}")

    return check


def _check_numerics(tensor: Any, message: str = "", name: str | None = None) -> Any:
    found = tensor_of(tensor)
    if not isinstance(found, jax.core.Tracer) and not bool(jnp.all(jnp.isfinite(found))):
        raise InvalidArgumentError(f"{message}: the tensor has infinities or NaN")
    return found


def _assert_shapes(shapes: Any, *_: Any, **__: Any) -> None:
    for tensor, wanted in shapes.items() if isinstance(shapes, dict) else shapes:
        found = list(shape_vector(tensor))
        if len(found) != len(wanted) or any(isinstance(b, int) and a != b for a, b in zip(found, wanted, strict=False)):
            raise InvalidArgumentError(f"a tensor of shape {found}, not {list(wanted)}")


_ASSERTIONS: dict[str, Callable[..., Any]] = {
    "assert_equal": jnp.equal,
    "assert_none_equal": jnp.not_equal,
    "assert_less": jnp.less,
    "assert_less_equal": jnp.less_equal,
    "assert_greater": jnp.greater,
    "assert_greater_equal": jnp.greater_equal,
    "assert_near": functools.partial(jnp.isclose, rtol=1e-5, atol=1e-5),
    "assert_positive": lambda x: x > 0,
    "assert_non_negative": lambda x: x >= 0,
    "assert_all_finite": jnp.isfinite,
    "Assert": lambda condition, data=None: condition,
    "assert_rank": lambda x, rank: jnp.asarray(x.ndim) == rank,
}
DEBUGGING: dict[str, Any] = {name: _assertion(name, holds) for name, holds in _ASSERTIONS.items()}
DEBUGGING |= {
    "check_numerics": _check_numerics,
    "assert_shapes": _assert_shapes,
    "enable_check_numerics": nothing,
    "disable_check_numerics": nothing,
    "set_log_device_placement": nothing,
}


def print_tensors(
    *inputs: Any, output_stream: Any = None, end: str = "\n", sep: str = " ", summarize: int = 3, **_: Any
) -> None:
    """``tf.print``: values of tensors, long ones without their middle; while a function is traced, when it runs."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in inputs):
        jax.debug.print(sep.join("{}" for _ in inputs), *inputs)
        return
    streams = {None: sys.stderr, "stdout": sys.stdout}
    stream = streams.get(output_stream, output_stream)
    print(*(_text(part, summarize) for part in inputs), end=end, sep=sep, file=stream)


def _text(value: Any, summarize: int) -> str:
    if isinstance(value, str) or not hasattr(value, "dtype"):
        return str(value)
    found = value.numpy() if isinstance(value, StringTensor) else np.asarray(numpy_of(value))
    if isinstance(found, bytes):
        return found.decode(errors="replace")
    edge = max(summarize, 1) if summarize >= 0 else found.size
    return np.array2string(found, threshold=2 * edge, edgeitems=edge, separator=" ")


class NumericTestCase(unittest.TestCase):
    """``tf.test.TestCase``."""

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6, msg: Any = None) -> None:
        """Fail unless all elements are close."""
        np.testing.assert_allclose(numpy_of(a), numpy_of(b), rtol, atol, err_msg=msg or "")

    def assertAllEqual(self, a: Any, b: Any, msg: Any = None) -> None:
        """Fail unless all elements are equal."""
        np.testing.assert_array_equal(numpy_of(a), numpy_of(b), msg or "")


TEST = {
    "TestCase": NumericTestCase,
    "main": unittest.main,
    "is_gpu_available": constant(False),
    "is_built_with_cuda": constant(False),
    "is_built_with_gpu_support": constant(False),
    "gpu_device_name": constant(""),
}


class SummaryWarning(UserWarning):
    """A summary for TensorBoard that a program writes, and that is not written."""


class SummaryWriter:
    """A writer of summaries that writes nothing."""

    def __init__(self, logdir: Any = None, **_: Any) -> None:
        warnings.warn(
            "tf.summary writes nothing here; keras.callbacks.CSVLogger keeps the history of fit",
            SummaryWarning,
            stacklevel=2,
        )

    @contextlib.contextmanager
    def as_default(self, step: Any = None) -> Iterator[SummaryWriter]:
        """Be the writer of summaries."""
        yield self

    def flush(self) -> None:
        """Do nothing."""

    close = set_as_default = init = flush


@contextlib.contextmanager
def nothing_in_scope(*_: Any, **__: Any) -> Iterator[None]:
    """Do nothing around a block."""
    yield


SUMMARY: dict[str, Any] = dict.fromkeys(
    ("scalar", "histogram", "image", "text", "audio", "graph", "trace_on", "trace_off", "trace_export", "flush"),
    nothing,
) | {"create_file_writer": SummaryWriter, "record_if": nothing_in_scope, "SummaryWriter": SummaryWriter}
PROFILER = {"start": nothing, "stop": nothing, "Profile": nothing_in_scope, "Trace": nothing_in_scope}


class OpError(AbeleError, RuntimeError):
    """An error of an operation."""


class AbortedError(OpError):
    """An operation that was stopped."""


class NotFoundError(OpError, FileNotFoundError):
    """A file or a tensor that is not there."""


ERRORS = {
    "InvalidArgumentError": InvalidArgumentError,
    "OutOfRangeError": OutOfRangeError,
    "OpError": OpError,
    "AbortedError": AbortedError,
    "NotFoundError": NotFoundError,
    "FailedPreconditionError": SessionError,
    "ResourceExhaustedError": type("ResourceExhaustedError", (OpError,), {"__doc__": "Memory that is not there."}),
    "UnimplementedError": type("UnimplementedError", (OpError,), {"__doc__": "An operation that is not there."}),
    "InternalError": type("InternalError", (OpError,), {"__doc__": "Something that must not happen."}),
    "UnknownError": type("UnknownError", (OpError,), {"__doc__": "Something that is not known."}),
}


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Text as bytes."""
    return bytes_or_text if isinstance(bytes_or_text, bytes) else str(bytes_or_text).encode(encoding)


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Bytes as text."""
    return bytes_or_text.decode(encoding) if isinstance(bytes_or_text, bytes) else str(bytes_or_text)


COMPAT = {
    "dimension_value": lambda dimension: dimension,
    "as_bytes": as_bytes,
    "as_text": as_text,
    "as_str": as_text,
    "as_str_any": as_text,
}
_LEVELS = {"DEBUG": 10, "INFO": 20, "WARN": 30, "WARNING": 30, "ERROR": 40, "FATAL": 50}
LOGGING: dict[str, Any] = _LEVELS | {
    "set_verbosity": LOGGER.setLevel,
    "get_verbosity": LOGGER.getEffectiveLevel,
    "debug": LOGGER.debug,
    "info": LOGGER.info,
    "warn": LOGGER.warning,
    "warning": LOGGER.warning,
    "error": LOGGER.error,
    "fatal": LOGGER.critical,
}
TIMES = {"timestamp": lambda name=None: tensor_of(np.float32(time.time()))}
