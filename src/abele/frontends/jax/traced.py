"""Traced functions: their networks, and what is said about their arguments and results."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from abele.arrays import Array
from abele.errors import GraphReplicationError
from abele.frontends.jax.donation import placed_results
from abele.frontends.jax.memory import device_type
from abele.frontends.jaxpr import Captured, capture
from abele.frontends.jaxpr.reader import Random
from abele.network import Schedule, Value
from abele.poplibs.gcl import CommGroup

FLOAT0 = jax.dtypes.float0


@dataclass(frozen=True)
class CallRuns:
    """Runs of one call: one after the other, or side by side on replicas.

    Attributes:
        count: Number of runs.
        axis_name: Name of the axis over replicas; None for runs one after the other.
        in_axes: Axis of each argument that has one index for each run; None for what all runs share.
        out_axes: The same of each result; None for the result of the first run.
    """

    count: int
    axis_name: Any
    in_axes: tuple[int | None, ...]
    out_axes: tuple[int | None, ...]

    @property
    def on_replicas(self) -> bool:
        """True if they are side by side."""
        return self.axis_name is not None


def with_axis(aval: Any, count: int, axis: int | None) -> Any:
    """The type of an array with one index of a new axis for each run; the type itself for no axis."""
    if axis is None:
        return aval
    place = axis % (len(aval.shape) + 1)
    return aval.update(shape=(*aval.shape[:place], count, *aval.shape[place:]))


@dataclass(frozen=True)
class Traced:
    """A function on arguments of known types, and its network.

    Attributes:
        name: Name of the function.
        jaxpr: Its ``ClosedJaxpr``.
        tree: Tree of its arguments, ``(args, kwargs)`` without static ones.
        result_tree: Tree of its results.
        names: Name of each argument.
        donated: True for arguments that are donated.
        lanes: Runs of one call; None for one.
        random: Source of random bits: JAX's, or the machine's generator.
        captured: The network with the value of each argument and result.
        places: Result in the place of each donated argument.
    """

    name: str
    jaxpr: Any
    tree: Any
    result_tree: Any
    names: tuple[str, ...]
    donated: tuple[bool, ...]
    lanes: CallRuns | None
    random: Random
    captured: Captured = field(init=False)
    places: Mapping[int, int] = field(init=False)

    def __post_init__(self) -> None:
        types = [(v.shape, v.dtype) for v in self.jaxpr.in_avals]
        results = [(v.shape, v.dtype) for v in self.jaxpr.out_avals]
        places = placed_results(self.tree, types, self.donated, self.result_tree, results)
        left = [n for n, donated in enumerate(self.donated) if donated and n not in places]
        if left:
            shown = ", ".join(f"{self.names[n]}: {self.jaxpr.in_avals[n].str_short()}" for n in left)
            warnings.warn(
                f"Some donated arguments of {self.name} were not usable, as no result has their type: {shown}",
                stacklevel=2,
            )
        invars, outvars = self.jaxpr.jaxpr.invars, self.jaxpr.jaxpr.outvars
        # What comes out as it went in needs no place, and neither does what has no elements.
        places = {n: r for n, r in places.items() if invars[n].aval.size and outvars[r] is not invars[n]}
        read = {v for eqn in self.jaxpr.jaxpr.eqns for v in eqn.invars if not isinstance(v, jex.Literal)}
        read |= {outvars[r] for r in places.values() if not isinstance(outvars[r], jex.Literal)}
        absent = [n for n, v in enumerate(invars) if n not in places and (v not in read or not v.aval.size)]
        object.__setattr__(self, "places", places)
        lanes = self.lanes
        axes = {lanes.axis_name: CommGroup.consecutive(lanes.count)} if lanes is not None and lanes.on_replicas else {}
        object.__setattr__(
            self, "captured", capture(self.jaxpr, self.names, places, absent, axes=axes, random=self.random)
        )

    @property
    def _on_replicas(self) -> bool:
        return self.lanes is not None and self.lanes.on_replicas

    @cached_property
    def outputs(self) -> dict[int, Value]:
        """Value of each result that is in no place of an argument, by number."""
        sent = [n for n in range(len(self.jaxpr.out_avals)) if n not in self.places.values()]
        return dict(zip(sent, self.captured.network.outputs, strict=True))

    def known(self, number: int) -> Array | None:
        """A result that is known now: a constant, or one without elements."""
        aval = self.jaxpr.out_avals[number]
        if aval.dtype == FLOAT0 or not aval.size:
            shape, dtype = device_type(aval)
            array = np.zeros(shape, dtype.np)
        elif number in self.outputs and self.outputs[number] in self.captured.network.constants:
            array = np.array(self.captured.network.constants[self.outputs[number]])
        else:
            return None
        lanes = self.lanes
        axis = None if lanes is None else lanes.out_axes[number]
        if lanes is None or axis is None:
            return array
        place = axis % (len(aval.shape) + 1)
        return np.expand_dims(array, place).repeat(lanes.count, place)

    @cached_property
    def in_avals(self) -> tuple[Any, ...]:
        """Types of the arguments of a call."""
        lanes, avals = self.lanes, self.jaxpr.in_avals
        if lanes is None:
            return tuple(avals)
        return tuple(with_axis(a, lanes.count, axis) for a, axis in zip(avals, lanes.in_axes, strict=True))

    @cached_property
    def out_avals(self) -> tuple[Any, ...]:
        """Types of the results of a call."""
        lanes, avals = self.lanes, self.jaxpr.out_avals
        if lanes is None:
            return tuple(avals)
        # What stays in memory has the value after the last of several runs.
        kept = set() if lanes.on_replicas else set(self.places.values())
        axes = (None if n in kept else axis for n, axis in enumerate(lanes.out_axes))
        return tuple(with_axis(a, lanes.count, axis) for a, axis in zip(avals, axes, strict=True))

    @cached_property
    def schedule(self) -> Schedule:
        """Schedule of one call.

        Raises:
            GraphReplicationError: Meshes of several sizes, or one in a map over replicas.
        """
        lanes, meshes = self.lanes, sorted(set(_mesh_sizes(self.jaxpr.jaxpr)))
        if len(meshes) > 1 or (meshes and self._on_replicas):
            shown = ", ".join(map(str, meshes))
            raise GraphReplicationError(
                f"{self.name} has shard_map over meshes of {shown} devices"
                + (" inside of a pmap" if self._on_replicas else ""),
                because="a program runs on one number of replicas",
                remedy="one mesh for all of the function; its axes may be used in parts",
            )
        if lanes is not None and lanes.on_replicas:
            kept = tuple(self.names[n] for n in self.places)
            own = tuple((name, CommGroup.none()) for name in kept)
            return Schedule(replicas=lanes.count, own_values=own, every_replica=kept)
        iterations = 1 if lanes is None else lanes.count
        if not meshes or meshes[0] == 1:
            return Schedule(device_iterations=iterations)
        every = CommGroup.all()
        return Schedule(device_iterations=iterations, replicas=meshes[0], input_groups=every, tensor_parallel=every)


def _mesh_sizes(jaxpr: Any) -> Iterator[int]:
    """Devices of the mesh of each ``shard_map`` in a jaxpr."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "shard_map":
            yield int(eqn.params["mesh"].size)
        for inner in jex.jaxprs_in_params(eqn.params):
            yield from _mesh_sizes(inner)
