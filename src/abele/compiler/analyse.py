"""Analysis: every distinct superstep of a program checked, planned and costed, one at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from abele.arrays import Int32
from abele.compiler.access import Access, compute_set_access, node_access
from abele.compiler.cycles import compute_cycles
from abele.compiler.durations import host_cycles
from abele.compiler.equal_steps import Analysed, EqualStep, EqualSteps, relocated
from abele.compiler.exchange import ExchangePlan, plan_copy, plan_exchange
from abele.compiler.footprint import (
    ExchangeProgram,
    code_bytes_of,
    control_code_bytes,
    exchange_code_bytes,
    stack_bytes_of,
    vertex_state_bytes,
)
from abele.compiler.half_steps import stays_of
from abele.compiler.layout import Layout, TilePieces
from abele.compiler.lower import Lowered, Step
from abele.compiler.memory_elements import ElementDemands, check_constraints
from abele.compiler.nodes.lookup import meaning_of
from abele.compiler.overlays import overlays_of
from abele.compiler.race import Race, VertexAccess, collect_writes, find_race
from abele.compiler.region_tiles import Residence
from abele.compiler.superstep import Superstep
from abele.compiler.sync_groups import SyncGroups
from abele.compiler.tile_vector import TileSet, TileTotal, TileVector, added
from abele.compiler.timeline import STREAMS
from abele.compiler.uses import field_uses
from abele.compiler.validate import Validator, check_group, check_same_graph
from abele.errors import DataRaceError
from abele.graph.compute_set import ComputeSet
from abele.graph.graph import Graph
from abele.graph.intervals import distinct
from abele.graph.program import Copy, Program
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.graph.vertices import VertexGroup
from abele.machine import System

if TYPE_CHECKING:
    from abele.codelet import CodeletDef


# Report of a race: both vertices, both fields, the elements, and the remedy.


def race_error(race: Race, compute_set: ComputeSet) -> DataRaceError:
    """The error that describes ``race`` in ``compute_set``."""
    graph = compute_set.graph
    begin, end = max(race.writer.begin, race.other.begin), min(race.writer.end, race.other.end)
    variable, element = graph.locate(begin)
    end = min(end - begin + element, variable.size)
    use = race.writer.use
    if race.writer.vertex == race.other.vertex:
        return _twice(race, compute_set, variable, element, end)
    doing = "read" if race.other_reads else "written to"
    where = use.group.origin_of(race.writer.vertex - use.first_vertex).location
    return DataRaceError(
        f"Field {use.group.codelet.name}.{use.field.name} writes to elements [{element}:{end}) of variable "
        f"{variable.name!r} that are {doing} elsewhere in same compute set",
        at=f"{where + ' · ' if where else ''}compute set {compute_set.name!r}, {_box(variable, element, end)}",
        because=f"{_who(race.writer)} writes them\n{_who(race.other)} {'reads' if race.other_reads else 'writes'} them",
        remedy=_remedy(race),
    )


def _twice(race: Race, compute_set: ComputeSet, variable: Variable, element: int, end: int) -> DataRaceError:
    """A vertex two of whose fields write the same elements."""
    names = [access.use.field.name for access in (race.other, race.writer)]
    codelet = race.writer.use.group.codelet.name
    fields = f"fields {' and '.join(names)}" if names[0] != names[1] else f"two rows of field {names[0]}"
    return DataRaceError(
        f"{fields} of one {codelet} both write elements [{element}:{end}) of variable {variable.name!r}",
        at=f"compute set {compute_set.name!r}, {_box(variable, element, end)}",
        because=_who(race.writer).removesuffix(",") + ", has both",
        remedy="connect them to different elements, or use one InOut field",
    )


def _who(access: VertexAccess) -> str:
    group = access.use.group
    number = access.vertex - access.use.first_vertex
    origin = group.origin_of(number)
    made = f", made at {origin.location}" if origin.file else ""
    name, field = group.codelet.name, access.use.field.name
    return f"vertex {number} of {group.num} × {name} on tile {int(group.tile[number])}, field {field}{made},"


def _box(variable: Variable, begin: int, end: int) -> str:
    """The interval in the variable's own coordinates."""
    if not variable.shape:
        return f"scalar {variable.name!r}"
    first, last = (", ".join(map(str, variable.coordinates(e))) for e in (begin, end - 1))
    name = variable.name.rsplit("/", 1)[-1]
    return f"{name}[{first}]" if first == last else f"{name}[{first}] to {name}[{last}]"


def _remedy(race: Race) -> str:
    if race.other_reads:
        return "move the reading vertex to a later compute set, or let it read a copy made before"
    return "give each vertex elements of its own and combine them in a second compute set"


_CODE_KINDS = {
    "vertex_state": np.add,
    "vertex_code": np.add,
    "exchange_code": np.add,
    "control_code": np.add,
    "stacks": np.maximum,
    "stream_buffers": np.maximum,
}
"""Memory categories that steps bring with them, and whether these need theirs as well or share the largest."""


class Analysis:
    """Supersteps of one compilation, and the code that they leave on each tile.

    Attributes:
        layout: Tile and address of the graph's elements.
        groups: Tiles that advance on their own.
        code: Bytes of vertex state and of code on each tile so far, by memory category.
        placement: Demands of fields on the place of variables.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.system = graph.system
        self.layout = Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)
        self.groups = SyncGroups.of(graph)
        self.code = {kind: TileTotal(graph.num_tiles, combine) for kind, combine in _CODE_KINDS.items()}
        self.placement = ElementDemands(self.layout, self.system.ipu.tile.alignment_bytes)
        self._equal_steps = EqualSteps(graph, self.layout)
        self._validator = Validator(graph)
        self._tiles_of: dict[CodeletDef, list[tuple[int, Int32]]] = {}
        self._with_copies: dict[int, Analysed] = {}
        self._equal_to: dict[int, tuple[Superstep, int]] = {}

    def run(self, lowered: Lowered, progress: Callable[[str, float], None]) -> tuple[Superstep, ...]:
        """The supersteps of a program, by their numbers; counts the code that they leave on the tiles.

        Raises:
            TileMappingError: A variable in use has no complete mapping.
            GraphConnectionError: A vertex field is not connected as its codelet says.
            ConstantWriteError: A step writes a constant.
            MemoryElementError: Fields cannot lie where their codelet wants them.
            DataRaceError: Vertices of a compute set race.
        """
        found = []
        for step in lowered.distinct:
            check_same_graph(step.node, self.graph)
            found.append(meaning_of(step.node).analyse(self, step))
            progress("supersteps", len(found) / len(lowered.distinct))
        self._add_control_code(lowered.steps, found)
        self._add_code_of_steps(found)
        self._add_vertex_code(found)
        return tuple(found)

    def meeting(self, node: Program) -> tuple[int, ...]:
        """The sync groups that meet at a stream copy.

        Raises:
            ControlProgramError: Its view is of another graph.
        """
        if len(self.groups) == 1:
            return self.groups.all
        check_same_graph(node, self.graph)
        return self.groups.at_host(self._groups_of(node.reads() + node.writes()))

    def code_bytes(self) -> dict[str, TileVector]:
        """Bytes of vertex state, code, stacks and buffers on each tile, by memory category."""
        return {kind: total.vector() for kind, total in self.code.items()}

    # --- what the meanings of nodes are made of ----------------------------------------------------------------------

    def access(self, step: Step) -> Access:
        """Variables that a step touches by its node's declaration, checked."""
        return self._checked(node_access(step.node, self.layout), step, _user(step))

    @property
    def tiles_per_ipu(self) -> int:
        """Tiles of one IPU."""
        return self.system.ipu.num_tiles

    def _checked(self, access: Access, step: Step, user: str) -> Access:
        """An access to variables that have their place, and are no constants where it writes."""
        self._validator.check_placed(access.touched.tolist(), user)
        self._validator.check_not_constant(access.writes.tolist(), user, step.node.debug)
        return access

    def compute_set(self, step: Step, compute_set: ComputeSet) -> Superstep:
        """Analysis of the vertices of a compute set, or that of an equal one that is known."""
        where = f"compute set {compute_set.name!r}"
        equal = self._copied(step, compute_set) or self._compared(step, compute_set, where)
        if equal is None:
            found = self._first(step, compute_set, compute_set.groups)
            self._remembered(found)
        else:
            found = Analysed((), self._following(equal, step, where))
        if compute_set.has_copies:
            self._with_copies[compute_set.id] = found
        return found.superstep

    def _copied(self, step: Step, compute_set: ComputeSet) -> EqualStep | None:
        """The step that a compute set is a copy of, if that was analysed and variables still lie as they did.

        Vertices are looked at only where they ask something of the place of their variables.
        """
        copied = compute_set.copied
        first = None if copied is None else self._with_copies.get(copied.source.id)
        if copied is None or first is None:
            return None
        shift = copied.by.tiles
        equal = self._equal_steps.find_copied(first, copied.by.variables, shift)
        if equal is None:
            return None
        if self.placement.concerns(copied.groups):
            self.placement.add(field_uses(compute_set.groups))
        if shift:
            for group in copied.groups:
                self._tiles_of.setdefault(group.codelet, []).append((step.superstep, group.tile + np.int32(shift)))
        return equal

    def _compared(self, step: Step, compute_set: ComputeSet, where: str) -> EqualStep | None:
        """An analysed step with the same vertices, if there is one."""
        groups = compute_set.groups
        for group in groups:
            check_group(group, self.graph, where)
            self._tiles_of.setdefault(group.codelet, []).append((step.superstep, group.tile))
        # What fields ask of memory depends on the variables, so equal steps are asked, too.
        self.placement.add(field_uses(groups))
        return self._equal_steps.find(groups)

    def _remembered(self, first: Analysed) -> Superstep:
        """Analysis of a step, kept for those that equal it."""
        self._equal_steps.add(first)
        return first.superstep

    def _following(self, equal: EqualStep, step: Step, user: str) -> Superstep:
        """Analysis of a step from an equal one that is known."""
        self._checked(equal.access, step, user)
        by = equal.ipus * self.tiles_per_ipu
        self._equal_to[step.superstep] = (equal.first.superstep, by)
        return relocated(equal, step, self.tiles_per_ipu)

    def copy(self, step: Step, node: Copy) -> Superstep:
        """Analysis of a copy between two views, or that of an equal one that is known."""
        equal = self._equal_steps.find_copy(node)
        if equal is not None:
            return self._following(equal, step, step.name)
        assert isinstance(node.source, Tensor)
        assert isinstance(node.destination, Tensor)
        access = self._checked(node_access(node, self.layout), step, step.name)
        plan = plan_copy(node.source, node.destination, self.layout, self.tiles_per_ipu)
        code = self._exchange_code(plan)
        found = Superstep.of(step, access).moving(plan, self.groups).with_exchange_code(code)
        return self._remembered(Analysed((), found))

    def _first(self, step: Step, compute_set: ComputeSet, groups: Sequence[VertexGroup]) -> Analysed:
        """Analyse a compute set that no other is known to equal."""
        where, uses = f"compute set {compute_set.name!r}", field_uses(groups)
        check_constraints(uses, self.graph, where)
        writes = collect_writes(uses)
        access = self._checked(compute_set_access(uses, writes, self.layout), step, where)
        race = find_race(uses, writes)
        if race is not None:
            raise race_error(race, compute_set)
        del writes
        known: dict[int, Residence] = {}
        plan = plan_exchange(uses, self.layout, self.tiles_per_ipu, known=known)
        access = replace(
            access,
            overlays=overlays_of(uses, known, access, self.layout),
            stays={} if plan.is_still else stays_of(uses, known, access, self.layout),
        )
        compute, meeting = compute_cycles(groups, self.system.ipu, self.graph.num_tiles), self._groups_at(groups)
        found = replace(
            Superstep.of(step, access).moving(plan, self.groups),
            compute=compute,
            data_dependent=compute.estimated,
            meets=(meeting,),
            num_tiles=self.groups.num_tiles(meeting),
            num_vertices=sum(g.num for g in groups),
            num_edges=sum(len(u.edge.index) for u in uses),
            codelets=tuple(dict.fromkeys(g.codelet for g in groups)),
            vertex_state=vertex_state_bytes(groups, self.system.ipu, self.graph.num_tiles).packed(),
        )
        return Analysed(tuple(groups), found.with_exchange_code(self._exchange_code(plan)))

    def moving(self, superstep: Superstep, plan: ExchangePlan, linked: System | None = None) -> Superstep:
        """A superstep that moves data between tiles, besides; bytes between IPUs cross the links of ``linked``."""
        return superstep.moving(plan, self.groups, linked).with_exchange_code(self._exchange_code(plan))

    def _exchange_code(self, plan: ExchangePlan) -> TileVector:
        return exchange_code_bytes(plan, self.system.ipu.exchange, self.graph.num_tiles).packed()

    def meeting_host(
        self, step: Step, tensors: Sequence[Tensor], *, rendezvous: int = 1, alone: bool = False
    ) -> Superstep:
        """Superstep in which the sync groups of some tensors exchange them with the host.

        Args:
            step: The step.
            tensors: Tensors that are exchanged.
            rendezvous: Times that they meet the host.
            alone: True if the first replica exchanges its own, while the others meet the host too.
        """
        holding = self._groups_of(tensors)
        met = self._outside(step, tensors, self.groups.at_host(holding), rendezvous)
        cycles = self.host_cycles(tensors, rendezvous=False, alone=alone)
        return replace(met, links=self.groups.host_links(holding), link_cycles=cycles)

    def meeting_memory(self, step: Step, tensor: Tensor) -> Superstep:
        """Superstep in which the tiles of a tensor exchange it with streaming memory, each IPU for itself."""
        holding = self._groups_of([tensor])
        return replace(self._outside(step, [tensor], holding, 1), links=self.groups.drams(holding))

    def _outside(self, step: Step, tensors: Sequence[Tensor], meeting: tuple[int, ...], rendezvous: int) -> Superstep:
        return replace(
            Superstep.of(step, self.access(step)),
            host_bytes=sum(t.bytes for t in tensors),
            meets=(meeting,),
            sync_cycles=rendezvous * self.groups.sync_cycles(meeting),
        )

    def _groups_at(self, vertices: Sequence[VertexGroup]) -> tuple[int, ...]:
        """The sync groups whose tiles run some vertices; all where there are none."""
        return self.groups.holding([g.tile for g in vertices]) or self.groups.all

    def _groups_of(self, tensors: Sequence[Tensor]) -> tuple[int, ...]:
        """The sync groups that hold part of some views; all where there are none."""
        if len(self.groups) == 1:
            return (0,)
        return self.groups.holding([self._tiles_holding(t) for t in tensors]) or self.groups.all

    def _tiles_holding(self, tensor: Tensor) -> Int32:
        """Tile of each piece of a view, int32[k]."""
        return self._pieces_of(tensor).tile

    def _pieces_of(self, tensor: Tensor) -> TilePieces:
        """Pieces of a view on tiles, in any order: those of a whole variable are the fewest in its own."""
        if len(tensor.variables) == 1 and not tensor.contains_aliases:
            (variable,) = tensor.variables
            if tensor.size == variable.size:
                return self.layout.cut(np.array([variable.base]), np.array([variable.size]))
        return self.layout.cut(*tensor.intervals())

    def host_cycles(self, tensors: Sequence[Tensor], *, rendezvous: bool = True, alone: bool = False) -> int:
        """Cycles of one transfer from or to the host, in which all replicas take part, or the first ``alone``."""
        replicas, num_bytes = 1 if alone else self.graph.replicas, sum(t.bytes for t in tensors)
        num_ipus = self.ipus_of(tensors)
        return host_cycles(num_bytes * replicas, num_ipus * replicas, self.graph.whole_system, rendezvous=rendezvous)

    def add_buffers(self, tensors: Sequence[Tensor], *, inward: bool) -> None:
        """Room on the tiles for packets from or to outside the chip; all transfers share it."""
        host = self.system.host
        packet = host.packet_to_tile_bytes if inward else host.packet_to_host_bytes
        held = []
        for tensor in tensors:
            pieces = self._pieces_of(tensor)
            held.append(TileVector.sum_of(pieces.tile, pieces.length * tensor.dtype.bytes, self.graph.num_tiles))
        here = added(held, self.graph.num_tiles)
        self.code["stream_buffers"].add(TileVector(here.tile_set, np.minimum(here.values, packet)))

    def ipus_of(self, tensors: Sequence[Tensor]) -> int:
        """IPUs that hold part of some views."""
        if self.system.num_ipus == 1 or not tensors:
            return 1
        tiles = np.concatenate([self._tiles_holding(t) for t in tensors])
        return max(1, len(distinct(tiles.astype(np.int64) // self.tiles_per_ipu)))

    def _add_control_code(self, steps: Sequence[Step], supersteps: Sequence[Superstep]) -> None:
        """Count the control code of a program node once, however often a function that holds it is called."""
        superstep_of: dict[int, int] = {}
        for step in steps:
            # Control code is per node: a function that is called ten times has its steps once.
            superstep_of.setdefault(id(step.node), step.superstep)
        alike: dict[Hashable, tuple[Superstep, Counter[int]]] = {}
        for number, nodes in Counter(superstep_of.values()).items():
            like, tiles = self._equal_to.get(number, (supersteps[number], 0))
            # Equal steps share what keeps their tiles busy.
            moving = *map(id, (like.before, like.gather, like.compute, like.scatter, like.after)), like.everywhere
            key = *moving, like.is_between_replicas
            alike.setdefault(key, (like, Counter()))[1][tiles] += nodes
        for like, nodes_at in alike.values():
            here = control_code_bytes(*like.control_by_tile(self.graph.num_tiles), self.system.ipu).packed()
            for tiles, nodes in nodes_at.items():
                self.code["control_code"].add(here.shifted(tiles), nodes)

    def _add_code_of_steps(self, supersteps: list[Superstep]) -> None:
        """Count vertex state, that of equal steps in one go, and exchange code, one for equal steps."""
        states, programs = dict[Hashable, tuple[TileVector, int]](), dict[Hashable, ExchangeProgram]()
        for superstep in supersteps:
            # Equal steps share the numbers, and further on in the machine have tiles of their own.
            if superstep.vertex_state is not None:
                key = id(superstep.vertex_state.values), superstep.vertex_state.first_tile
                states[key] = superstep.vertex_state, states[key][1] + 1 if key in states else 1
            if superstep.exchange_code is not None:
                key = id(superstep.exchange_code.values), superstep.exchange_code.first_tile
                bases = len(superstep.access.touched) + 1
                program = programs.setdefault(key, ExchangeProgram(superstep.exchange_code, bases, []))
                program.supersteps.append(superstep.index)
        for state, count in states.values():
            self.code["vertex_state"].add(state, count)
        placed = dict[Hashable, tuple[int, tuple[TileVector, TileVector]]]()
        for program in programs.values():
            users, begin = len(program.supersteps), program.code.first_tile
            # So do programs that as many steps share on several IPUs.
            which = id(program.code.values), users, program.num_bases
            base, vectors = placed.setdefault(which, (begin, program.placed(self.system.ipu.exchange)))
            first, further = (vector.shifted(begin - base) for vector in vectors)
            self.code["exchange_code"].add(first)
            self.code["exchange_code"].add(further, users - 1)
            if users > 1:
                for number in program.supersteps:
                    code = first if number == program.supersteps[0] else further
                    supersteps[number] = replace(supersteps[number], exchange_code=code, exchange_code_users=users)

    def _add_vertex_code(self, supersteps: list[Superstep]) -> None:
        """Count each codelet once on every tile that runs it in some step: for the first superstep that does."""
        num_tiles, code = self.graph.num_tiles, dict[int, list[TileVector]]()
        for codelet, columns in self._tiles_of.items():
            tiles = TileSet.of([column for _, column in columns], num_tiles)
            user = np.full(len(tiles) + 1, -1, dtype=np.int64)
            for number, column in reversed(columns):
                # Set, not added: a codelet that runs in many steps is on the tile once.
                user[tiles.positions(column)] = number
            here, size = (user >= 0).astype(np.int64), code_bytes_of(codelet)
            self.code["vertex_code"].add(TileVector(tiles, here), size)
            self.code["stacks"].add(TileVector(tiles, here * stack_bytes_of(codelet, self.system.ipu)))
            for number in distinct(user[user >= 0]).tolist():
                code.setdefault(number, []).append(TileVector(tiles, np.where(user == number, size, 0)).packed())
        for number, parts in code.items():
            supersteps[number] = replace(supersteps[number], vertex_code=added(parts, num_tiles).packed())


def _user(step: Step) -> str:
    """Name of a step in errors."""
    return f"stream {step.name!r}" if step.kind in STREAMS else step.name
