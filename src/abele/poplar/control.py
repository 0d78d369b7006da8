"""Poplar's functions that append timers, floating-point modes and random seeds to a sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from abele import graph as g
from abele.errors import ControlProgramError
from abele.graph.control import SYNC_KINDS
from abele.graph.debug_context import name_of
from abele.graph.expect import dimensions, expect
from abele.poplar.program import SyncType, sync_kind


def cycleCount(graph: g.Graph, prog: g.Sequence, tile: int | Sequence[int] = 0, *sync_and_name: Any) -> g.Tensor:
    """Time a sequence: its steps so far become the body of a timer.

    Args:
        graph: Graph of the counter.
        prog: Sequence to time.
        tile: The tile whose counter is read, or several.
        *sync_and_name: ``[SyncType][, name]``.

    Returns:
        u32[2], low word first; u32[tiles, 2] for several tiles.

    Raises:
        ControlProgramError: ``prog`` is no sequence.
    """
    expect(prog, g.Sequence, "cycleCount times a sequence", error=ControlProgramError)
    counters = _Counters(graph, tile, sync_and_name, "cycle_count")
    for t, result in counters:
        prog.steps[:] = [g.CycleCount(g.Sequence(*prog.steps), result, t, counters.sync)]
    return counters.result


def cycleStamp(graph: g.Graph, prog: g.Sequence, tile: int | Sequence[int] = 0, *sync_and_name: Any) -> g.Tensor:
    """Append a reading of the cycle counters of tiles; arguments and result as of :func:`cycleCount`.

    Raises:
        ControlProgramError: The program to append to is no sequence.
    """
    expect(prog, g.Sequence, "cycleStamp is appended to a sequence", error=ControlProgramError)
    counters = _Counters(graph, tile, sync_and_name, "cycle_stamp")
    for t, result in counters:
        prog.add(g.CycleStamp(result, t, counters.sync))
    return counters.result


class _Counters:
    """A counter on each of some tiles; and the kind of barrier and name among what follows the tiles."""

    def __init__(self, graph: g.Graph, tile: Any, sync_and_name: Sequence[Any], default: str) -> None:
        kinds = [item for item in sync_and_name if isinstance(item, SyncType) or item in SYNC_KINDS]
        name = name_of([item for item in sync_and_name if item not in kinds], default)
        self.sync = sync_kind(kinds[0] if kinds else SyncType.INTERNAL)
        self.tiles = dimensions(tile, "tiles")
        self.counters = [_counter(graph, t, name) for t in self.tiles]
        self.is_one = not isinstance(tile, Sequence)

    def __iter__(self) -> Iterator[tuple[int, g.Tensor]]:
        return zip(self.tiles, self.counters, strict=True)

    @property
    def result(self) -> g.Tensor:
        """The counter, or all of them below each other."""
        return self.counters[0] if self.is_one else g.concat([c.expand_dims(0) for c in self.counters], 0)


class FloatingPointBehaviour:
    """Poplar's switches: ``inv``, ``div0``, ``oflo`` stop the program, ``esr`` rounds at random, ``nanoo`` overflows to
    NaN."""

    NAMES = ("inv", "div0", "oflo", "esr", "nanoo")

    def __init__(
        self, inv: bool = True, div0: bool = True, oflo: bool = True, esr: bool = True, nanoo: bool = True
    ) -> None:
        self.inv, self.div0, self.oflo, self.esr, self.nanoo = inv, div0, oflo, esr, nanoo

    def fields(self) -> dict[str, bool]:
        """Fields of the behaviour by the graph's names."""
        return {ours: bool(getattr(self, theirs)) for theirs, ours in _FIELDS.items()}


_FIELDS = {
    "inv": "invalid",
    "div0": "divide_by_zero",
    "oflo": "overflow",
    "esr": "stochastic_rounding",
    "nanoo": "nan_on_overflow",
}


def setFloatingPointBehaviour(
    graph: g.Graph, prog: g.Sequence, behaviour: FloatingPointBehaviour, name: Any = ""
) -> None:
    """Append a setting of all floating-point switches, on all tiles."""
    prog.add(g.SetFloatingPointBehaviour(**behaviour.fields()))


def setStochasticRounding(graph: g.Graph, prog: g.Sequence, enable: bool, name: Any = "") -> None:
    """Append a switch of stochastic rounding, on all tiles."""
    prog.add(g.SetFloatingPointBehaviour(stochastic_rounding=bool(enable)))


def getAndModifyFloatingPointBehaviour(
    graph: g.Graph,
    prog: g.Sequence,
    clear: FloatingPointBehaviour,
    set: FloatingPointBehaviour,
    name: Any = "",
) -> FloatingPointBehaviour:
    """Append a change of floating-point switches: those true in ``clear`` go off, then those true in ``set`` go on.

    Returns:
        The behaviour before, for :func:`resetFloatingPointBehaviour`: what this sequence has set so far, on top of how
        a program starts. Poplar reads it from the machine, so it also sees what was set outside the sequence.
    """
    before = _behaviour_after(prog)
    after = FloatingPointBehaviour(
        **{n: (getattr(before, n) and not getattr(clear, n)) or getattr(set, n) for n in FloatingPointBehaviour.NAMES}
    )
    setFloatingPointBehaviour(graph, prog, after)
    return before


def resetFloatingPointBehaviour(
    graph: g.Graph, prog: g.Sequence, behaviour: FloatingPointBehaviour, name: Any = ""
) -> None:
    """Append a return to a behaviour that :func:`getAndModifyFloatingPointBehaviour` gave."""
    setFloatingPointBehaviour(graph, prog, behaviour)


def getHwSeeds(graph: g.Graph, prog: g.Sequence, name: Any = "") -> g.Tensor:
    """Append a reading of the random seeds of all workers: u32[tiles, workers, 4], each row on its tile."""
    shape = (graph.num_tiles, graph.system.ipu.num_workers, 4)
    seeds = graph.variable("u32", shape, name_of(name, "hw_seeds")).map_rows(range(graph.num_tiles))
    prog.add(g.GetHwSeeds(seeds))
    return seeds


def setHwSeeds(graph: g.Graph, hwSeeds: g.Tensor, prog: g.Sequence, name: Any = "") -> None:
    """Append a setting of the random seeds of all workers from u32[tiles, workers, 4].

    Raises:
        ControlProgramError: The seeds have another shape or type.
    """
    shape = (graph.num_tiles, graph.system.ipu.num_workers, 4)
    if hwSeeds.shape != shape or hwSeeds.dtype.name != "u32":
        raise ControlProgramError(f"hardware seeds are u32{list(shape)}, not {hwSeeds!r}")
    prog.add(g.SetHwSeeds(hwSeeds))


def _behaviour_after(prog: g.Sequence) -> FloatingPointBehaviour:
    """Behaviour that a sequence has set so far, on top of a program's initial one."""
    known = {ours: bool(getattr(g.FloatingPointBehaviour(), ours)) for ours in _FIELDS.values()}
    for step in prog:
        if isinstance(step, g.SetFloatingPointBehaviour):
            known.update(step.fields)
    return FloatingPointBehaviour(**{theirs: known[ours] for theirs, ours in _FIELDS.items()})


def _counter(graph: g.Graph, tile: int, name: str) -> g.Tensor:
    return graph.variable("u32", (2,), name).map(tile)
