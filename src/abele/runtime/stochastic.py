"""Supersteps whose results in narrow floats are rounded up or down at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from abele.codelet import CodeletDef, CompiledCodelet
from abele.errors import ControlProgramError
from abele.runtime.arena import address_of, aligned_block
from abele.runtime.bytecode import Op
from abele.runtime.effects import edge_elements
from abele.runtime.emitter import Emitter
from abele.runtime.interval_set import IntervalSet
from abele.runtime.leaf import Leaf, Phase
from abele.runtime.placed import PlacedGroup
from abele.runtime.seeds import Seeds, group_offset

if TYPE_CHECKING:
    from abele.runtime.supersteps import Ready


@dataclass(frozen=True, eq=False)
class _Draw:
    """A leaf that rounds at random, for the vertices of one replica.

    Attributes:
        leaf: The leaf.
        replica: Whose seeds it uses.
        offset: What tells its random numbers from those of other groups.
    """

    leaf: Leaf
    replica: int
    offset: int


@dataclass(eq=False)
class StochasticRuns:
    """Runs vertices with random rounding.

    A superstep leaves each replica's state one step further. A vertex draws from the state, its group and its number,
    so that replicas with equal seeds round alike, on any number of threads.

    Attributes:
        compile: Gives the native code of a codelet.
    """

    compile: Callable[[CodeletDef], CompiledCodelet]
    _draws: dict[PlacedGroup, list[_Draw]] = field(default_factory=dict)

    def emit(self, ready: Ready, emitter: Emitter, seeds: Seeds) -> None:
        """Append the phase that runs the vertices of a compute set."""
        draws: list[_Draw] = []
        others: list[Leaf] = []
        for placed, leaf in zip(ready.groups, ready.run, strict=True):
            if any(f.direction in ("out", "inout") and f.type.is_narrow for f in placed.group.codelet.fields):
                draws += self._draws.setdefault(placed, list(self._drawing(placed, seeds.replicas)))
            else:
                others.append(leaf)
        emitter.fence()
        for draw in draws:
            state = seeds.address(draw.replica)
            emitter.assembler.emit(Op.ELAPSED, draw.leaf.seed, state, seeds.zero, draw.offset)
        emitter.expect_barrier()
        phase: Phase = (*(draw.leaf for draw in draws), *others)
        emitter.phase(phase)
        for replica in range(seeds.replicas):
            emitter.tally(seeds.address(replica), seeds.step)

    def _drawing(self, placed: PlacedGroup, replicas: int) -> Iterator[_Draw]:
        group = placed.group
        run = getattr(self.compile(group.codelet), "run_stochastic", None)
        if run is None:
            raise ControlProgramError(
                f"the results of {group.codelet.name} cannot be rounded at random: it has no code for it",
                at=group.debug.location,
                because=f"compute set {placed.compute_set.name!r} runs while stochastic rounding may be on",
            )
        outputs = [f.name for f in group.codelet.fields if f.direction in ("out", "inout")]
        writes = IntervalSet.union(edge_elements(group.edges[name]) for name in outputs)
        offset = group_offset(placed.compute_set.id, placed.position)
        for replica in range(replicas):
            word = aligned_block(8)
            yield _Draw(
                Leaf(
                    f"{group.num} × {group.codelet.name}, rounded at random",
                    run,
                    group.num,
                    columns_of(placed, replica),
                    placed.tables.work_bytes // replicas,
                    writes,
                    seed=address_of(word),
                    keep=(placed, word),
                ),
                replica,
                offset,
            )


def columns_of(placed: PlacedGroup, replica: int) -> tuple[int, ...]:
    """Addresses of a group's tables from the first vertex of one replica on."""
    columns, first = iter(placed.tables.columns), replica * placed.group.num
    found: list[int] = []
    for definition in placed.group.codelet.fields:
        begin = next(columns)
        found.append(address_of(begin) + first * begin.itemsize)
        if definition.rank == 2:
            # Rows are listed for all replicas; where a vertex's rows begin counts from the first of all.
            found += [address_of(next(columns)), address_of(next(columns))]
        elif definition.rank == 1:
            lengths = next(columns)
            found.append(address_of(lengths) + first * lengths.itemsize)
    return tuple(found) if placed.tables.sink is None else (*found, address_of(placed.tables.sink.column))
