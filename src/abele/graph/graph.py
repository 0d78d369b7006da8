"""The graph: variables, compute sets and streams for one system."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from abele.errors import GraphReplicationError, TileMappingError
from abele.graph import program as programs
from abele.graph.clone import Cloning
from abele.graph.compute_set import ComputeSet
from abele.graph.debug import DebugInfo, caller
from abele.graph.ends import HostEnds
from abele.graph.expect import whole_number
from abele.graph.intervals import Int64
from abele.graph.names import CppNames
from abele.graph.placing import Placing
from abele.graph.sync_group import SyncGroup
from abele.graph.tensor import Tensor
from abele.graph.variable import Variable
from abele.graph.variables import Variables
from abele.machine import System, systems
from abele.words import counted

if TYPE_CHECKING:
    from abele.graph.virtual import VirtualGraph
    from abele.kernels.nest.ir import HostKernel


class Graph(CppNames, HostEnds, Variables, Placing, Cloning):
    """A static description of a tile program for one system.

    Args:
        system: The machine, its name, or a file that describes it.
        replicas: Copies of the program that run side by side, each on an equal share of the system's IPUs, with state
            and streams of its own. The graph describes one of them.
        auto_map: Spread variables that are mapped nowhere over all tiles when the graph is compiled, with a warning.

    Attributes:
        system: The machine of one replica.
        whole_system: The machine of all.
        variables: All variables, in order of their addresses.
        num_elements: Elements of all variables: one past the last address.

    Raises:
        GraphReplicationError: The IPUs cannot be shared out equally.
    """

    def __init__(self, system: System | str, *, replicas: int = 1, auto_map: bool = False) -> None:
        super().__init__()
        self.auto_map = auto_map
        self.whole_system: System = systems.resolve(system)
        self.replicas = replicas
        self.system: System = _share(self.whole_system, whole_number(replicas, "replicas are a whole number"))
        self.variables: list[Variable] = []
        self.compute_sets: list[ComputeSet] = []
        self.sync_groups: list[SyncGroup] = []
        self.num_elements = 0
        self._scopes: list[str] = []
        self._locations: list[tuple[str, int, str]] = []
        self._base_cache: Int64 = np.empty(0, dtype=np.int64)

    @property
    def num_tiles(self) -> int:
        """Tiles of one replica."""
        return self.system.num_tiles

    @property
    def top_level(self) -> Graph:
        """The whole graph: itself, unless it is a virtual graph."""
        return self

    def virtual(
        self, first: int | None = None, end: int | None = None, *, tiles: npt.ArrayLike | None = None
    ) -> VirtualGraph:
        """A view of this graph that has some of its tiles only, numbered from 0: ``[first, end)``, or ``tiles``.

        Raises:
            TileMappingError: A tile that this graph lacks, one that is named twice, or none at all.
        """
        from abele.graph.virtual import VirtualGraph

        if tiles is None:
            tiles = np.arange(first or 0, self.num_tiles if end is None else end)
        return VirtualGraph(self, np.asarray(tiles, dtype=np.int64).reshape(-1))

    def ipu(self, number: int) -> VirtualGraph:
        """The view of this graph that has the tiles of one IPU.

        Raises:
            TileMappingError: There is no such IPU.
        """
        each, count = self.system.ipu.num_tiles, self.system.num_ipus
        if not 0 <= number < count:
            raise TileMappingError(
                f"there is no IPU {number}: {self.system.name} has {count}", at=self.origin("").location or None
            )
        return self.virtual(number * each, (number + 1) * each)

    def virtual_tiles_per_ipu(self, count: int) -> VirtualGraph:
        """The view of this graph that has the first ``count`` tiles of every IPU.

        Raises:
            TileMappingError: An IPU has fewer.
        """
        each = self.system.ipu.num_tiles
        if not 1 <= count <= each:
            raise TileMappingError(
                f"{counted(count, 'tile')} of every IPU of {self.system.name}, which have {each}",
                at=self.origin("").location or None,
            )
        return self.virtual(tiles=(np.arange(self.system.num_ipus)[:, None] * each + np.arange(count)).reshape(-1))

    # --- origins -----------------------------------------------------------------------------------------------

    def origin(self, name: str) -> DebugInfo:
        """Debug information for something made now under ``name``."""
        if self._locations:
            file, line, text = self._locations[-1]
        else:
            (file, line), text = caller(), ""
        return DebugInfo(name, "/".join(self._scopes), file, line, text)

    @contextmanager
    def scope(self, name: str = "", *, location: tuple[str, int] | None = None, text: str = "") -> Iterator[None]:
        """Prefix names made inside with ``name``; pin their source line to ``location`` if given."""
        if name:
            self._scopes.append(name)
        if location is not None:
            self._locations.append((*location, text))
        try:
            yield
        finally:
            if location is not None:
                self._locations.pop()
            if name:
                self._scopes.pop()

    # --- compute sets, streams, programs ---------------------------------------------------------------------------

    def compute_set(self, name: str = "compute_set") -> ComputeSet:
        """A new, empty compute set."""
        compute_set = ComputeSet(self, len(self.compute_sets), self.origin(name))
        self.compute_sets.append(compute_set)
        return compute_set

    def function(
        self,
        body: programs.Program,
        name: str = "function",
        *,
        parameters: Sequence[Tensor] = (),
        results: Sequence[Tensor] = (),
    ) -> programs.Function:
        """A body that ``Call`` runs; the machine holds it once.

        A call with arguments copies them to ``parameters`` before the body, and ``results`` out after it.
        """
        return programs.Function(body, self.origin(name), tuple(parameters), tuple(results))

    def sync_group(self, tiles: npt.ArrayLike, name: str = "sync group") -> SyncGroup:
        """Tiles that meet at barriers of their own, such as IO tiles; all others of an IPU are one group.

        Raises:
            TileMappingError: A tile that the system lacks, or that is in another group.
        """
        debug = self.origin(name)
        numbers = np.unique(np.asarray(tiles, dtype=np.int32).reshape(-1))
        self.check_tiles(numbers, f"sync group {name!r}", debug)
        for other in self.sync_groups:
            common = np.intersect1d(numbers, other.tiles)
            if len(common):
                raise TileMappingError(
                    f"tile {common[0]} is in sync group {name!r} and in {other.name!r}",
                    at=debug.location,
                    because=f"{other.name!r} was made at {other.debug.location}" if other.debug.file else None,
                )
        group = SyncGroup(debug.full_name, numbers, debug)
        self.sync_groups.append(group)
        return group

    def replica_index(self, name: str = "replica_index") -> Tensor:
        """A constant u32 scalar that holds the number of the replica."""
        tensor = self._new("u32", (), name, "replica_index", None)
        return self.map(tensor, 0)

    @contextmanager
    def library_call(
        self,
        prog: programs.Sequence,
        name: str,
        *,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        kernel: HostKernel | None = None,
        flops: int = 0,
        debug_name: str = "",
    ) -> Iterator[programs.Sequence]:
        """Append a library call to ``prog`` and give its body to be filled."""
        debug = self.origin(debug_name or name.rsplit(".", 1)[-1])
        body = programs.Sequence()
        call = programs.LibraryCall(name, tuple(inputs), tuple(outputs), body, kernel, flops, debug)
        with self.scope(debug.name, location=(debug.file, debug.line), text=debug.text):
            yield body
        prog.add(call)

    def to_dot(self, program: programs.Program | None = None, max_items: int = 200) -> str:
        """Variables, vertices by compute set and edges as Graphviz text; see :func:`abele.graph.clusters.to_dot`."""
        from abele.graph.clusters import to_dot

        return to_dot(self, program, max_items)

    def vertex_graph(self, program: programs.Program | None = None, max_items: int = 200) -> str:
        """Vertices and who reads what whom as Graphviz text; see :func:`abele.graph.clusters.vertex_graph`."""
        from abele.graph.clusters import vertex_graph

        return vertex_graph(self, program, max_items)

    def describe(self, max_items: int = 100) -> str:
        """Counts, variables with their mapping, and compute sets, as text."""
        from abele.graph.text import describe

        return describe(self, max_items)

    def __repr__(self) -> str:
        from abele.graph.shown import graph_line

        return graph_line(self)

    def _repr_html_(self) -> str:
        from abele.graph.shown import graph_card

        return graph_card(self)


def _share(system: System, replicas: int) -> System:
    """The part of a system that one of ``replicas`` has."""
    if replicas < 1 or system.num_ipus % replicas:
        raise GraphReplicationError(
            f"{counted(replicas, 'replica')} cannot share the {system.num_ipus} IPUs of {system.name} equally",
            remedy=f"a divisor of {system.num_ipus}, or a larger system",
        )
    return system.with_ipus(system.num_ipus // replicas)
