"""Check that packs fit samples and rows, once, before anything is gathered."""

from __future__ import annotations

import numpy as np

from abele.arrays import Int64
from abele.errors import PackedDataError, PackMembersError
from abele.packing.data.ragged import Ragged, whole_numbers
from abele.packing.data.row_shape import RowShape
from abele.packing.data.samples import Samples
from abele.packing.packs import Packs
from abele.words import counted


def checked_packs(packs: Packs, samples: Samples, shape: RowShape, *, partial: bool) -> Ragged:
    """The members of packs that fit.

    Args:
        packs: Items that lie together.
        samples: Samples to pack.
        shape: Capacity of a row.
        partial: True if packs may leave samples out, as those of one rank do.

    Raises:
        PackMembersError: A sample that does not exist, that two slots hold, or that is left out; more sequences in a
            pack than depth, or more elements than the room of a row.
        PackedDataError: Rows without a capacity for an axis of the samples, with one that samples do not have, or
            without the spare place that padding points to.
    """
    members = Ragged(whole_numbers(packs.items, "items of packs"), packs.begins)
    _check_axes(samples, shape)
    _check_spare(samples, shape)
    _check_items(members.own_values, len(samples), partial)
    _check_depth(members.lengths, shape)
    for axis, lengths in samples.lengths_by_axis.items():
        _check_room(members, shape.needs(lengths, axis), shape, axis)
    return members


def _check_axes(samples: Samples, shape: RowShape) -> None:
    for axis in samples.axes:
        shape.capacity_of(axis)
    for axis in shape.axes:
        if axis not in samples.axes:
            raise PackedDataError(
                f"rows have a capacity for {axis}, of which samples have none",
                remedy=f"axes: {', '.join(samples.axes)}",
            )


def _check_spare(samples: Samples, shape: RowShape) -> None:
    for name, field in samples.fields.items():
        if field.padding_to_last and field.points_to is not None and shape.spare.get(field.points_to, 0) < 1:
            raise PackedDataError(
                f"padding of {name!r} points to the last of the {field.points_to}, which a sequence may hold",
                remedy=f'RowShape(…, spare={{"{field.points_to}": 1}}) leaves one empty in every row',
            )


def _check_items(items: Int64, num_samples: int, partial: bool) -> None:
    unknown = np.flatnonzero((items < 0) | (items >= num_samples))
    if len(unknown):
        raise PackMembersError(
            f"packs hold sample {items[unknown[0]]}, and there are {num_samples:,}",
            remedy="packs made of the lengths of these samples",
        )
    times = np.bincount(items, minlength=num_samples)
    if times.max(initial=0) > 1:
        raise PackMembersError(
            f"packs hold sample {times.argmax()} {times.max()} times",
            because=f"{counted(int((times > 1).sum()), 'sample')} of {num_samples:,} are held more than once",
            remedy="each sample once; samples.split(…) before packing, where long ones are to be cut",
        )
    left_out = np.flatnonzero(times == 0)
    if len(left_out) and not partial:
        raise PackMembersError(
            f"packs leave out {counted(len(left_out), 'sample')} of {num_samples:,}, the first is {left_out[0]}",
            remedy="partial=True where packs are a part of all, such as those of one rank",
        )


def _check_depth(depths: Int64, shape: RowShape) -> None:
    if depths.max(initial=0) > shape.depth:
        pack = int(depths.argmax())
        raise PackMembersError(
            f"pack {pack} holds {depths[pack]} sequences, and rows have a depth of {shape.depth}",
            remedy=f"pack with a depth of {shape.depth}, or rows of depth {depths[pack]}",
        )


def _check_room(members: Ragged, needs: Int64, shape: RowShape, axis: str) -> None:
    ends = np.append(0, np.cumsum(needs[members.own_values]))
    begins = members.offsets - members.offsets[0]
    taken = ends[begins[1:]] - ends[begins[:-1]]
    room = shape.room(axis)
    if taken.max(initial=0) > room:
        pack, capacity = int(taken.argmax()), shape.capacity_of(axis)
        terms = [f"capacity {capacity:,}"]
        if shape.spare.get(axis):
            terms.append(f"spare {shape.spare[axis]}")
        if shape.leads(axis):
            terms.append(f"first tokens at the end {shape.depth}")
        if shape.alignment.get(axis, 1) > 1:
            terms.append(f"begins at multiples of {shape.alignment[axis]}")
        raise PackMembersError(
            f"pack {pack} takes {taken[pack]:,} {axis}, and a row has room for {room:,}",
            because=" · ".join(terms),
            remedy="pack shape.needs(samples.lengths) to a capacity of shape.room(), or split what is too long",
        )
