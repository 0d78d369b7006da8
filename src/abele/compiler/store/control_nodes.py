"""Steps of control that hold no others, in a file: barriers, aborts, cycle counters, modes and seeds."""

from __future__ import annotations

from abele.compiler.store.format import Name, Number
from abele.compiler.store.nodes import NodeForm, stored, stored_with_view
from abele.graph.control import (
    Abort,
    CycleStamp,
    ErrorProgram,
    GetHwSeeds,
    SetFloatingPointBehaviour,
    SetHwSeeds,
    Sync,
)


class SyncRow(NodeForm, tag="Sync"):
    """A barrier."""

    kind: Name


stored(
    Sync,
    SyncRow,
    parts=lambda out, n: [n.kind],
    make=lambda at, kind: Sync(kind),
)


class AbortRow(NodeForm, tag="Abort"):
    """An end with a message."""

    message: Name
    condition: Number | None


stored(
    Abort,
    AbortRow,
    parts=lambda out, n: [n.message, out.view(n.condition)],
    make=lambda at, message, condition: Abort(message, at.view(condition)),
)


class ErrorProgramRow(NodeForm, tag="ErrorProgram"):
    """An end with a message and a tensor."""

    message: Name
    tensor: Number


stored(
    ErrorProgram,
    ErrorProgramRow,
    parts=lambda out, n: [n.message, out.view(n.tensor)],
    make=lambda at, message, tensor: ErrorProgram(message, at.view(tensor)),
)


class CycleStampRow(NodeForm, tag="CycleStamp"):
    """A reading of the cycle counter."""

    result: Number
    tile: Number
    sync: Name


stored(
    CycleStamp,
    CycleStampRow,
    parts=lambda out, n: [out.view(n.result), n.tile, n.sync.kind],
    make=lambda at, result, tile, sync: CycleStamp(at.view(result), at.tile(tile), sync),
)


class BehaviourRow(NodeForm, tag="SetFloatingPointBehaviour"):
    """Behaviour of floating-point exceptions from here on."""

    fields: dict[str, bool]


stored(
    SetFloatingPointBehaviour,
    BehaviourRow,
    parts=lambda out, n: [dict(n.fields)],
    make=lambda at, fields: SetFloatingPointBehaviour(**fields),
)


stored_with_view(GetHwSeeds, "GetHwSeeds", "result")


stored_with_view(SetHwSeeds, "SetHwSeeds", "seeds")
