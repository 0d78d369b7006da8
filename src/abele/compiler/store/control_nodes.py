"""Steps of control that hold no others, in a file: barriers, aborts, cycle counters, modes and seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import attrgetter, or_
from typing import TYPE_CHECKING, Any, cast

import msgspec

from abele.compiler.store.format import Debug, Name, Number, Row
from abele.graph.control import Abort, CycleStamp, ErrorProgram, GetHwSeeds, SetFloatingPointBehaviour, SetHwSeeds, Sync
from abele.graph.meanings import Meanings
from abele.graph.program import Program

if TYPE_CHECKING:
    from abele.compiler.store.programs import ProgramsIn, ProgramsOut


# Program nodes in a file: the row of each kind, its fields, and the constructor of the node.


class NodeForm(Row):
    """A program node; its parts follow in the order of its constructor."""

    debug: Debug


@dataclass(frozen=True)
class StoredNode:
    """The file form of a kind of node.

    Attributes:
        row: The type of its row; the tag is the kind's name.
        parts: Gives what follows ``debug`` in the row, from the writer and the node.
        make: Makes the node again, from the reader and those parts; constructors check what they are given.
    """

    row: type[NodeForm]
    parts: Callable[[ProgramsOut, Any], list[Any]]
    make: Callable[..., Program]


STORED: Meanings[StoredNode] = Meanings("can be saved")
"""The file form of every kind of node."""

_MAKERS: dict[type[NodeForm], Callable[..., Program]] = {}


def stored(
    kind: type[Program],
    row: type[NodeForm],
    parts: Callable[[ProgramsOut, Any], list[Any]],
    make: Callable[..., Program],
) -> None:
    """Enter the file form of a kind of node; see :class:`StoredNode`."""
    STORED.add(kind, StoredNode(row, parts, make))
    _MAKERS[row] = make


def stored_with_view(kind: type[Program], tag: str, part: str) -> None:
    """Enter the file form of a kind of node that has one part, a view.

    Args:
        kind: The kind; its constructor takes the view.
        tag: First word of its rows.
        part: The attribute that is the view.
    """
    row: Any = msgspec.defstruct(f"{tag}Row", [(part, Number)], bases=(NodeForm,), tag=tag, module=__name__)
    view, node = attrgetter(part), cast(Callable[..., Program], kind)
    stored(kind, row, parts=lambda out, n: [out.view(view(n))], make=lambda at, number: node(at.view(number)))


def forgotten(kind: type[Program]) -> None:
    """Take a kind of node out again."""
    found = STORED.find(kind)
    if found is not None:
        del _MAKERS[found.row]
        STORED.remove(kind)


def tag_of(node: Program) -> str:
    """The word that a node's row begins with."""
    return str(STORED.of(node).row.__struct_config__.tag)


def decoded_nodes(text: msgspec.Raw) -> list[NodeForm]:
    """The rows of a file's nodes.

    Raises:
        msgspec.MsgspecError: They are no such rows.
    """
    rows: Any = reduce(or_, _MAKERS)
    found: list[NodeForm] = msgspec.json.decode(text, type=list[rows])
    return found


def made_again(reader: ProgramsIn, row: NodeForm, *parts: Any) -> Program:
    """The node of a row."""
    return _MAKERS[type(row)](reader, *parts)


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


def _tiles_of(node: CycleStamp) -> list[int]:
    return [node.tile] if isinstance(node.tile, int) else list(node.tile)


def _stamp(result: Any, tiles: list[int], sync: str) -> CycleStamp:
    return CycleStamp(result, tiles[0] if result.ndim == 1 else tiles, None if sync == "none" else sync)


class CycleStampRow(NodeForm, tag="CycleStamp"):
    """A reading of the cycle counters of tiles; ``none`` for one without a barrier."""

    result: Number
    tiles: list[Number]
    sync: Name


stored(
    CycleStamp,
    CycleStampRow,
    parts=lambda out, n: [out.view(n.result), _tiles_of(n), "none" if n.sync is None else n.sync.kind],
    make=lambda at, result, tiles, sync: _stamp(at.view(result), [at.tile(t) for t in tiles], sync),
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
