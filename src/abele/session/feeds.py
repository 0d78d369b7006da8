"""Feeds of a run, inputs and outputs: arrays of whole host batches, or micro-batches one at a time."""

from __future__ import annotations

import itertools
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


def combine(stacked: Array, schedule: Schedule) -> Array:
    """Results as the host gets them, from [returned, *shape of one micro-batch].

    One micro-batch comes as it is; several are joined along their first dimension, and scalars become a vector.
    """
    is_one = schedule.outputs in (OutputMode.SUM, OutputMode.FINAL) or schedule.rounds == 1
    if is_one and len(schedule.speakers) == 1:
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


def read_inputs(compiled: Compiled, inputs: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
    """The inputs in order: an array of the whole host batch, in its own type, or an iterable of micro-batches.

    Raises:
        SignatureError: They differ from what was compiled.
    """
    ends = compiled.ends.inputs
    found = _by_name(ends, inputs) if isinstance(inputs, Mapping) else list(inputs)
    if len(found) != len(ends):
        names = ", ".join(end.name for end in ends) or "none"
        raise SignatureError(
            f"the session takes {len(ends)} inputs, got {len(found)}", because=f"its inputs are {names}"
        )
    return [_read(compiled, end, given) for end, given in zip(ends, found, strict=True)]


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


def _read(compiled: Compiled, end: End, given: Any) -> Any:
    if _is_feed(given):
        return given
    return checked(np.asarray(given), end, host_shape(end.shape, compiled.schedule), "a run")


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


def connect_inputs(engine: Engine, compiled: Compiled, inputs: Sequence[Any]) -> None:
    """Connect what :func:`read_inputs` gave.

    Raises:
        TensorIndexError: An integer outside its bounds.
        ElementRangeError: An integer that does not fit in 32 bits.
    """
    checks, ends = compiled.checks, compiled.ends.inputs
    if not ends:
        return
    if all(isinstance(given, np.ndarray) for given in inputs):
        checks.check(inputs, compiled.schedule.micro_batches)
        for end, array in zip(ends, inputs, strict=True):
            given = dealt(np.asarray(array, end.np, order="C"), compiled.schedule, end.shape)
            engine.connect(end.handle, given)
        return
    # Whole batches beside iterables are cut too, so that the checks see each micro-batch with all of its inputs.
    parts = [_micro_batches(compiled, end, given) for end, given in zip(ends, inputs, strict=True)]
    columns = _Columns(_dealt_rows(_checked_rows(compiled, parts), compiled.schedule), len(ends))
    for position, end in enumerate(ends):
        engine.connect(end.handle, columns.of(position, end))


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


@dataclass
class Pending:
    """Destinations of the outputs of a run.

    Attributes:
        compiled: The program that runs.
        outputs: For each output, room for what comes back; empty with an outfeed.
        changed: The same for inputs that the network changes.
        anchors: The same for anchors.
    """

    compiled: Compiled
    outputs: list[Array]
    changed: list[Array]
    anchors: list[Array]

    def results(self) -> Results:
        """The results, once the run has ended."""
        schedule = self.compiled.schedule
        changed = {
            position: gathered(array, schedule, end.shape)
            for (position, end), array in zip(self.compiled.ends.changed, self.changed, strict=True)
        }
        anchors = (
            combine(spoken(array, schedule), schedule.of_anchor(anchor))
            for array, anchor in zip(self.anchors, schedule.anchors, strict=True)
        )
        return Results(tuple(combine(spoken(a, schedule), schedule) for a in self.outputs), changed, tuple(anchors))


def connect_outputs(engine: Engine, compiled: Compiled, outfeed: Outfeed | None) -> Pending:
    """Make room for the outputs of a run, or let ``outfeed`` have them."""
    schedule, ends = compiled.schedule, compiled.ends
    each = schedule.rounds * schedule.own_replicas
    changed = [np.empty((each, *end.shape), end.np) for _, end in ends.changed]
    for (_, end), array in zip(ends.changed, changed, strict=True):
        engine.connect(end.handle, array)
    returned = [schedule.of_anchor(anchor).sent_back for anchor in schedule.anchors]
    anchors = [np.empty((n, *end.shape), end.np) for n, end in zip(returned, ends.anchors, strict=True)]
    for end, array in zip(ends.anchors, anchors, strict=True):
        engine.connect(end.handle, array)
    outputs: list[Array] = []
    if outfeed is None:
        outputs = [np.empty((schedule.sent_back, *end.shape), end.np) for end in ends.outputs]
        for end, array in zip(ends.outputs, outputs, strict=True):
            engine.connect(end.handle, array)
    else:
        rows = _OutputRows(len(ends.outputs), outfeed, schedule)
        for position, end in enumerate(ends.outputs):
            engine.connect(end.handle, rows.take(position))
    return Pending(compiled, outputs, changed, anchors)


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
