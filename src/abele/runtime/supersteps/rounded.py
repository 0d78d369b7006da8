"""Supersteps whose results in narrow floats are rounded at random, or held at the largest number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from abele.codelet import CodeletDef, CompiledCodelet
from abele.codelet.rounding import Rounding
from abele.errors import ControlProgramError
from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.leaf import Leaf, Phase
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.runtime.supersteps.seeds import Seeds, group_offset

if TYPE_CHECKING:
    from abele.runtime.supersteps.native_supersteps import Ready


@dataclass(frozen=True, eq=False)
class _Draw:
    """A leaf that rounds at random, for the vertices of one replica.

    Attributes:
        leaf: The leaf.
        replica: Replica whose seeds it uses.
        offset: Number that tells its random numbers from those of other groups.
    """

    leaf: Leaf
    replica: int
    offset: int


@dataclass(eq=False)
class RoundedRuns:
    """Runs vertices whose results are not simply rounded to nearest.

    A superstep that rounds at random leaves each replica's state one step further. A vertex draws from the state, its
    group and its number, so that replicas with equal seeds round alike, on any number of threads.

    Attributes:
        compile: Gives the native code of a codelet.
    """

    compile: Callable[[CodeletDef], CompiledCodelet]
    _draws: dict[tuple[PlacedGroup, Rounding], list[_Draw]] = field(default_factory=dict)
    _leaves: dict[PlacedGroup, Leaf] = field(default_factory=dict)

    def emit(self, ready: Ready, emitter: Emitter, rounding: Rounding, seeds: Seeds) -> None:
        """Append the phase that runs the vertices of a compute set."""
        pairs = list(zip(ready.groups, ready.run, strict=True))
        others = [leaf for placed, leaf in pairs if not _stores_narrow(placed)]
        narrow = [(placed, leaf) for placed, leaf in pairs if _stores_narrow(placed)]
        if not rounding.is_random:
            emitter.phase((*(self._saturating(placed, leaf) for placed, leaf in narrow), *others))
            return
        draws = [draw for placed, leaf in narrow for draw in self._drawing(placed, leaf, rounding)]
        # The words that leaves draw from are set by thread 0, so all threads must be past the last use of them, and
        # must not begin before they are set.
        emitter.fence()
        for draw in draws:
            state = seeds.address(draw.replica)
            emitter.assembler.emit(Opcode.ELAPSED, draw.leaf.seed, state, seeds.zero, draw.offset)
        emitter.expect_barrier()
        phase: Phase = (*(draw.leaf for draw in draws), *others)
        emitter.phase(phase)
        # The state moves on by a fixed step, so that what is drawn depends on the number of the superstep and not on
        # threads.
        for replica in range(seeds.replicas):
            emitter.tally(seeds.address(replica), seeds.step)

    def _saturating(self, placed: PlacedGroup, plain: Leaf) -> Leaf:
        """Leaf that runs a group with results held at the largest number."""
        if placed not in self._leaves:
            rounding = Rounding(saturates=True)
            address, name = self._address(placed, rounding), f"{plain.name}, {rounding}"
            self._leaves[placed] = Leaf(
                name, address, placed.num, plain.args, plain.work_bytes, plain.writes, keep=plain, cuts=plain.cuts
            )
        return self._leaves[placed]

    def _drawing(self, placed: PlacedGroup, plain: Leaf, rounding: Rounding) -> list[_Draw]:
        """Leaves that run a group with results rounded at random, one per replica."""
        key = placed, rounding
        if key not in self._draws:
            self._draws[key] = list(self._replicas(placed, plain, rounding))
        return self._draws[key]

    def _replicas(self, placed: PlacedGroup, plain: Leaf, rounding: Rounding) -> Iterator[_Draw]:
        address, group = self._address(placed, rounding), placed.group
        offset = group_offset(placed.compute_set.id, placed.position)
        for replica in range(placed.replicas):
            word = aligned_block(8)
            leaf = Leaf(
                f"{group.num} × {group.codelet.name}, {rounding}",
                address,
                group.num,
                columns_of(placed, replica),
                placed.tables.work_bytes // placed.replicas,
                plain.writes,
                seed=address_of(word),
                keep=(plain, word),
            )
            yield _Draw(leaf, replica, offset)

    def _address(self, placed: PlacedGroup, rounding: Rounding) -> int:
        code = self.compile(placed.group.codelet)
        if code.run_stochastic is None:
            raise ControlProgramError(
                f"the results of {placed.group.codelet.name} cannot be {rounding}: it has no code for it",
                at=placed.group.debug.location,
                because=f"compute set {placed.compute_set.name!r} runs while the behaviour may ask for it",
                remedy="write the codelet in Python, or switch the behaviour back before this compute set",
            )
        return code.run_stochastic if rounding == Rounding(is_random=True) else code.run_rounded(rounding)


def _stores_narrow(placed: PlacedGroup) -> bool:
    fields = placed.group.codelet.fields
    return any(f.direction in ("out", "inout") and f.type.is_narrow for f in fields)


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
