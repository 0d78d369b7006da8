"""A traced function as a program: its network, what of it is on the device, and its runs.

Donated arguments that find their result in memory (:class:`~abele.frontends.jax.resident.DonatedSlot`) move only when
they are not there already; the others are sent. Of the results, those in memory stay there; what needs
no device (an argument itself, a constant, nothing at all) is known on the host.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax._src.lib import xla_client

from abele.arrays import Array
from abele.frontends.jax.donation import placed_results
from abele.frontends.jax.errors import DonatedError
from abele.frontends.jax.resident import DeviceArray, DonatedSlot
from abele.frontends.jaxpr import Captured, capture, is_key, type_of
from abele.frontends.jaxpr.types import key_words
from abele.network import Network, Schedule, Value
from abele.report import Report
from abele.session import Session, Settings, SharedArrays, compile_network

FLOAT0 = jax.dtypes.float0


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
        iterations: Runs of one call, on a leading axis; None for one run.
        captured: The network with the value of each argument and result.
        places: Result in the place of each donated argument.
    """

    name: str
    jaxpr: Any
    tree: Any
    result_tree: Any
    names: tuple[str, ...]
    donated: tuple[bool, ...]
    iterations: int | None
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
        object.__setattr__(self, "captured", capture(self.jaxpr, self.names, places, absent))

    @cached_property
    def outputs(self) -> dict[int, Value]:
        """Value of each result that is in no place of an argument, by number."""
        sent = [n for n in range(len(self.jaxpr.out_avals)) if n not in self.places.values()]
        return dict(zip(sent, self.captured.network.outputs, strict=True))

    def known(self, number: int) -> Array | None:
        """A result that is known now: a constant, or one without elements."""
        aval = self.jaxpr.out_avals[number]
        if aval.dtype == FLOAT0 or not aval.size:
            shape, dtype = type_of(aval)
            array = np.zeros(shape, dtype.np)
        elif number in self.outputs and self.outputs[number] in self.captured.network.constants:
            array = np.array(self.captured.network.constants[self.outputs[number]])
        else:
            return None
        return array if self.iterations is None else array[None].repeat(self.iterations, 0)


# --- where results come from ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sent:
    """A result that the device sends: its number among the outputs."""

    number: int


@dataclass(frozen=True)
class _InMemory:
    """A result in memory: its slot."""

    slot: DonatedSlot


@dataclass(frozen=True)
class _Same:
    """A result that is an argument."""

    argument: int


@dataclass(frozen=True)
class _Known:
    """A result that is known when the function is compiled."""

    array: Array


class JitProgram:
    """A compiled function for arguments of known types.

    Args:
        traced: The function.
        settings: The machine, and how programs run on the host.

    Attributes:
        traced: The function.
        network: Computation of the device.
        compiled: The compiled network.
        donates: Arguments that a call donates.
    """

    def __init__(self, traced: Traced, settings: Settings) -> None:
        self.traced, self._lock = traced, threading.RLock()
        captured, self._count = traced.captured, traced.iterations
        self.slots = {n: DonatedSlot(v.name, v.shape, traced.jaxpr.in_avals[n]) for n, v in self._placed(traced)}
        self.results, outputs = _sources(traced, self.slots)
        self.network: Network = replace(captured.network, outputs=tuple(outputs))
        self.donates = tuple(traced.places)
        inputs = {v: n for n, v in enumerate(captured.arguments)}
        self._inputs = tuple(
            _Input(inputs[v], traced.jaxpr.in_avals[inputs[v]], v, self._count) for v in self.network.inputs
        )
        in_place = set(traced.places.values())
        self._typed = [
            Maker(aval, None if n in in_place else self._count) for n, aval in enumerate(traced.jaxpr.out_avals)
        ]
        self._session: Session | None = None
        self.compiled = compile_network(self.network, Schedule(device_iterations=self._count or 1), settings=settings)
        self._closed_over = captured.closed_over

    @staticmethod
    def _placed(traced: Traced) -> list[tuple[int, Value]]:
        return [(n, traced.captured.arguments[n]) for n in traced.places]

    # --- running ------------------------------------------------------------------------------------------------------

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Results of one call on the leaves of its arguments.

        Raises:
            DonatedError: An argument was donated before, or is donated and passed twice.
        """
        with self._lock:
            self._place(leaves)
            sent = self._run([given(leaves) for given in self._inputs])
            return [self._result(n, source, sent, leaves) for n, source in enumerate(self.results)]

    def _place(self, leaves: Sequence[Any]) -> None:
        """Bring donated arguments to their places."""
        if not self.slots:
            return
        moved = []
        for number, slot in self.slots.items():
            given = leaves[number]
            if type(given) is not DeviceArray or not given.is_in(slot):
                moved.append((number, slot))
        _check_donated(leaves, self.donates)
        if not moved:
            return
        # All are fetched before any is overwritten: two may change places.
        values = [host_array(leaves[n], slot.aval.dtype) for n, slot in moved]
        for (_, slot), array in zip(moved, values, strict=True):
            slot.give(array)
        if self._session is not None:
            self._session.upload({slot.name for _, slot in moved})
        for number, _ in moved:
            given = leaves[number]
            if hasattr(given, "delete"):
                given.delete()

    def _run(self, inputs: list[Array]) -> tuple[Array, ...]:
        if not self.network.outputs and not self.network.updates:
            return ()
        if self._session is None:
            weights = SharedArrays({**dict(self._closed_over), **{s.name: s for s in self.slots.values()}})
            self._session = Session(self.compiled, weights=weights, follow_host=False)
            for slot in self.slots.values():
                slot.fetch = self._session.read
        return self._session.run(inputs).outputs

    def _result(self, number: int, source: Any, sent: Sequence[Array], leaves: Sequence[Any]) -> Any:
        match source:
            case _Sent(place):
                return self._typed[number](sent[place])
            case _InMemory(slot):
                if is_key(slot.aval.dtype):
                    assert self._session is not None
                    return self._typed[number](self._session.read(slot.name))
                return slot.result()
            case _Same(argument):
                return self._same(leaves[argument], argument, number)
            case _Known(array):
                return self._typed[number](array)
        raise AssertionError(source)

    def _same(self, given: Any, argument: int, number: int) -> Any:
        """A result that is an argument: of scalars, which all iterations share, one for each."""
        spread = self._count is not None and not self.traced.donated[argument] and not np.shape(given)
        if not spread and isinstance(given, jax.Array):
            return given
        array = host_array(given, self.traced.jaxpr.in_avals[argument].dtype)
        return self._typed[number](array[None].repeat(self._count or 1, 0) if spread else np.array(array))

    # --- what is known ------------------------------------------------------------------------------------------------

    @property
    def in_avals(self) -> Sequence[Any]:
        """Types of the arguments of a call, iterations included."""
        count = self._count
        if count is None:
            return list(self.traced.jaxpr.in_avals)
        return [
            aval if donated or not aval.shape else aval.update(shape=(count, *aval.shape))
            for aval, donated in zip(self.traced.jaxpr.in_avals, self.traced.donated, strict=True)
        ]

    @property
    def report(self) -> Report:
        """Cost of the program on the machine, and of its runs on the host if there were any."""
        return self.compiled.executable.report if self._session is None else self._session.report

    def costs(self) -> dict[str, float]:
        """Costs of one call on the machine: ``flops``, ``bytes accessed``, ``cycles``, ``optimal_seconds``, and
        ``energy_joules`` where the machine tells."""
        report = self.report
        ops, energy = report.ops, report.energy
        costs = {
            "flops": float(np.asarray(ops["flops"], np.float64).sum()),
            "bytes accessed": float(sum(t.amount for t in energy.terms if t.unit == "B")) if energy else 0.0,
            "cycles": float(report.total_cycles),
            "optimal_seconds": report.seconds(report.total_cycles),
        }
        return costs | ({"energy_joules": energy.joules.likely} if energy else {})

    def memory(self) -> MemoryStats:
        """Bytes of arguments, results and of the program on the machine."""
        traced, report = self.traced, self.report
        kept = [traced.jaxpr.in_avals[n] for n in traced.places]
        use = report.memory_use()
        code = sum(size for name, size in use.categories.items() if "code" in name)
        return MemoryStats(
            argument_size_in_bytes=sum(map(_bytes_of, self.in_avals)),
            output_size_in_bytes=sum(typed.nbytes for typed in self._typed),
            alias_size_in_bytes=sum(map(_bytes_of, kept)),
            temp_size_in_bytes=int(use.categories.get("temporaries", 0)),
            generated_code_size_in_bytes=int(code),
            fullest_tile=use.tile,
            fullest_tile_bytes=use.bytes,
            available_tile_bytes=use.available_bytes,
        )

    def close(self) -> None:
        """Let go of the device; results that are there come to the host."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None


def _sources(traced: Traced, slots: Mapping[int, DonatedSlot]) -> tuple[list[Any], list[Value]]:
    """For each result where it comes from, and the outputs of the network."""
    invars = {v: n for n, v in enumerate(traced.jaxpr.jaxpr.invars)}
    place = {result: slots[argument] for argument, result in traced.places.items()}
    outputs: dict[Value, int] = {}
    found: list[Any] = []
    for number, var in enumerate(traced.jaxpr.jaxpr.outvars):
        argument = None if isinstance(var, jex.Literal) else invars.get(var)
        if number in place:
            found.append(_InMemory(place[number]))
        elif argument is not None and argument not in traced.places:
            found.append(_Same(argument))
        elif (known := traced.known(number)) is not None:
            found.append(_Known(known))
        else:
            found.append(_Sent(outputs.setdefault(traced.outputs[number], len(outputs))))
    return found, list(outputs)


@dataclass(frozen=True)
class MemoryStats:
    """Bytes of a compiled function; JAX's names are those of ``Compiled.memory_analysis()``.

    Attributes:
        argument_size_in_bytes: Arguments of a call.
        output_size_in_bytes: Results of a call.
        alias_size_in_bytes: Donated arguments whose place a result takes.
        temp_size_in_bytes: Temporaries on the fullest tile.
        generated_code_size_in_bytes: Code on the fullest tile.
        fullest_tile: Number of the tile that holds most.
        fullest_tile_bytes: Bytes that it holds.
        available_tile_bytes: Bytes that it has.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int
    fullest_tile: int
    fullest_tile_bytes: int
    available_tile_bytes: int


def _bytes_of(aval: Any) -> int:
    shape, dtype = type_of(aval)
    return int(np.prod(shape, dtype=np.int64)) * dtype.np.itemsize


# --- arrays of the host -----------------------------------------------------------------------------------------------


def host_array(given: Any, dtype: Any) -> Array:
    """An argument as NumPy has it, without a copy where its type is right; a key is its words."""
    if is_key(dtype):
        return np.asarray(jax.random.key_data(given))
    return np.asarray(given, dtype)


class _Input:
    """An argument that is sent.

    Args:
        number: Its number.
        aval: Its type in JAX.
        value: Its value in the network.
        count: Runs of one call; a scalar is the same for all.
    """

    def __init__(self, number: int, aval: Any, value: Value, count: int | None) -> None:
        self._number, self._dtype = number, aval.dtype
        self._shape, self._count = value.shape, count
        whole = (count or 1) * (value.shape[0] if value.shape else 1)
        self._stream = self._shape if count is None else (whole, *value.shape[1:])

    def __call__(self, leaves: Sequence[Any]) -> Array:
        """The array that is sent for the leaves of a call."""
        array = host_array(leaves[self._number], self._dtype)
        if self._count is None:
            return array
        if array.shape == self._shape:
            array = array[None].repeat(self._count, 0)
        return array.reshape(self._stream)


def _check_donated(leaves: Sequence[Any], donates: Sequence[int]) -> None:
    """Raise where a donated array is deleted, or is another argument as well."""
    by_identity: dict[int, int] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, jax.Array):
            first = by_identity.setdefault(id(leaf), number)
            if first != number and (first in donates or number in donates):
                raise DonatedError(
                    f"one array of {leaf.aval.str_short()} is two arguments of a call that donates it",
                    remedy="copy it for one of them: jnp.array(x)",
                )
    for number in donates:
        given = leaves[number]
        if hasattr(given, "is_deleted") and given.is_deleted():
            raise DonatedError(
                f"Array has been deleted with shape={given.aval.str_short()}",
                because="it was donated to a call before",
                remedy="use the result of that call, or copy the array before it: jnp.array(x)",
            )


class Maker:
    """Makes JAX's arrays of the host's, without a copy where they are aligned as JAX wants.

    Args:
        aval: Type of the result of one run.
        count: Runs whose results lie on a leading axis; None for one without that axis.
    """

    def __init__(self, aval: Any, count: int | None) -> None:
        self._aval = aval if count is None else aval.update(shape=(count, *aval.shape))
        self._devices = jax.local_devices(backend="cpu")[:1]
        self._sharding = jax.sharding.SingleDeviceSharding(self._devices[0])

    @property
    def nbytes(self) -> int:
        """Bytes of a result."""
        return _bytes_of(self._aval)

    def __call__(self, array: Array) -> Any:
        """The array; of float0, which JAX keeps in NumPy, as it is."""
        dtype = self._aval.dtype
        if dtype == FLOAT0:
            return np.zeros(self._aval.shape, FLOAT0)
        if is_key(dtype):
            words = jax.numpy.asarray(array).reshape(*self._aval.shape, *key_words(dtype))
            return jax.random.wrap_key_data(words, impl=dtype._impl.name)
        # What jax.device_put comes to, in a fifth of its time.
        shaped = array if array.shape == self._aval.shape else array.reshape(self._aval.shape)
        return xla_client.batched_device_put(self._aval, self._sharding, [shaped], self._devices)
