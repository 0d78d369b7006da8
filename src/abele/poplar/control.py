"""Poplar's functions that append timers, floating-point modes and random seeds to a sequence."""

from __future__ import annotations

from typing import Any

from abele import graph as g
from abele.errors import ControlProgramError
from abele.graph.debug_context import name_of
from abele.poplar.program import SyncType, sync_kind


def cycleCount(
    graph: g.Graph, prog: g.Sequence, tile: int = 0, syncType: SyncType | str = SyncType.INTERNAL, name: Any = ""
) -> g.Tensor:
    """Time a sequence on one tile: its steps so far become the body of a timer.

    Returns:
        u32[2], low word first.
    """
    result = _counter(graph, tile, name_of(name, "cycle_count"))
    body = g.Sequence(*prog.steps)
    prog.steps[:] = [g.CycleCount(body, result, tile, sync_kind(syncType))]
    return result


def cycleStamp(
    graph: g.Graph, prog: g.Sequence, tile: int = 0, syncType: SyncType | str = SyncType.INTERNAL, name: Any = ""
) -> g.Tensor:
    """Append a reading of a tile's cycle counter; u32[2], low word first."""
    result = _counter(graph, tile, name_of(name, "cycle_stamp"))
    prog.add(g.CycleStamp(result, tile, sync_kind(syncType)))
    return result


class FloatingPointBehaviour:
    """Poplar's switches: ``inv``, ``div0``, ``oflo`` stop the program, ``esr`` rounds at random, ``nanoo`` overflows to
    NaN."""

    NAMES = ("inv", "div0", "oflo", "esr", "nanoo")

    def __init__(
        self, inv: bool = True, div0: bool = True, oflo: bool = True, esr: bool = True, nanoo: bool = True
    ) -> None:
        self.inv, self.div0, self.oflo, self.esr, self.nanoo = inv, div0, oflo, esr, nanoo

    def fields(self) -> dict[str, bool]:
        """The same by the graph's names."""
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
    """What a sequence has set so far, on top of how a program starts."""
    known = {ours: bool(getattr(g.FloatingPointBehaviour(), ours)) for ours in _FIELDS.values()}
    for step in prog:
        if isinstance(step, g.SetFloatingPointBehaviour):
            known.update(step.fields)
    return FloatingPointBehaviour(**{theirs: known[ours] for theirs, ours in _FIELDS.items()})


def _counter(graph: g.Graph, tile: int, name: str) -> g.Tensor:
    return graph.variable("u32", (2,), name).map(tile)
