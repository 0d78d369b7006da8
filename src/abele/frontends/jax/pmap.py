"""``abele.jax.pmap``: one function on several replicas, each with its own part of the arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from abele.errors import BatchSizeError, InvalidOptionError
from abele.frontends.jax.errors import TransformError, traced_errors
from abele.frontends.jax.jit import ArgumentNames, Jitted, one_of, settings_of
from abele.frontends.jax.traced import CallRuns
from abele.frontends.jaxpr.reader import Random
from abele.machine import System
from abele.session import Settings

_NO_NAME = "<unnamed axis>"


@dataclass(frozen=True)
class _Trace:
    """A trace of a mapped function, with the members of ``jax.stages.Traced`` that are read."""

    jaxpr: Any
    out_info: Any

    @property
    def out_tree(self) -> Any:
        """Tree of the results."""
        return jax.tree.structure(self.out_info)


class MappedFunction(Jitted):
    """A function that runs on several replicas; see :func:`pmap`."""

    def __init__(
        self, fn: Callable[..., Any], names: ArgumentNames, settings: Settings, random: Random, axes: _Axes
    ) -> None:
        super().__init__(fn, names, None, settings, random)
        self._axes = axes

    def _in_axes(self, leaves: Sequence[Any], donated: Sequence[bool], arguments: Any) -> tuple[int | None, ...] | None:
        args, kwargs = arguments
        given = self._axes.of_arguments
        if not isinstance(given, (tuple, list)):
            given = (given,) * len(args)
        if len(given) != len(args):
            raise InvalidOptionError(
                f"in_axes has {len(given)} axes for {len(args)} arguments of {self.__name__}",
                remedy="one for each argument that is not static, or one for all",
            )
        axes = [*_spread("in_axes", tuple(given), tuple(args)), *(0 for _ in jax.tree.leaves(kwargs))]
        if all(axis is None for axis in axes):
            raise InvalidOptionError("in_axes maps no argument", remedy="give the axis of one: in_axes=0")
        self._axes.count = self._axes.devices or _extent(leaves, axes)
        return tuple(axes)

    def _lanes(self, in_axes: tuple[int | None, ...], result_tree: Any) -> CallRuns:
        whole = result_tree.unflatten(range(result_tree.num_leaves))
        out_axes = _spread("out_axes", self._axes.of_results, whole)
        return CallRuns(self._axes.count, self._axes.name, in_axes, tuple(out_axes))

    def _one_of(self, leaf: Any, axis: int | None, name: str) -> Any:
        words = f"{self._axes.count} replicas take", "give what all share the axis None"
        return one_of(leaf, axis, self._axes.count, name, words)

    def _trace(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with self._tracing(), traced_errors(self.__name__):
            statics = self._names.positions(len(args))
            made = jax.make_jaxpr(
                functools.partial(self._fn, **{n: v for n, v in kwargs.items() if n in self._names.static_names}),
                static_argnums=statics,
                axis_env=[(self._axes.name, self._axes.count)],
                return_shape=True,
            )
            dynamic = {n: v for n, v in kwargs.items() if n not in self._names.static_names}
            return _Trace(*made(*args, **dynamic))

    def _inside(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        raise TransformError(
            f"{self.__name__} is mapped over replicas, and called while JAX traces another function",
            remedy="call it from Python, or use jax.shard_map inside of abele.jax.jit",
        )


@dataclass
class _Axes:
    """Axes of a mapped function: of arguments and results, its name, and replicas."""

    name: Any
    of_arguments: Any
    of_results: Any
    devices: int | None
    count: int = 0


def _spread(what: str, axes: Any, tree: Any) -> list[int | None]:
    """Axis of each leaf, of a tree of axes that is a beginning of the tree."""
    found: list[int | None] = []

    def add(axis: int | None, part: Any) -> None:
        if axis is not None and type(axis) is not int:
            raise InvalidOptionError(f"an axis of {what} is a whole number or None, not {axis!r}")
        found.extend([axis] * len(jax.tree.leaves(part)))

    try:
        jax.tree.map(add, axes, tree, is_leaf=lambda x: x is None)
    except ValueError as error:
        raise InvalidOptionError(
            f"{what} does not fit: {str(error).splitlines()[0]}",
            remedy="one axis, or a tree that begins as theirs does",
        ) from None
    return found


def _extent(leaves: Sequence[Any], axes: Sequence[int | None]) -> int:
    for leaf, axis in zip(leaves, axes, strict=True):
        shape = np.shape(leaf)
        if axis is not None and -len(shape) <= axis < len(shape):
            return int(shape[axis])
    raise BatchSizeError("no argument has the axis that is mapped", remedy="stack one row for each replica")


def pmap(
    fn: Callable[..., Any] | None = None,
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Sequence[int] = (),
    devices: int | Sequence[Any] | None = None,
    donate_argnums: int | Sequence[int] = (),
    target: str | System | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    random: Random = "exact",
) -> Any:
    """A function on several replicas of a program, as ``jax.pmap`` has it on several devices.

    Collectives over ``axis_name`` (``psum``, ``all_gather``, ``ppermute`` and others) exchange between them.

    Args:
        fn: Function of one replica's arrays.
        axis_name: Name of the axis over replicas.
        in_axes: Axis of each argument that has an index for each replica; None for what all are given.
        out_axes: The same of results; None for that of the first replica.
        static_broadcasted_argnums: Positions of arguments that are compiled in.
        devices: Number of replicas; as many as the axis has indices when left out.
        donate_argnums: Positions of arguments that stay on their replicas from call to call.
        target: The machine: it has an IPU for each replica.
        settings: Settings of the session, or a dict of them.
        random: As for :func:`abele.jax.jit`.

    Raises:
        InvalidOptionError: Axes that do not fit the arguments.
        BatchSizeError: An axis of another extent than there are replicas.
    """
    if fn is None:
        given = {k: v for k, v in locals().items() if k != "fn"}
        return functools.partial(pmap, **given)
    count = devices if devices is None or isinstance(devices, int) else len(devices)
    statics = static_broadcasted_argnums
    names = ArgumentNames(fn, statics if statics != () else None, None, donate_argnums, None)
    axes = _Axes(_NO_NAME if axis_name is None else axis_name, in_axes, out_axes, count)
    return MappedFunction(fn, names, settings_of(fn, target, settings), random, axes)
