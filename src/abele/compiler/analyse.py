"""Analysis: every distinct superstep of a program checked, planned and costed, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from abele.compiler.access import (
    Access,
    compute_set_access,
    copy_access,
    read_access,
    undef_access,
)
from abele.compiler.cycles import compute_cycles
from abele.compiler.durations import host_cycles
from abele.compiler.exchange import ExchangePlan, plan_broadcast, plan_copy, plan_exchange
from abele.compiler.footprint import code_bytes_of, control_code_bytes, exchange_code_bytes, vertex_state_bytes
from abele.compiler.layout import Layout
from abele.compiler.lower import Lowered, Step
from abele.compiler.race import collect_writes, find_race
from abele.compiler.race_error import race_error
from abele.compiler.superstep import Superstep
from abele.compiler.uses import field_uses
from abele.compiler.validate import Validator, check_group
from abele.graph.compute_set import ComputeSet
from abele.graph.graph import Graph
from abele.graph.intervals import Int64, distinct
from abele.graph.program import Copy, Execute, If, PrintTensor, RepeatWhile, WriteUndef
from abele.graph.stream import Stream
from abele.graph.tensor import Tensor

if TYPE_CHECKING:
    from abele.codelet import CodeletDef


class Analysis:
    """Supersteps of one compilation, and the code that they leave on each tile.

    Attributes:
        layout: Where the graph's elements live.
        supersteps: The distinct supersteps, in order of first appearance.
        code: Bytes of vertex state and of code on each tile so far, int64[tiles], by memory category.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.system = graph.system
        self.layout = Layout.of(graph.interval_map(), graph.variables, graph.num_tiles)
        self.supersteps: list[Superstep] = []
        kinds = ("vertex_state", "vertex_code", "exchange_code", "control_code", "stream_buffers")
        self.code: dict[str, Int64] = {kind: self._zeros() for kind in kinds}
        self._validator = Validator(graph)
        self._known: dict[tuple[str, int, bool], int] = {}
        self._code_on: dict[CodeletDef, np.ndarray[tuple[int], np.dtype[np.bool_]]] = {}
        self._controlled: set[int] = set()

    def run(self, lowered: Lowered, progress: Callable[[str, float], None]) -> None:
        """Analyse all steps; sets ``superstep`` of each.

        Raises:
            TileMappingError: A variable in use has no complete mapping.
            GraphConnectionError: A vertex field is not connected as its codelet says.
            ConstantWriteError: A step writes a constant.
            DataRaceError: Vertices of a compute set race.
        """
        for number, step in enumerate(lowered.steps):
            step.superstep = self._superstep_of(step)
            self._add_control(step)
            progress("supersteps", (number + 1) / len(lowered.steps))
        self._add_vertex_code()

    def _zeros(self) -> Int64:
        return np.zeros(self.graph.num_tiles, dtype=np.int64)

    def _superstep_of(self, step: Step) -> int:
        node = step.node
        key = (step.kind, node.compute_set.id if isinstance(node, Execute) else id(node), step.joins_previous)
        if key not in self._known:
            superstep = Superstep(len(self.supersteps), step.kind, node, step.joins_previous)
            self._analyse(superstep, step)
            self._known[key] = superstep.index
            self.supersteps.append(superstep)
        return self._known[key]

    def _analyse(self, superstep: Superstep, step: Step) -> None:
        match step.node:
            case Execute(compute_set=compute_set):
                self._compute_set(superstep, compute_set)
            case Copy(source=Stream() as stream, destination=Tensor() as tensor):
                self._stream(superstep, stream, copy_access(None, tensor, self.layout), tensor)
            case Copy(source=Tensor() as tensor, destination=Stream() as stream):
                self._stream(superstep, stream, read_access(tensor, self.layout), tensor)
            case Copy(source=Tensor() as source, destination=Tensor() as destination):
                self._check(superstep, copy_access(source, destination, self.layout), step.name)
                self._set_exchange(superstep, plan_copy(source, destination, self.layout, self.system.ipu.num_tiles))
            case If(predicate=tensor) | RepeatWhile(predicate=tensor):
                self._check(superstep, read_access(tensor, self.layout), step.name)
                self._set_exchange(superstep, plan_broadcast(tensor, self.layout, self.system.ipu.num_tiles))
            case PrintTensor(tensor=tensor):
                self._check(superstep, read_access(tensor, self.layout), step.name)
                superstep.host_bytes = tensor.bytes
                superstep.host_cycles = host_cycles(tensor.bytes, self._ipus_of(tensor), self.system)
            case WriteUndef(tensor=tensor):
                superstep.access = undef_access(tensor, self.layout)

    def _check(self, superstep: Superstep, access: Access, user: str) -> None:
        self._validator.check_placed(access.touched.tolist(), user)
        self._validator.check_not_constant(access.writes.tolist(), user, superstep.node.debug)
        superstep.access = access

    def _compute_set(self, superstep: Superstep, compute_set: ComputeSet) -> None:
        where = f"compute set {compute_set.name!r}"
        groups = compute_set.groups
        for group in groups:
            check_group(group, self.graph.num_tiles, where)
        uses = field_uses(groups)
        writes = collect_writes(uses)
        self._check(superstep, compute_set_access(uses, writes, self.layout), where)
        race = find_race(uses, writes)
        if race is not None:
            raise race_error(race, compute_set)
        del writes
        self._set_exchange(superstep, plan_exchange(uses, self.layout, self.system.ipu.num_tiles))
        superstep.compute = compute_cycles(groups, self.system.ipu, self.graph.num_tiles)
        superstep.data_dependent = superstep.compute.estimated
        superstep.num_vertices = sum(g.num for g in groups)
        superstep.num_edges = sum(len(u.edge.index) for u in uses)
        superstep.codelets = tuple(dict.fromkeys(g.codelet for g in groups))
        self.code["vertex_state"] += vertex_state_bytes(groups, self.graph.num_tiles)
        for group in groups:
            self._code_on.setdefault(group.codelet, self._zeros() > 0)[group.tile] = True

    def _set_exchange(self, superstep: Superstep, plan: ExchangePlan) -> None:
        superstep.set_exchange(plan, self.system)
        self.code["exchange_code"] += exchange_code_bytes(plan, self.system.ipu.exchange, self.graph.num_tiles)

    def _stream(self, superstep: Superstep, stream: Stream, access: Access, tensor: Tensor) -> None:
        self._check(superstep, access, f"stream {stream.name!r}")
        superstep.host_bytes = stream.bytes
        superstep.host_cycles = host_cycles(
            stream.bytes, self._ipus_of(tensor), self.system, rendezvous=not superstep.joins_previous
        )
        host = self.system.host
        packet = host.packet_to_tile_bytes if stream.direction == "in" else host.packet_to_host_bytes
        pieces = self.layout.cut(*tensor.intervals())
        here = self._zeros()
        np.add.at(here, pieces.tile, pieces.length * tensor.dtype.bytes)
        np.maximum(self.code["stream_buffers"], np.minimum(here, packet), out=self.code["stream_buffers"])

    def _ipus_of(self, tensor: Tensor) -> int:
        """IPUs that hold part of a view."""
        tiles = self.layout.cut(*tensor.intervals()).tile
        return max(1, len(distinct(tiles.astype(np.int64) // self.system.ipu.num_tiles)))

    def _add_control(self, step: Step) -> None:
        """Count the control code of a program node once, however often a function that holds it is called."""
        if id(step.node) in self._controlled:
            return
        self._controlled.add(id(step.node))
        superstep = self.supersteps[step.superstep]
        busy = superstep.compute_by_tile(self.graph.num_tiles) > 0
        for phase in (superstep.before, superstep.after):
            if phase is not None:
                busy |= phase.received_bytes > 0
        self.code["control_code"] += control_code_bytes(busy, self.system.ipu)

    def _add_vertex_code(self) -> None:
        for codelet, tiles in self._code_on.items():
            self.code["vertex_code"] += tiles * code_bytes_of(codelet)
