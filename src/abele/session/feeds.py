"""Feeds of a run, inputs and outputs: arrays of whole host batches, or micro-batches one at a time."""

from __future__ import annotations

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.errors import BatchSizeError, ElementRangeError, SignatureError, nearest
from abele.network import OutputMode, Schedule
from abele.numerics import ElementType
from abele.runtime import Engine
from abele.session.compiled import Compiled
from abele.session.host_interface import End

# The batch rule: the host's arrays for one run, and the arrays that it gets back.
#
# The device sees micro-batches. The host sends those of one run together, one after the other along the first
# dimension: device iterations outermost, accumulation within, replicas innermost. A tensor without dimensions counts
# as a batch of one.

Shape = tuple[int, ...]


def micro_batch_shape(shape: Shape, schedule: Schedule) -> Shape:
    """The part of a host batch that the model sees at a time.

    Args:
        shape: Shape of the host batch.
        schedule: Schedule of one run over its micro-batches.

    Raises:
        BatchSizeError: The first dimension does not divide into the micro-batches of a run.
    """
    size, parts = (shape[0] if shape else 1), schedule.micro_batches
    if size % parts:
        raise BatchSizeError(
            f"a batch of {size} does not divide into the {parts} micro-batches of a run",
            because=f"{schedule.device_iterations} device iterations, {schedule.accumulation} micro-batches each"
            + (f", on {schedule.own_replicas} replicas" if schedule.own_replicas > 1 else ""),
            remedy=f"batches of a multiple of {parts}",
        )
    return (size // parts, *shape[1:]) if shape else ()


def host_shape(shape: Shape, schedule: Schedule) -> Shape:
    """The shape of a host batch whose micro-batches have ``shape``; several scalars make a vector."""
    parts = schedule.micro_batches
    if not shape:
        return () if parts == 1 else (parts,)
    return (shape[0] * parts, *shape[1:])


def split(array: Array, schedule: Schedule, shape: Shape) -> Array:
    """A host batch as [micro_batches, *shape of one micro-batch], without copying."""
    return array.reshape(schedule.micro_batches, *shape)


def dealt(array: Array, schedule: Schedule, shape: Shape) -> Array:
    """A host batch as the replicas take it, one micro-batch after the other; those that share one take it each."""
    if not schedule.shares_inputs:
        return array
    return array.reshape(schedule.rounds, -1, *shape).take(schedule.input_of, axis=1)


def gathered(array: Array, schedule: Schedule, shape: Shape) -> Array:
    """The inverse of :func:`dealt`, as a host batch: of replicas that share inputs, what the first of them has."""
    if schedule.shares_inputs:
        first = schedule.input_groups.members(schedule.own_replicas)[:, 0]
        array = array.reshape(schedule.rounds, schedule.own_replicas, *shape).take(first, axis=1)
    return array.reshape(host_shape(shape, schedule))


def spoken(array: Array, schedule: Schedule) -> Array:
    """Results for the host, one per model, of those that replicas sent: [sent, *shape of one micro-batch]."""
    if schedule.sends_once or len(schedule.speakers) == schedule.own_replicas:
        return array
    rounds: Array = array.reshape(-1, schedule.own_replicas, *array.shape[1:]).take(schedule.speakers, axis=1)
    return rounds.reshape(-1, *array.shape[1:])


def is_single(schedule: Schedule) -> bool:
    """True if the host gets the results of one micro-batch of one model."""
    is_one = schedule.outputs in (OutputMode.SUM, OutputMode.FINAL) or schedule.rounds == 1
    return is_one and len(schedule.speakers) == 1


def combine(stacked: Array, schedule: Schedule) -> Array:
    """Results as the host gets them, from [returned, *shape of one micro-batch].

    One micro-batch comes as it is; several are joined along their first dimension, and scalars become a vector.
    """
    if is_single(schedule):
        single: Array = stacked[0]
        return single
    return stacked.reshape(-1, *stacked.shape[2:]) if stacked.ndim > 1 else stacked


Outfeed = Callable[[int, tuple[Array, ...]], None]
"""Takes the number of a micro-batch and its outputs."""


@dataclass(frozen=True)
class Results:
    """Results of a run.

    Attributes:
        outputs: The network's outputs, as its schedule says.
        changed: Inputs that the network changed, as they are afterwards, by position.
        anchors: Anchors of the schedule, in order.
    """

    outputs: tuple[Array, ...]
    changed: dict[int, Array] = field(default_factory=dict)
    anchors: tuple[Array, ...] = ()


# --- inputs ----------------------------------------------------------------------------------------------------------


def _by_name(ends: Sequence[End], inputs: Mapping[str, Any]) -> list[Any]:
    names = [end.name for end in ends]
    for name in inputs:
        if name not in names:
            close = nearest(name, names)
            raise SignatureError(
                f"the session has no input {name!r}",
                because=f"its inputs are {', '.join(names) or 'none'}",
                remedy=f"did you mean {close!r}?" if close else None,
            )
    return [inputs[name] for name in names if name in inputs]


def _is_feed(given: Any) -> bool:
    """True if micro-batches are given one at a time: a generator, an iterator, or a list or tuple of arrays."""
    if isinstance(given, (list, tuple)):
        return bool(given) and all(isinstance(item, np.ndarray) for item in given)
    return isinstance(given, Iterable) and not hasattr(given, "__array__") and not hasattr(given, "shape")


def checked(array: Array, end: End, shape: tuple[int, ...], what: str) -> Array:
    """The array, checked to have a shape and a type that fits.

    Raises:
        SignatureError: It does not.
    """
    if array.shape != shape:
        raise SignatureError(
            f"the input {end.name!r} has shape {list(shape)} for {what}, got {list(array.shape)}",
            because=f"one micro-batch is {list(end.shape)}",
            remedy="compile another session for the new shape",
        )
    if not _converts(array.dtype, end.dtype):
        raise SignatureError(f"the input {end.name!r} is {end.dtype}, got {array.dtype}", remedy="convert it first")
    if end.np.kind in "iu" and end.np.itemsize < 4 and array.dtype != end.np and array.size:
        _check_range(array, end)
    return array


def _converts(given: np.dtype[Any], wanted: ElementType) -> bool:
    """True if arrays of a type are taken for an element type: any width of its kind, and whole numbers for floats."""
    if wanted.is_float:
        return given.kind in "iub" or _kind_of(given) == "float"
    return given.kind == "b" or (wanted.kind != "bool" and given.kind in "iu")


def _kind_of(dtype: np.dtype[Any]) -> str:
    """``float`` for every floating-point type of NumPy and of ml_dtypes."""
    return "float" if dtype.kind == "f" or dtype.name.startswith(("bfloat", "float")) else dtype.kind


def _check_range(array: Array, end: End) -> None:
    limits, low, high = np.iinfo(end.np), int(array.min()), int(array.max())
    if low < limits.min or high > limits.max:
        raise ElementRangeError(
            f"the input {end.name!r} holds {low if low < limits.min else high}, which does not fit in {end.dtype}",
            remedy=f"numbers from {limits.min} to {limits.max}",
        )


def _micro_batches(compiled: Compiled, end: End, given: Any) -> Iterator[Array]:
    count = compiled.schedule.micro_batches
    if isinstance(given, np.ndarray):
        yield from given.reshape(count, *end.shape)
        return
    for item in itertools.islice(given, count):
        yield checked(np.asarray(item), end, end.shape, "a micro-batch")


def _checked_rows(compiled: Compiled, parts: Sequence[Iterator[Array]]) -> Iterator[tuple[Array, ...]]:
    for row in zip(*parts, strict=False):
        compiled.checks.check(row, 1)
        yield row


def _dealt_rows(rows: Iterator[tuple[Array, ...]], schedule: Schedule) -> Iterator[tuple[Array, ...]]:
    """The rows of micro-batches in the order in which replicas take them; see :func:`~abele.session.feeds.dealt`."""
    size = schedule.micro_batches // schedule.rounds
    while taken := list(itertools.islice(rows, size)):
        for number in schedule.input_of:
            if number < len(taken):
                yield taken[number]


class _Columns:
    """Micro-batches by input. Each stream is read ahead by a thread of its own, so whoever is first takes the row."""

    def __init__(self, rows: Iterator[tuple[Array, ...]], width: int) -> None:
        self._rows = rows
        self._waiting: list[deque[Array]] = [deque() for _ in range(width)]
        self._lock = threading.Lock()

    def of(self, position: int, end: End) -> Iterator[Array]:
        """The micro-batches of one input."""
        while True:
            with self._lock:
                if not self._waiting[position]:
                    row = next(self._rows, None)
                    if row is None:
                        return
                    for waiting, array in zip(self._waiting, row, strict=True):
                        waiting.append(array)
                array = self._waiting[position].popleft()
            yield np.asarray(array, end.np, order="C")


# --- outputs ---------------------------------------------------------------------------------------------------------


class _OutputRows:
    """Puts the outputs of each micro-batch together; they come one after the other, those of one stream in order."""

    def __init__(self, width: int, outfeed: Outfeed, schedule: Schedule) -> None:
        self._columns: list[list[Array]] = [[] for _ in range(width)]
        self._outfeed = outfeed
        senders = 1 if schedule.sends_once else schedule.own_replicas
        self._speaks = itertools.cycle([n in schedule.speakers for n in range(senders)])
        self._number = 0

    def take(self, position: int) -> Callable[[Array], None]:
        """Callback that the stream of an output calls with each of its arrays."""

        def take(array: Array) -> None:
            self._columns[position].append(np.array(array))
            if all(self._columns):
                row = tuple(column.pop(0) for column in self._columns)
                if next(self._speaks):
                    self._number, number = self._number + 1, self._number
                    self._outfeed(number, row)

        return take


# --- streams, connected once -----------------------------------------------------------------------------------------

_STAYS_BYTES = 1 << 17
"""Arrays up to this size are copied into memory that stays connected: connecting one takes as long as copying so much,
10 µs at 10 GB/s."""


class _BoundStream:
    """Stream of a session, connected to memory that stays, or to an array of each run.

    Args:
        engine: The engine that runs.
        end: The stream.
        shape: Dimensions of what one run moves.
    """

    def __init__(self, engine: Engine, end: End, shape: Shape) -> None:
        self._engine, self.end = engine, end
        self._shape, self.dtype = shape, end.np
        self.stays = math.prod(shape) * end.np.itemsize <= _STAYS_BYTES
        self._memory: Array | None = None

    def connect(self, data: Any) -> None:
        """Connect what one run uses, in place of the memory that stays."""
        self._memory = None
        self._engine.connect(self.end.handle, data)

    def memory(self) -> Array:
        """The memory that is connected; made on first use, and anew for each run of what does not stay."""
        found = self._memory
        if found is None or not self.stays:
            found = np.empty(self._shape, self.dtype)
            self.connect(found)
            self._memory = found
        return found

    def forget(self) -> None:
        """Connect anew in the next run, from the beginning."""
        self._memory = None


class _InputStream(_BoundStream):
    """Stream of an input."""

    def __init__(self, engine: Engine, end: End, schedule: Schedule) -> None:
        self.shape, self._schedule, self._is_dealt = host_shape(end.shape, schedule), schedule, schedule.shares_inputs
        copies = schedule.rounds * schedule.own_replicas
        super().__init__(engine, end, (copies, *end.shape) if self._is_dealt else self.shape)

    def read(self, given: Any) -> Any:
        """The whole host batch in its own type, or an iterable of micro-batches.

        Raises:
            SignatureError: It differs from what was compiled.
        """
        if type(given) is np.ndarray:
            if given.dtype == self.dtype and given.shape == self.shape:
                return given
        elif _is_feed(given):
            return given
        return checked(np.asarray(given), self.end, self.shape, "a run")

    def send(self, array: Array) -> None:
        """Let the next run have a host batch."""
        if self._is_dealt:
            array = dealt(np.asarray(array, self.dtype, order="C"), self._schedule, self.end.shape).reshape(self._shape)
        if self.stays:
            self.memory()[...] = array
        else:
            self.connect(np.asarray(array, self.dtype, order="C"))


class _OutputStream(_BoundStream):
    """Stream of an output, of an anchor, or of an input that the network changes."""

    def __init__(self, engine: Engine, end: End, copies: int) -> None:
        super().__init__(engine, end, (copies, *end.shape))

    def take(self) -> Array:
        """Arrays that the last run has sent, [copies, *shape of one micro-batch]; the caller's own."""
        assert self._memory is not None
        return self._memory.copy() if self.stays else self._memory


class Feeds:
    """Streams of a session between the host and an engine.

    What small streams move is copied through memory that stays connected, so that a call of a small program connects
    nothing; longer arrays are connected themselves. A run that did not come to its end leaves streams somewhere in
    their memory: :meth:`forget` lets the next one connect them anew.

    Args:
        engine: The engine that runs.
        compiled: Its program.
    """

    def __init__(self, engine: Engine, compiled: Compiled) -> None:
        schedule, ends = compiled.schedule, compiled.ends
        self._compiled = compiled
        self._inputs = [_InputStream(engine, end, schedule) for end in ends.inputs]
        self._outputs = [_OutputStream(engine, end, schedule.sent_back) for end in ends.outputs]
        each = schedule.rounds * schedule.own_replicas
        self._changed = [(position, _OutputStream(engine, end, each)) for position, end in ends.changed]
        anchored = [schedule.of_anchor(anchor) for anchor in schedule.anchors]
        self._anchors = [
            (_OutputStream(engine, end, own.sent_back), own) for own, end in zip(anchored, ends.anchors, strict=True)
        ]
        streams = (*self._outputs, *(s for _, s in self._changed), *(s for s, _ in self._anchors))
        self._receiving, self._every = streams[len(self._outputs) :], (*self._inputs, *streams)
        self._is_single = is_single(schedule) and (schedule.sends_once or schedule.own_replicas == 1)
        self._is_fed = False

    # --- inputs ------------------------------------------------------------------------------------------------------

    def read(self, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
        """The inputs in order: an array of the whole host batch, in its own type, or an iterable of micro-batches.

        Raises:
            SignatureError: They differ from what was compiled.
        """
        ends = self._compiled.ends.inputs
        found = _by_name(ends, inputs) if isinstance(inputs, Mapping) else list(inputs)
        if len(found) != len(ends):
            names = ", ".join(end.name for end in ends) or "none"
            raise SignatureError(
                f"the session takes {len(ends)} inputs, got {len(found)}", because=f"its inputs are {names}"
            )
        return [stream.read(given) for stream, given in zip(self._inputs, found, strict=True)]

    def connect(self, inputs: Sequence[Any], outfeed: Outfeed | None) -> None:
        """Let the next run have what :meth:`read` gave; make room for its outputs, or let ``outfeed`` have them.

        Raises:
            TensorIndexError: An integer outside its bounds.
            ElementRangeError: An integer that does not fit in 32 bits.
        """
        if inputs:
            self._send(inputs)
        for stream in self._receiving:
            stream.memory()
        self._is_fed = outfeed is not None
        if outfeed is None:
            for stream in self._outputs:
                stream.memory()
            return
        rows = _OutputRows(len(self._outputs), outfeed, self._compiled.schedule)
        for position, stream in enumerate(self._outputs):
            stream.connect(rows.take(position))

    def _send(self, inputs: Sequence[Any]) -> None:
        compiled = self._compiled
        if all(isinstance(given, np.ndarray) for given in inputs):
            compiled.checks.check(inputs, compiled.schedule.micro_batches)
            for stream, array in zip(self._inputs, inputs, strict=True):
                stream.send(array)
            return
        # Whole batches beside iterables are cut too, so that the checks see each micro-batch with all of its inputs.
        ends = compiled.ends.inputs
        parts = [_micro_batches(compiled, end, given) for end, given in zip(ends, inputs, strict=True)]
        columns = _Columns(_dealt_rows(_checked_rows(compiled, parts), compiled.schedule), len(ends))
        for position, stream in enumerate(self._inputs):
            stream.connect(columns.of(position, stream.end))

    # --- outputs -----------------------------------------------------------------------------------------------------

    def results(self) -> Results:
        """The results, once the run has ended."""
        schedule = self._compiled.schedule
        outputs: tuple[Array, ...] = ()
        if not self._is_fed:
            sent = [stream.take() for stream in self._outputs]
            outputs = tuple(a[0] if self._is_single else combine(spoken(a, schedule), schedule) for a in sent)
        changed = {place: gathered(stream.take(), schedule, stream.end.shape) for place, stream in self._changed}
        anchors = [combine(spoken(stream.take(), schedule), own) for stream, own in self._anchors]
        return Results(outputs, changed, tuple(anchors))

    def forget(self) -> None:
        """Connect everything anew in the next run, as the last one did not come to its end."""
        for stream in self._every:
            stream.forget()
