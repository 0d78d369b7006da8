"""PopART's operators on sequences: runs of rows, blocks of packed data, labels that are not aligned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.errors import ApplicationRuntimeError
from abele.expr import apply, select
from abele.expr.derivative import arg
from abele.frontends.onnx.ops.graphcore import DOMAIN, reduced
from abele.frontends.onnx.registry import Item, NodeCall, op
from abele.network import Value
from abele.network.ops import build
from abele.network.ops.host_call import HOST_BODIES
from abele.numerics import bool_, i32, u32

x, y, z = arg(0), arg(1), arg(2)

# --- rows -------------------------------------------------------------------------------------------------------------


@op("SequenceSlice", domain=DOMAIN)
def sequence_slice(
    call: NodeCall,
    source: Value,
    destination: Value,
    count: Value,
    source_offset: Value,
    destination_offset: Value,
    *,
    zeroUnused: int = 0,
) -> Value:
    """Rows of one tensor copied to places of another, several runs of them."""
    net, rows, width = call.net, destination.shape[0], math.prod(destination.shape[1:])
    table = build.reshape(net, source, (source.shape[0], width))
    made = (
        build.full(net, 0, (rows, width), destination.dtype)
        if zeroUnused
        else build.reshape(net, destination, (rows, width))
    )
    places = net.constant(np.arange(rows), i32)
    for number in range(count.size):
        one = [
            build.reshape(net, build.slice_(net, build.cast(net, v, i32), 0, number, number + 1), (1,))
            for v in (count, source_offset, destination_offset)
        ]
        length, begin, target = one
        offset = build.map_(net, x - y, [places, target], i32)
        inside = build.map_(net, apply("and", x >= 0, x < y), [offset, length], bool_)
        index = build.map_(net, select(z, x + y, 0), [offset, begin, inside], i32)
        held = build.map_(net, apply("max", apply("min", x, source.shape[0] - 1), 0), [index], i32)
        found = build.look_up(net, table, held)
        column = build.reshape(net, inside, (rows, 1))
        made = build.map_(net, select(x, y, z), [column, found, made], made.dtype)
    return build.reshape(net, made, destination.shape)


# --- packed data ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Runs:
    """Sequences that lie behind each other in a table: where each begins and how many rows it has.

    Attributes:
        places: First row of each, i32[count].
        lengths: Rows of each, i32[count].
        longest: Rows that each is filled up to.
    """

    places: Value
    lengths: Value
    longest: int

    def rows(self, call: NodeCall, outside: int) -> tuple[Value, Value]:
        """Row of each place of each sequence, i32[count, longest], and which places the sequence has.

        Places beyond a sequence's end are at row ``outside``.
        """
        net, count = call.net, self.places.size
        steps = net.constant(np.arange(self.longest).reshape(1, -1), i32)
        columns = [build.reshape(net, build.cast(net, v, i32), (count, 1)) for v in (self.places, self.lengths)]
        inside = build.map_(net, x < y, [steps, columns[1]], bool_)
        return build.map_(net, select(z, x + y, outside), [steps, columns[0], inside], i32), inside

    def unpacked(self, call: NodeCall, table: Value) -> Value:
        """Sequences of a table of rows, each filled up with zeros: [count, longest, …]."""
        net, width = call.net, math.prod(table.shape[1:])
        index, inside = self.rows(call, 0)
        bounded = build.map_(net, apply("min", x, table.shape[0] - 1), [index], i32)
        found = build.look_up(net, build.reshape(net, table, (table.shape[0], width)), bounded)
        mask = build.reshape(net, inside, (*inside.shape, 1))
        kept = build.map_(net, select(y, x, 0), [found, mask], table.dtype)
        return build.reshape(net, kept, (*index.shape, *table.shape[1:]))

    def packed(self, call: NodeCall, sequences: Value, size: int) -> Value:
        """A table of rows with sequences at their places, zeros elsewhere: [size, …]."""
        net, width = call.net, math.prod(sequences.shape[2:])
        index, _ = self.rows(call, size)
        bounded = build.map_(net, apply("min", x, size), [index], i32)
        rows = build.reshape(net, sequences, (index.size, width))
        table = build.add_rows(net, rows, build.reshape(net, bounded, (index.size,)), size + 1)
        return build.reshape(net, build.slice_(net, table, 0, 0, size), (size, *sequences.shape[2:]))


@op("PackedDataBlock", domain=DOMAIN)
def packed_data_block(
    call: NodeCall,
    *given: Item,
    maxSequenceLengths: Sequence[int],
    resultSize: int,
    callbackBatchSize: int,
    callback: Any,
) -> Value:
    """A graph over some sequences of packed data at a time, whose results are packed again.

    Inputs are, for each of the graph's: rows of packed data, the row where each sequence begins, and its number of
    rows; then the rows where results begin, and perhaps their numbers of rows, which are the first input's otherwise.
    The graph takes sequences of [callbackBatchSize, maxSequenceLengths[n], …] filled up with zeros, and makes such.
    """
    net, several = call.net, len(maxSequenceLengths)
    if len(given) not in (3 * several + 1, 3 * several + 2):
        raise call.wrong(
            f"has {len(given)} inputs for {several} packed tensors",
            remedy="data, offsets and lengths of each, then the offsets of results, and perhaps their lengths",
        )
    values = [call.reader.value(item) for item in given]
    count = values[1].size
    if any(v.size != count for n, v in enumerate(values) if n % 3 or n >= 3 * several):
        raise call.wrong("has offsets and lengths of different numbers of sequences")
    if callbackBatchSize < 1 or count % callbackBatchSize:
        raise call.wrong(f"takes {callbackBatchSize} of {count} sequences at a time, which does not go into them")
    unpacked = [
        _Runs(values[3 * n + 1], values[3 * n + 2], int(longest)).unpacked(call, values[3 * n])
        for n, longest in enumerate(maxSequenceLengths)
    ]
    parts = []
    for begin in range(0, count, callbackBatchSize):
        taken = [build.slice_(net, v, 0, begin, begin + callbackBatchSize) for v in unpacked]
        (made,) = call.reader.body(callback, net, [Item("sequences", v.shape, v.dtype.np, value=v) for v in taken])
        parts.append(call.reader.value(made))
    whole = build.concat(net, parts, 0)
    if whole.ndim < 2:
        raise call.wrong(f"has a graph that makes {list(whole.shape)}, not rows of sequences")
    lengths = values[3 * several + 1] if len(given) > 3 * several + 1 else values[2]
    return _Runs(values[3 * several], lengths, whole.shape[1]).packed(call, whole, int(resultSize))


# --- labels that are not aligned --------------------------------------------------------------------------------------


@op("Ctc", domain=DOMAIN)
def ctc_loss(
    call: NodeCall,
    logs: Value,
    targets: Value,
    steps: Value,
    lengths: Value,
    *,
    reduction: str = "Mean",
    blank: int = 0,
    outDataType: str | int = "UNDEFINED",
    zeroInfinity: int = 0,
) -> Value:
    """Minus the logarithm of each target over all alignments; a mean divides each by its target's length first."""
    net = call.net
    whole = [build.cast(net, v, i32) for v in (targets, steps, lengths)]
    losses = build.ctc_loss(net, logs, *whole, blank=blank, zero_infinity=bool(zeroInfinity))
    if reduction.lower() == "mean":
        losses = call.map(x / apply("max", y, 1.0), losses, build.cast(net, whole[2], losses.dtype))
    return reduced(call, losses, reduction)


@op("CtcBeamSearchDecoder", domain=DOMAIN)
def ctc_beam_search_decoder(
    call: NodeCall, logs: Value, lengths: Value, *, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[Value, Value, Value]:
    """The most likely sequences of labels of logarithms [time, batch, classes] by beam search.

    Results are the logarithm of each one's probability [batch, paths], its number of labels, and the labels
    [batch, paths, time], which are 0 behind its end.
    """
    if not 1 <= top_paths <= beam_width:
        raise call.wrong(f"wants {top_paths} paths of {beam_width} beams")
    if not 0 <= blank < logs.shape[-1]:
        raise call.wrong(f"has the blank {blank} of {logs.shape[-1]} classes")
    steps = build.cast(call.net, lengths, u32)
    scores, counts, labels = build.ctc_decode(call.net, logs, steps, blank=blank, beams=beam_width, paths=top_paths)
    return scores, counts, labels


# --- an end -----------------------------------------------------------------------------------------------------------

ABORT = "popart.abort"


def _end(condition: Array) -> Array:
    if np.any(condition):
        raise ApplicationRuntimeError("the model's abort was reached", because=f"its condition is {condition!r}")
    return np.zeros((), np.int32)


HOST_BODIES[ABORT] = _end


@op("Abort", domain=DOMAIN)
def abort(call: NodeCall, condition: Value | None = None) -> tuple[()]:
    """An end of the run: where a condition holds, or in any case."""
    if call.net is not call.net.root:
        raise call.refuse("ends a run inside of a loop or a branch", remedy="give its condition out of it")
    given = build.full(call.net, 1, (), i32) if condition is None else condition
    call.reader.parts.effects += build.host_call(call.net, ABORT, [given], [((), i32)])
    return ()
