"""The batch rule: the host's arrays for one run, and the arrays that it gets back.

The device sees micro-batches. The host sends those of one run together, one after the other along the first dimension:
device iterations outermost, accumulation within, replicas innermost. A tensor without dimensions counts as a batch of
one.
"""

from __future__ import annotations

from abele.arrays import Array
from abele.errors import BatchSizeError
from abele.network import OutputMode, Schedule

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
