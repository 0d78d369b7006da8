"""``ipu_strategy``: models made inside the scope of a strategy run on the modelled machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from abele.errors import InvalidOptionError, SessionError, TypeMismatchError
from abele.frontends.keras.ipu.config import IPUConfig, get_ipu_config
from abele.frontends.keras.model.extension import extended_models
from abele.frontends.keras.model.scopes import SCOPES

__all__ = ["IPUExtended", "IPUExtendedV1", "IPUStrategy", "IPUStrategyV1", "current_strategy", "has_strategy"]


def has_strategy() -> bool:
    """True inside the scope of a strategy."""
    return bool(SCOPES.strategies)


def current_strategy() -> IPUStrategyV1:
    """The strategy whose scope this is in.

    Raises:
        SessionError: It is in none.
    """
    if not SCOPES.strategies:
        raise SessionError("this is in no scope of an IPUStrategy", remedy="with IPUStrategy().scope(): ...")
    found: IPUStrategyV1 = SCOPES.strategies[-1]
    return found


class IPUExtendedV1:
    """Details of a strategy that TensorFlow asks for.

    Attributes:
        non_slot_devices: Not used.
    """

    def __init__(self, strategy: IPUStrategyV1, ipu_device: str, cpu_device: str) -> None:
        self.strategy = strategy
        self._ipu_device, self._cpu_device = ipu_device, cpu_device

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The device that runs steps."""
        return (self._ipu_device,)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The device that has variables."""
        return (self._ipu_device,)


class IPUStrategyV1:
    """Programs on one IPU device: one or more IPUs, as the configuration says.

    Args:
        ipu_device: Name of the device; used for messages alone.
        cpu_device: Name of the host; not used.
        enable_dataset_iterators: Not used: datasets are read by the host.
        enable_keras_extensions: False to leave models as Keras makes them, on JAX's CPU.

    Attributes:
        config: The configuration when the strategy was made.
    """

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        self.config: IPUConfig = get_ipu_config()
        self.extended = IPUExtendedV1(self, ipu_device, cpu_device)
        self._extends = enable_keras_extensions

    @property
    def num_replicas_in_sync(self) -> int:
        """1, also where models are replicated: replicas are inside of one device."""
        return 1

    @contextmanager
    def scope(self) -> Iterator[IPUStrategyV1]:
        """Models that are made inside get the methods of IPU models."""
        SCOPES.strategies.append(self)
        try:
            if self._extends:
                with extended_models():
                    yield self
            else:
                yield self
        finally:
            SCOPES.strategies.pop()

    def run(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Any = None, options: Any = None) -> Any:
        """Run a function as one program on the device.

        Args:
            fn: A function under ``tf.function``, or one that JAX can trace.
            args: Its arguments, arrays.
            kwargs: Further arguments by name.
            options: Not used.

        Raises:
            TypeMismatchError: An argument of float64.
            InvalidOptionError: A plain function: without ``tf.function`` it would run op by op.
        """
        kwargs = kwargs or {}
        for leaf in jax.tree.leaves((args, kwargs)):
            if getattr(leaf, "dtype", None) is not None and np.dtype(leaf.dtype) == np.float64:
                raise TypeMismatchError("the device has no float64", remedy="astype(np.float32)")
        if not (hasattr(fn, "python_function") or hasattr(fn, "lower")):
            raise InvalidOptionError(
                f"IPUStrategy.run takes a function under tf.function, not {getattr(fn, '__name__', fn)!r}",
                because="a plain function runs op by op, and a device runs programs",
                remedy="@tf.function(jit_compile=True), or abele.jax.jit",
            )
        from abele.frontends.keras.ipu.running import run_function

        compiled = getattr(fn, "device_function", fn)
        try:
            return run_function(compiled, tuple(args), dict(kwargs))
        except (jax.errors.UnexpectedTracerError, jax.errors.TracerArrayConversionError):
            # A loop keeps tensors beyond its trips in a list of Python: unrolled, it may.
            plain = getattr(fn, "python_function", fn)
            if plain is compiled:
                raise
            return run_function(plain, tuple(args), dict(kwargs))

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        """The value itself: there is one device."""
        return value

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """The value, as the results of one device."""
        return (value,)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """The dataset itself."""
        return dataset

    def __repr__(self) -> str:
        return f"IPUStrategy({self.config.num_ipus} IPUs)"


IPUStrategy = IPUStrategyV1
IPUExtended = IPUExtendedV1
