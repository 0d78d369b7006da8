"""A traced function as a program: its network, what of it is on the device, and its runs.

Donated arguments that find their result in memory (:class:`~abele.frontends.jax.resident.DonatedSlot`) move only when
they are not there already; the others are sent. Of the results, those in memory stay there; what needs
no device (an argument itself, a constant, nothing at all) is known on the host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np
from jax._src.array import ArrayImpl
from jax._src.lib import xla_client

from abele.arrays import Array
from abele.frontends.jax.errors import DonatedError, NoArrayError
from abele.frontends.jax.memory import MemoryStats, bytes_of, device_type, on_enough_ipus, words
from abele.frontends.jax.resident import DonatedSlot, Keys, words_of
from abele.frontends.jax.traced import FLOAT0, CallRuns, Traced
from abele.frontends.jaxpr import is_key
from abele.frontends.jaxpr.complex_numbers import with_parts
from abele.network import Network, Value
from abele.report import Report
from abele.session import Session, Settings, SharedArrays, compile_network

_COMPLEX = np.dtype(np.complex64)
_Result = Callable[[Sequence[Array], Sequence[Any]], Any]
"""Makes a result of a call, of what the device sent and of the leaves of the arguments."""


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
        captured, lanes = traced.captured, traced.lanes
        names = [(n, traced.captured.arguments[n].name) for n in traced.places]
        self.slots = {n: DonatedSlot(name, device_type(traced.in_avals[n])[0], traced.in_avals[n]) for n, name in names}
        self._of_keys = frozenset(n for n, slot in self.slots.items() if is_key(slot.aval.dtype))
        self._results, outputs = self._makers()
        self.network: Network = replace(captured.network, outputs=tuple(outputs))
        self.donates = tuple(traced.places)
        inputs = {v: n for n, v in enumerate(captured.arguments)}
        self._inputs = tuple(
            _Input(inputs[v], traced.jaxpr.in_avals[inputs[v]].dtype, v.shape, lanes) for v in self.network.inputs
        )
        self._session: Session | None = None
        chosen = on_enough_ipus(settings, traced.schedule)
        self.compiled = compile_network(self.network, traced.schedule, settings=chosen, words=words)
        self._closed_over = captured.closed_over

    # --- running ------------------------------------------------------------------------------------------------------

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        """Results of one call on the leaves of its arguments.

        Raises:
            DonatedError: An argument was donated before, or is donated and passed twice.
        """
        with self._lock:
            self._place(leaves)
            sent = self._run([given(leaves) for given in self._inputs])
            return [result(sent, leaves) for result in self._results]

    def _place(self, leaves: Sequence[Any]) -> None:
        """Bring donated arguments to their places."""
        if not self.slots:
            return
        if len(set(map(id, leaves))) < len(leaves):
            _check_shared(leaves, self.donates)
        if self._of_keys:
            leaves = [words_of(leaf) if n in self._of_keys else leaf for n, leaf in enumerate(leaves)]
        # What is in its place already is not deleted.
        moved = [(n, slot) for n, slot in self.slots.items() if getattr(leaves[n], "_slot", None) is not slot]
        if not moved:
            return
        _check_deleted([leaves[n] for n, _ in moved])
        # All are fetched before any is overwritten: two may change places.
        values = [host_array(leaves[n], slot.kind.dtype) for n, slot in moved]
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
            self._session = Session(self.compiled, weights=self.weights, follow_host=False)
            for slot in self.slots.values():
                slot.fetch = self._session.read
        return self._session.run(inputs).outputs

    def _makers(self) -> tuple[list[_Result], list[Value]]:
        """For each result what makes it of what the device sent and of the arguments; and the network's outputs."""
        traced, invars = self.traced, {v: n for n, v in enumerate(self.traced.jaxpr.jaxpr.invars)}
        place = {result: self.slots[argument] for argument, result in traced.places.items()}
        outputs: dict[Value, int] = {}
        found: list[_Result] = []
        for number, var in enumerate(traced.jaxpr.jaxpr.outvars):
            argument = None if isinstance(var, jex.Literal) else invars.get(var)
            make = Maker(traced.out_avals[number])
            if number in place:
                found.append(self._in_memory(place[number], make))
            elif argument is not None and argument not in traced.places:
                found.append(self._argument(argument, number, make))
            elif (known := traced.known(number)) is not None:
                found.append(lambda sent, leaves, make=make, known=known: make(known))  # type: ignore[misc]
            else:
                output = outputs.setdefault(traced.outputs[number], len(outputs))
                found.append(self._sent(output, number, make))
        return found, list(outputs)

    def _sent(self, output: int, number: int, make: Maker) -> _Result:
        """A result that the device sends."""
        if self.traced.lanes is None:
            return lambda sent, leaves: make(sent[output])
        return lambda sent, leaves: make(_of_runs(sent[output], self.traced, number))

    def _in_memory(self, slot: DonatedSlot, make: Maker) -> _Result:
        """A result that stays on the device; complex numbers come to the host."""
        if is_key(slot.aval.dtype):
            keys = Keys(slot.aval)
            return lambda sent, leaves: keys(slot.result())
        if slot.aval.dtype != np.complex64:
            return lambda sent, leaves: slot.result()

        def read(sent: Sequence[Array], leaves: Sequence[Any]) -> Any:
            assert self._session is not None
            return make(self._session.read(slot.name))

        return read

    def _argument(self, argument: int, number: int, make: Maker) -> _Result:
        """A result that is an argument; of what all runs share, one for each."""
        lanes, aval = self.traced.lanes, self.traced.in_avals[argument]
        moved = lanes is not None and lanes.in_axes[argument] != lanes.out_axes[number]
        is_same = not moved or aval.shape == self.traced.out_avals[number].shape

        def same(sent: Sequence[Array], leaves: Sequence[Any]) -> Any:
            given = leaves[argument]
            if is_same and isinstance(given, jax.Array):
                return given
            array = host_array(given, aval.dtype)
            if lanes is not None and moved:
                array = _from_runs(_to_runs(array, lanes, argument), lanes.out_axes[number])
            return make(np.array(array))

        return same

    @property
    def weights(self) -> SharedArrays:
        """Arrays that the function closes over, and donated arguments."""
        return SharedArrays({**dict(self._closed_over), **{s.name: s for s in self.slots.values()}})

    # --- what is known ------------------------------------------------------------------------------------------------

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
        kept = [traced.in_avals[n] for n in traced.places]
        use = report.memory_use()
        code = sum(size for name, size in use.categories.items() if "code" in name)
        return MemoryStats(
            argument_size_in_bytes=sum(map(bytes_of, self.traced.in_avals)),
            output_size_in_bytes=sum(map(bytes_of, traced.out_avals)),
            alias_size_in_bytes=sum(map(bytes_of, kept)),
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


# --- arrays of the host -----------------------------------------------------------------------------------------------


def host_array(given: Any, dtype: Any) -> Array:
    """An argument as NumPy has it, without a copy where its type is right; a key is its words."""
    kind = type(given)
    if (kind is np.ndarray or kind is ArrayImpl) and given.dtype == dtype and dtype != _COMPLEX:
        return np.asarray(given)
    if is_key(dtype):
        return np.asarray(words_of(given))
    if kind is jax.ShapeDtypeStruct:
        raise NoArrayError(f"{given} has a type and no values", remedy="pass an array, or use lower()")
    if dtype == _COMPLEX:
        return np.asarray(with_parts(np.asarray(given, dtype)))
    return np.asarray(given, dtype)


def _to_runs(array: Array, lanes: CallRuns, argument: int) -> Array:
    """An argument of a call as [runs, ...]."""
    axis = lanes.in_axes[argument]
    return array[None].repeat(lanes.count, 0) if axis is None else np.moveaxis(array, axis, 0)


def _from_runs(rows: Array, axis: int | None) -> Array:
    """A result of a call, of [runs, ...]."""
    return rows[0] if axis is None else np.moveaxis(rows, 0, axis)


def _of_runs(array: Array, traced: Traced, number: int) -> Array:
    """A result of a call, of what the device sent."""
    lanes, aval = traced.lanes, traced.jaxpr.out_avals[number]
    if lanes is None:
        return array
    rows = array.reshape(lanes.count, *device_type(aval)[0])
    axis = lanes.out_axes[number]
    place = axis if axis is None else axis % (len(aval.shape) + 1)
    return np.ascontiguousarray(_from_runs(rows, place)) if place != 0 else rows


@dataclass(frozen=True)
class _Input:
    """An argument that is sent.

    Attributes:
        number: Its number.
        dtype: Its element type in JAX.
        shape: Its dimensions in the network.
        lanes: Runs of one call.
    """

    number: int
    dtype: Any
    shape: tuple[int, ...]
    lanes: CallRuns | None

    def __call__(self, leaves: Sequence[Any]) -> Array:
        """The array that is sent for the leaves of a call."""
        array = host_array(leaves[self.number], self.dtype)
        if self.lanes is None:
            return array
        rows, shape = _to_runs(array, self.lanes, self.number), self.shape
        return rows.reshape((self.lanes.count * shape[0], *shape[1:]) if shape else (self.lanes.count,))


def _has_parts(dtype: Any) -> bool:
    """True for types that lie on the device as arrays of something else."""
    return is_key(dtype) or bool(dtype == np.complex64)


def _check_shared(leaves: Sequence[Any], donates: Sequence[int]) -> None:
    """Raise where a donated array is another argument as well."""
    by_identity: dict[int, int] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, jax.Array):
            first = by_identity.setdefault(id(leaf), number)
            if first != number and (first in donates or number in donates):
                raise DonatedError(
                    f"one array of {leaf.aval.str_short()} is two arguments of a call that donates it",
                    remedy="copy it for one of them: jnp.array(x)",
                )


def _check_deleted(donated: Sequence[Any]) -> None:
    """Raise where a donated array is deleted."""
    for given in donated:
        if hasattr(given, "is_deleted") and given.is_deleted():
            raise DonatedError(
                f"Array has been deleted with shape={given.aval.str_short()}",
                because="it was donated to a call before",
                remedy="use the result of that call, or copy the array before it: jnp.array(x)",
            )


class Maker:
    """Makes JAX's arrays of the host's, without a copy where they are aligned as JAX wants.

    Args:
        aval: Type of the array.
    """

    def __init__(self, aval: Any) -> None:
        self._aval, self._is_plain = aval, not _has_parts(aval.dtype) and aval.dtype != FLOAT0
        self._devices = jax.local_devices(backend="cpu")[:1]
        self._sharding = jax.sharding.SingleDeviceSharding(self._devices[0])
        self._keys = Keys(aval) if is_key(aval.dtype) else None

    def __call__(self, array: Array) -> Any:
        """The array; of float0, which JAX keeps in NumPy, as it is."""
        aval = self._aval
        if self._is_plain:
            # What jax.device_put comes to, in a fifth of its time.
            return xla_client.batched_device_put(aval, self._sharding, [array], self._devices)
        if aval.dtype == FLOAT0:
            return np.zeros(aval.shape, FLOAT0)
        if self._keys is not None:
            return self._keys(np.ascontiguousarray(array))
        whole = np.ascontiguousarray(array, np.float32).view(np.complex64).reshape(aval.shape)
        return xla_client.batched_device_put(aval, self._sharding, [whole], self._devices)
