"""The program tree as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from abele.compiler.text.words import bounded, end_text, place_text
from abele.graph.compute_set import ComputeSet
from abele.graph.control import (
    Abort,
    AssumeEqualAcrossReplicas,
    Block,
    CycleCount,
    CycleStamp,
    ErrorProgram,
    GetHwSeeds,
    SetFloatingPointBehaviour,
    SetHwSeeds,
    Switch,
    Sync,
)
from abele.graph.flow import OneOf, While
from abele.graph.host_interface import HostCall
from abele.graph.meanings import Meanings
from abele.graph.program import (
    Call,
    Copy,
    Execute,
    Function,
    If,
    LibraryCall,
    PrintTensor,
    Program,
    Repeat,
    RepeatWhile,
    Sequence,
    WriteUndef,
)
from abele.graph.replica_copies import CrossReplicaCopy, CrossReplicaExchange
from abele.graph.tensor import Tensor
from abele.words import tiles_text

Part = tuple[str, tuple[Program, ...]]


def program_text(program: Program, *, lines: bool = False, most: int = 1000) -> str:
    """A control program as an indented tree, one step per line.

    Args:
        program: Its root.
        lines: Say where the user made each step.
        most: Lines; what is beyond is counted.

    The body of a function is shown where it is called first.
    """
    return "\n".join(bounded(_tree(program, 0, set(), lines), most))


def _tree(node: Program, depth: int, shown: set[Function], lines: bool) -> Iterator[str]:
    if type(node) is Program or (isinstance(node, Sequence) and not node.steps):
        yield f"{'  ' * depth}nothing"
        return
    if isinstance(node, Sequence):
        for step in node:
            yield from _tree(step, depth, shown, lines)
        return
    debug = node.compute_set.debug if isinstance(node, Execute) else node.debug
    place = place_text(debug) if lines else ""
    yield f"{'  ' * depth}{step_text(node)}" + (f"  ({place})" if place else "")
    for title, parts in _parts(node, shown):
        inner = depth + 1
        if title:
            yield f"{'  ' * inner}{title}"
            inner += 1
        for part in parts:
            yield from _tree(part, inner, shown, lines)


def _parts(node: Program, shown: set[Function]) -> list[Part]:
    """The steps inside a node, under titles where they need any."""
    match node.flow():
        case While() as loop:
            return [("after", (loop.condition,)), ("do", (loop.body,))]
        case OneOf(_, ways, titles):
            return [(title, (way,)) for title, way in zip(titles, ways, strict=True)]
    if isinstance(node, Call):
        body: tuple[Program, ...] = () if node.function in shown else (node.function.body,)
        shown.add(node.function)
        return [("", (*node.copies_in, *body, *node.copies_out))]
    return [("", node.children())]


def step_text(node: Program) -> str:
    """One node in a line, without its children."""
    text = TEXT.find(type(node))
    return text(node) if text is not None else f"{type(node).__name__} {node.debug.full_name}"


def _execute(node: Execute) -> str:
    return f"execute {node.compute_set.name}: {vertices_text(node.compute_set)}"


def vertices_text(compute_set: ComputeSet) -> str:
    """Vertices of a compute set: numbers by codelet, and tiles."""
    groups = [g for g in compute_set.groups if g.num]
    if not groups:
        return "no vertices"
    counts: dict[str, int] = {}
    for group in groups:
        counts[group.codelet.name] = counts.get(group.codelet.name, 0) + group.num
    kinds = [f"{n:,} × {name}" for name, n in counts.items()]
    more = f", {len(kinds) - 4} more kinds" if len(kinds) > 4 else ""
    return f"{', '.join(kinds[:4])}{more} on {tiles_text(np.concatenate([g.tile for g in groups]))}"


def _copy(node: Copy) -> str:
    offset = f" at rows {end_text(node.offset)}" if node.offset is not None else ""
    return f"copy {end_text(node.source)} → {end_text(node.destination)}{offset}"


def _library_call(node: LibraryCall) -> str:
    takes, gives = (", ".join(end_text(t) for t in side) or "nothing" for side in (node.inputs, node.outputs))
    return f"{node.name} {node.debug.full_name!r}: {takes} → {gives}"


def _host_call(node: HostCall) -> str:
    takes, gives = (", ".join(end_text(t) for t in side) or "nothing" for side in (node.inputs, node.outputs))
    return f"host function {node.function.name}: {takes} → {gives}"


def _abort(node: Abort) -> str:
    message = f" {node.message!r}" if node.message else ""
    return f"abort{message}" + (f" if {_name(node.condition)}" if node.condition is not None else "")


def _replica_exchange(node: CrossReplicaExchange) -> str:
    shown = [_replica_copy(copy) for copy in node.copies[:4]]
    return " and ".join(shown) + (f" and {len(node.copies) - 4} more" if len(node.copies) > 4 else "")


def _replica_copy(node: CrossReplicaCopy) -> str:
    pairs = [f"{a}→{b}" for a, b in sorted(node.map.items())]
    way = ", ".join(pairs[:8]) + (", …" if len(pairs) > 8 else "")
    return f"copy {end_text(node.source)} → {end_text(node.destination)} of replica {way}"


def _stamp(node: CycleStamp) -> str:
    sync = "no sync" if node.sync is None else f"sync {node.sync.kind}"
    return f"stamp cycles of {tiles_text(np.asarray(node.tile))} into {end_text(node.result)}, {sync}"


def _behaviour(node: SetFloatingPointBehaviour) -> str:
    words = ", ".join(f"{name} {'on' if value else 'off'}" for name, value in node.fields.items())
    return f"floating point: {words or 'as it is'}"


def _name(tensor: Tensor | None) -> str:
    return tensor.name if tensor is not None else ""


TEXT: Meanings[Callable[[Any], str]] = Meanings(
    "can be shown",
    {
        Execute: _execute,
        Copy: _copy,
        LibraryCall: _library_call,
        Repeat: lambda n: f"repeat {n.count:,} times",
        RepeatWhile: lambda n: f"repeat while {_name(n.predicate)} is {'true' if n.value else 'false'}",
        If: lambda n: f"if {_name(n.predicate)}",
        Switch: lambda n: f"switch {_name(n.control)}",
        Call: lambda n: f"call {n.function.debug.full_name}",
        Block: lambda n: f"block {n.debug.name}",
        WriteUndef: lambda n: f"undefined {end_text(n.tensor)}",
        PrintTensor: lambda n: f"print {n.title}: {end_text(n.tensor)}",
        HostCall: _host_call,
        Sync: lambda n: f"sync {n.kind}",
        Abort: _abort,
        ErrorProgram: lambda n: f"error {n.message!r} with {end_text(n.tensor)}",
        CycleCount: lambda n: f"count cycles on tile {n.tile} into {end_text(n.result)}, sync {n.sync.kind}",
        CycleStamp: _stamp,
        SetFloatingPointBehaviour: _behaviour,
        GetHwSeeds: lambda n: f"read seeds into {end_text(n.result)}",
        SetHwSeeds: lambda n: f"set seeds from {end_text(n.seeds)}",
        AssumeEqualAcrossReplicas: lambda n: f"assume {end_text(n.tensor)} equal across replicas",
        CrossReplicaCopy: _replica_copy,
        CrossReplicaExchange: _replica_exchange,
    },
)
"""Text of each kind of node in a line; one that is not entered shows its class and name."""
