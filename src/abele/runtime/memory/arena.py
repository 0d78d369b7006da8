"""The arena: one block of host memory that holds every variable, and the way from element addresses to bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.arrays import Int64
from abele.errors import EngineError
from abele.graph import Tensor, Variable
from abele.graph.interval_set import IntervalSet
from abele.graph.intervals import expand
from abele.numerics import to_device
from abele.runtime.memory.host_memory import ALIGNMENT, address_of, guarded_block
from abele.runtime.ranks.group import ReplicaShare

# Checks of the tables by which native code counts and reaches memory, made once per engine.
#
# The graph's own checks, and those of files, keep programs inside their variables. Native code believes its tables, so
# they are looked at once more here, however they came to be: a mistake above ends in an error, not in foreign memory.
# All comparisons are without sums that could wrap. Costs a few passes over arrays that were just made.


def check_intervals(begin: Int64, length: Int64, size: int) -> None:
    """Intervals lie in a space of ``size`` elements, and none is empty.

    Args:
        begin: First element of each, int64[k].
        length: Elements of each, int64[k].
        size: Elements of the space.

    Raises:
        EngineError: One does not.
    """
    if len(begin) != len(length):
        raise _outside(f"{len(begin)} intervals have {len(length)} lengths")
    if len(begin) == 0:
        return
    if begin.min() < 0 or length.min() < 1 or (length > size - begin).any():
        raise _outside(f"an interval of elements lies outside the {size:,} that the graph has")


def check_stretches(begin: Int64, count: int, rows: int, what: str) -> None:
    """``begin`` bounds ``count`` stretches of ``rows`` rows, one after the other from the first to the last.

    Raises:
        EngineError: It does not.
    """
    if len(begin) != count + 1 or begin[0] != 0 or begin[-1] != rows or (begin[1:] < begin[:-1]).any():
        raise _outside(f"{what} of {count:,} vertices do not add up to {rows:,} rows")


def check_numbers(numbers: Int64, count: int, what: str) -> None:
    """Check that numbers are below ``count``.

    Raises:
        EngineError: One is not.
    """
    if len(numbers) and (numbers.min() < 0 or numbers.max() >= count):
        raise _outside(f"{what}: there are {count:,}")


def check_equal(one: int, other: int, what: str) -> None:
    """Two sides of a copy have as many bytes.

    Raises:
        EngineError: They do not.
    """
    if one != other:
        raise _outside(f"{what} moves {one:,} bytes onto {other:,}")


def _outside(what: str) -> EngineError:
    return EngineError(
        f"the program would reach outside its variables: {what}",
        remedy="make the graph anew through its own methods; a file from elsewhere is damaged",
    )


_LEAST_ZONE, _MOST_ZONE, _ZONE_PART = ALIGNMENT, 512, 8
"""Bytes between variables: an eighth of the variable before, within limits."""
_MOST_BYTES = 1 << 56
"""Bytes that no host has: sizes below it can be summed with room for the gaps between variables."""


@dataclass(frozen=True, slots=True)
class MemoryPieces:
    """Stretches of host memory, in order.

    Attributes:
        address: First byte of each, int64[k].
        bytes: Length of each, int64[k].
        source: Interval (or row) that each belongs to, int64[k], non-decreasing.
    """

    address: Int64
    bytes: Int64
    source: Int64

    def __len__(self) -> int:
        return len(self.address)

    @property
    def total_bytes(self) -> int:
        """Bytes of all pieces."""
        return int(self.bytes.sum())


class Arena:
    """Storage of all variables of a graph, row-major (but see :meth:`store_in`), aligned to 64 bytes; per replica.

    Between them lie 64 bytes or more that belong to nothing, so that eight bytes may be read from any element on, and
    so that overruns can be seen (``zones``). Untouched memory costs nothing: pages are given by the operating system
    at first use.

    Attributes:
        replicas: Number of images, one per replica.
        stride: Bytes from a variable in one image to the same in the next.
        first_replica: Number in the whole program of the replica that the first image belongs to.
        alone: True if the program has one replica in all.

    Args:
        variables: All variables.
        replicas: Images to make room for.
        share: Range of replicas; all of them when left out.
    """

    def __init__(self, variables: Sequence[Variable], replicas: int = 1, share: ReplicaShare | None = None) -> None:
        self.share = share or ReplicaShare(0, replicas, replicas)
        self.first_replica, self.alone = self.share.first, self.share.total == 1
        self._variables = tuple(variables)
        if sum(v.bytes for v in variables) * replicas > _MOST_BYTES:
            raise MemoryError
        self.replicas = replicas
        size = np.array([v.bytes for v in variables], dtype=np.int64)
        # Zones grow with the variable before them, as larger arrays are overrun by more.
        room = -(-(size + np.clip(size // _ZONE_PART, _LEAST_ZONE, _MOST_ZONE)) // ALIGNMENT) * ALIGNMENT
        self._offset = np.cumsum(room) - room + _MOST_ZONE
        self._after = self._offset + size
        self.stride = int(room.sum()) + 2 * _MOST_ZONE
        self._block = guarded_block(self.stride * replicas)[: self.stride * replicas]
        start = address_of(self._block)
        held = [v.id for v in variables if v.size]
        self._held = held
        self._base = np.array([variables[i].base for i in held], dtype=np.int64)
        self._end = np.array([variables[i].base + variables[i].size for i in held], dtype=np.int64)
        self._width = np.array([variables[i].dtype.bytes for i in held], dtype=np.int64)
        self._start = start + self._offset[held]
        self._orders: dict[Variable, tuple[int, ...]] = {}

    def store_in(self, orders: Mapping[Variable, tuple[int, ...]]) -> None:
        """Store variables with their dims in another order; pieces and addresses of them follow it."""
        self._orders.update(orders)

    @property
    def bytes(self) -> int:
        """Size of the whole block."""
        return len(self._block)

    @property
    def anywhere(self) -> int:
        """A valid address, for pointers to nothing."""
        return address_of(self._block)

    def load(self) -> None:
        """Set every variable with initial contents to those; the others keep their values."""
        for variable in self._variables:
            if variable.initial is not None:
                self.images(variable)[...] = variable.initial
            elif variable.kind == "replica_index":
                self.images(variable)[...] = np.array(self.share.replicas)

    def images(self, variable: Variable) -> npt.NDArray[Any]:
        """The variable's storage in all replicas, of shape [replicas, *shape]."""
        begin = int(self._offset[variable.id])
        stored = self._block.reshape(self.replicas, self.stride)[:, begin : begin + variable.bytes]
        if not variable.size:
            return np.empty((self.replicas, *variable.shape), dtype=variable.dtype.np)
        steps = self._in_shape(np.empty(variable.shape, dtype=variable.dtype.np), variable).strides
        elements = stored.view(variable.dtype.np)
        return np.lib.stride_tricks.as_strided(elements, (self.replicas, *variable.shape), (self.stride, *steps))

    def array(self, variable: Variable, replica: int = 0) -> npt.NDArray[Any]:
        """The variable's storage in one replica itself, in its shape."""
        begin = int(self._offset[variable.id]) + replica * self.stride
        stored = self._block[begin : begin + variable.bytes]
        return self._in_shape(stored.view(variable.dtype.np), variable)

    def _in_shape(self, elements: npt.NDArray[Any], variable: Variable) -> npt.NDArray[Any]:
        """Stored elements of a variable, in its shape."""
        order = self._orders.get(variable)
        if order is None:
            return elements.reshape(variable.shape)
        stored = elements.reshape([variable.shape[d] for d in order])
        return stored.transpose([order.index(d) for d in range(len(order))])

    def address(self, variable: Variable, replica: int = 0) -> int:
        """Address of the variable's first byte in one replica."""
        return address_of(self._block) + int(self._offset[variable.id]) + replica * self.stride

    def zones(self, begin: Int64, length: Int64) -> tuple[Int64, Int64]:
        """Memory before and after the variables in intervals of the global element space, in all replicas.

        Returns:
            First byte, and one past the last, of each stretch, int64[k].
        """
        owners = np.flatnonzero(self._owners(begin, length))
        ids = np.asarray(self._held, dtype=np.int64)[owners]
        edges = np.append(self._offset, self.stride)
        after = np.unique(np.concatenate([ids - 1, ids]))
        low = np.where(after < 0, 0, self._after[after])
        shift = np.repeat(address_of(self._block) + np.arange(self.replicas, dtype=np.int64) * self.stride, len(after))
        return np.tile(low, self.replicas) + shift, np.tile(edges[after + 1], self.replicas) + shift

    def around(self, address: int) -> list[Variable]:
        """The variables that end and begin next to an address between variables."""
        offset = (address - address_of(self._block)) % self.stride
        after = int(np.searchsorted(self._offset, offset, side="right"))
        return list(self._variables[max(0, after - 1) : after + 1])

    def holds(self, address: int) -> bool:
        """True if an address is in the arena."""
        return 0 <= address - address_of(self._block) < len(self._block)

    def pieces(self, begin: Int64, length: Int64, replica: int = 0) -> MemoryPieces:
        """Host memory of intervals of the global element space in one replica; cut where a variable ends.

        Args:
            begin: First element of each interval, int64[k].
            length: Elements of each, int64[k], at least 1.
            replica: Number of the replica.

        Raises:
            EngineError: An interval is not in the space, or there is no such replica.
        """
        check_intervals(begin, length, int(self._end[-1]) if len(self._end) else 0)
        check_numbers(np.array([replica]), self.replicas, f"replica {replica}")
        first = np.searchsorted(self._base, begin, side="right") - 1
        last = np.searchsorted(self._base, begin + length, side="left") - 1
        count = last - first + 1
        source = np.repeat(np.arange(len(begin), dtype=np.int64), count)
        owner = first[source] + np.arange(len(source), dtype=np.int64) - (np.cumsum(count) - count)[source]
        low = np.maximum(begin[source], self._base[owner])
        high = np.minimum((begin + length)[source], self._end[owner])
        width = self._width[owner]
        start = self._start[owner] + replica * self.stride
        return MemoryPieces(start + (low - self._base[owner]) * width, (high - low) * width, source)

    def variables_in(self, elements: IntervalSet) -> list[Variable]:
        """The variables that have an element in the set."""
        owners = self._owners(elements.begin, elements.end - elements.begin)
        return [self._variables[self._held[i]] for i in np.flatnonzero(owners)]

    def _owners(self, begin: Int64, length: Int64) -> npt.NDArray[np.bool_]:
        """True for the variables, of those with elements, that are in some of the intervals."""
        held = len(self._held) + 1
        first = np.searchsorted(self._end, begin, side="right")
        last = np.searchsorted(self._base, begin + length, side="left")
        # Each interval covers a stretch of variables: count up at its first, down behind its last.
        change = np.bincount(first, minlength=held) - np.bincount(last, minlength=held)
        return np.asarray(np.cumsum(change[:-1]) > 0)

    def pieces_of(self, tensor: Tensor, replica: int = 0) -> MemoryPieces:
        """Host memory of a view in one replica, in the view's flattened order."""
        return self.pieces(*tensor.intervals(), replica)

    def all_pieces_of(self, tensor: Tensor) -> MemoryPieces:
        """Host memory of a view in all replicas, one replica after the other."""
        one = self.pieces_of(tensor)
        if self.replicas == 1:
            return one
        shift = np.repeat(np.arange(self.replicas, dtype=np.int64) * self.stride, len(one))
        parts = (np.tile(column, self.replicas) for column in (one.address, one.bytes, one.source))
        address, size, source = parts
        return MemoryPieces(address + shift, size, source)

    def read(self, tensor: Tensor, replica: int = 0) -> npt.NDArray[Any]:
        """A copy of the elements that a view shows in one replica."""
        strided = tensor.strided()
        if strided is not None:
            return strided.of(self._flat(strided.variable, tensor, replica)).copy().reshape(tensor.shape)
        flat = np.empty(tensor.size, dtype=tensor.dtype.np)
        for variable, elements, positions in self._selections(tensor):
            flat[positions] = self._flat(variable, tensor, replica)[elements]
        return flat.reshape(tensor.shape)

    def write(self, tensor: Tensor, values: npt.ArrayLike, replica: int = 0) -> None:
        """Set the elements that a view shows in one replica; ``values`` has its shape, or is one number for all."""
        given = np.broadcast_to(to_device(values, tensor.dtype), tensor.shape)
        strided = tensor.strided()
        if strided is not None:
            elements = self._flat(strided.variable, tensor, replica)
            shown = strided.of(elements)
            shown[...] = given.reshape(shown.shape)
            self._put_back(strided.variable, elements, replica)
            return
        flat = given.reshape(-1)
        for variable, places, positions in self._selections(tensor):
            elements = self._flat(variable, tensor, replica)
            elements[places] = flat[positions]
            self._put_back(variable, elements, replica)

    def read_all(self, tensor: Tensor) -> npt.NDArray[Any]:
        """Values of a view: of its shape, or [replicas, *shape] in a program of several."""
        if self.alone:
            return self.read(tensor)
        return np.stack([self.read(tensor, replica) for replica in range(self.replicas)])

    def write_all(self, tensor: Tensor, values: npt.ArrayLike) -> None:
        """Set a view in all replicas: to the same, or each to its row of [replicas, *shape]."""
        given = np.asarray(values)
        own = not self.alone and given.shape == (self.replicas, *tensor.shape)
        for replica in range(self.replicas):
            self.write(tensor, given[replica] if own else given, replica)

    def _flat(self, variable: Variable, tensor: Tensor, replica: int) -> npt.NDArray[Any]:
        """The elements of a variable in row-major order; a copy where they are stored in another."""
        return self.array(variable, replica).reshape(-1).view(tensor.dtype.np)

    def _put_back(self, variable: Variable, elements: npt.NDArray[Any], replica: int) -> None:
        """Store the result of :meth:`_flat`, where that was a copy."""
        if variable in self._orders:
            self.array(variable, replica)[...] = elements.view(variable.dtype.np).reshape(variable.shape)

    @staticmethod
    def _selections(tensor: Tensor) -> list[tuple[Variable, Any, Any]]:
        """For each variable of a view: the elements shown, and their positions in the flattened view."""
        address = expand(*tensor.intervals())
        found = []
        for variable in tensor.variables:
            mine = np.flatnonzero((address >= variable.base) & (address < variable.base + variable.size))
            found.append((variable, address[mine] - variable.base, mine))
        return found
