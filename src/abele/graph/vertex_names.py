"""Poplar's names for what a graph does with codelets and vertices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from abele.codelet.names import normalised
from abele.errors import CodeletLoadError, FieldOverflowError, UnknownFieldError, nearest
from abele.graph.codelets import SOURCES, CodeletFileType, Codelets, Estimator
from abele.graph.compute_set import ComputeSet, FieldRef, VertexRef, definition_of
from abele.graph.expect import expect, whole_number
from abele.graph.introspect import VertexIntrospector
from abele.graph.perf_estimators import PerfEstimator, PerfEstimators
from abele.graph.tensor import Tensor
from abele.words import counted

if TYPE_CHECKING:
    from abele.codelet import CodeletDef, FieldDef
    from abele.graph.graph import Graph

SPAN_MAX = 2**32 - 1
"""Longest vector where nothing limits it: sizes are 32-bit numbers."""
_NUMBERS = (bool, int, float, np.generic)


class VertexNames:
    """Mix-in of :class:`Graph`.

    Attributes:
        codelets: The codelets that vertices can be added of by name.
        perf_estimators: What vertices of some codelets cost, as the user says.
    """

    def __init__(self) -> None:
        super().__init__()
        self.codelets = Codelets()
        self.perf_estimators = PerfEstimators()

    def codelet(self, codelet: Any) -> CodeletDef:
        """The definition behind a decorated class, or the codelet that the graph knows by a name.

        Raises:
            UnknownVertexTypeError: The graph knows no codelet of this name.
            GraphConnectionError: The class is no codelet.
        """
        return self.codelets[codelet] if isinstance(codelet, str) else definition_of(codelet)

    # --- codelets ----------------------------------------------------------------------------------------------------

    def addCodelets(self, codelets: Any, fileType: Any = None, flags: Any = "") -> None:
        """Make codelets known by name: classes, a mapping from names to classes, a module, or C++ sources.

        ``addCodelets("file.cpp", "-O3")``, ``addCodelets("file.cpp", CodeletFileType.Auto, "-O3")`` and, as for
        Poplar's streams, ``addCodelets(text, "-O3", CodeletFileType.Cpp)`` all work.

        Args:
            codelets: What to add: see :meth:`Codelets.add`. Several files, ``["a.cpp", "b.cpp"]``, are linked: one may
                call what another defines.
            fileType: A :class:`CodeletFileType`, or compiler flags.
            flags: The other of the two.

        Raises:
            CodeletError: A file cannot be read or compiled, or a name is taken.
        """
        kind = next((g for g in (fileType, flags) if isinstance(g, CodeletFileType)), CodeletFileType.Auto)
        words = next((g for g in (fileType, flags) if g and not isinstance(g, CodeletFileType)), "")
        if kind not in SOURCES:
            what = codelets if isinstance(codelets, (str, Path)) and "\n" not in str(codelets) else "what was given"
            raise CodeletLoadError(
                f"{what} would be read as {kind.value} of the IPU's own instructions", remedy="give the C++ source"
            )
        self.codelets.add(codelets, words)

    def hasCodelet(self, name: str) -> bool:
        """Whether the graph knows a codelet by this name."""
        return name in self.codelets

    def register_perf_estimator(  # type: ignore[misc]
        self: Graph, codelet: Any, function: Callable[..., Any], *, per_vertex: bool = False
    ) -> None:
        """Say what vertices of a codelet cost in this graph; cycles given with a vertex come before it.

        Args:
            codelet: A decorated class, or the name of a codelet.
            function: ``function(view, ipu)`` gives one number per vertex, as ``cycles`` of a codelet does: issue slots
                for a ``Vertex``, cycles of the tile for the other kinds. Or a pair: these, and floating-point
                operations.
            per_vertex: ``function(introspector, target)`` is asked vertex by vertex instead, as in Poplar.

        Raises:
            GraphConnectionError: The class is no codelet.
        """
        key = normalised(codelet) if isinstance(codelet, str) else definition_of(codelet)
        self.perf_estimators[key] = PerfEstimator(function, per_vertex, self.getTarget())

    def registerPerfEstimator(self: Graph, name: str, estimator: Estimator) -> None:  # type: ignore[misc]
        """Say what vertices of a codelet cost: ``estimator(introspector, target)`` gives the cycles of one.

        Cycles are issue slots of a worker for a ``Vertex``, cycles of the tile for the other kinds.
        """
        self.register_perf_estimator(name, estimator, per_vertex=True)

    def registerCycleEstimator(self: Graph, name: str, estimator: Estimator) -> None:  # type: ignore[misc]
        """The older name of :meth:`registerPerfEstimator`."""
        self.registerPerfEstimator(name, estimator)

    def getMaxFieldDim(self, vertexName: str, fieldName: str, dimIndex: int = 0) -> int:
        """Largest size that a dimension of a field may have.

        Raises:
            UnknownFieldError: The codelet does not declare the field.
            FieldOverflowError: The field has no such dimension.
        """
        declared = _declared(self.codelet(vertexName), fieldName)
        if not 0 <= dimIndex < declared.rank:
            raise FieldOverflowError(
                f"field {vertexName}.{fieldName} has {counted(declared.rank, 'dimension')}, no {dimIndex}"
            )
        limit = declared.layout(dimIndex).max_size
        return SPAN_MAX if limit is None else limit

    def getMaxVertexFieldValue(self, vertexName: str, fieldName: str) -> int:
        """Largest whole number that a field holds."""
        declared = _declared(self.codelet(vertexName), fieldName)
        return 1 if declared.type.kind == "bool" else int(np.iinfo(declared.type.np).max)

    # --- vertices ----------------------------------------------------------------------------------------------------

    def addVertex(  # type: ignore[misc]
        self: Graph, cs: ComputeSet, codelet: Any, values: Mapping[str, Any] | None = None
    ) -> VertexRef:
        """Add one vertex to a compute set; fields left out are connected or set later.

        Args:
            cs: The compute set.
            codelet: A codelet that the graph knows by name, or a decorated class.
            values: Tensors, lists of tensors or numbers by field. A number for an edge becomes a constant.

        Raises:
            UnknownVertexTypeError: The graph knows no such codelet.
        """
        expect(cs, ComputeSet, "addVertex adds to a compute set")
        vertex = cs.vertex(self.codelet(codelet))
        for name, value in (values or {}).items():
            self.connect(vertex[name], value)
        return vertex

    def connect(self: Graph, field: Any, tensor: Any) -> None:  # type: ignore[misc]
        """Wire a field of a vertex to a tensor, a list of tensors or a number; in either order.

        Raises:
            GraphConnectionError: The field is connected already.
        """
        if isinstance(tensor, FieldRef):
            field, tensor = tensor, field
        expect(field, FieldRef, "connect takes a field of a vertex", remedy='graph.connect(vertex["field"], tensor)')
        field.connect(self._as_edge(field, tensor))

    def _as_edge(self: Graph, field: FieldRef, value: Any) -> Any:  # type: ignore[misc]
        declared = _declared(field.vertex.codelet, field.name)
        if not declared.is_edge or isinstance(value, Tensor):
            return value
        plain = isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], _NUMBERS)
        if not (isinstance(value, (*_NUMBERS, np.ndarray)) or plain):
            return value
        constant = self.constant(declared.type, None, value, f"{field.vertex.codelet.name}.{field.name}")
        return constant if field.vertex.tile is None else constant.map(field.vertex.tile)

    def setFieldSize(self, field: FieldRef, size: int) -> None:
        """Give a field of several pieces its size; then each is connected by ``v["field"][i]``."""
        field.vertex.set_size(field.name, int(size))

    def setPerfEstimate(self, vertex: VertexRef, cycles: int, flops: int = 0) -> None:
        """Say what a vertex costs instead of counting it; operations are not reported by vertex."""
        expect(vertex, VertexRef, "setPerfEstimate is of a vertex")
        vertex.cycles = whole_number(cycles, "the cycles of a vertex are a whole number")

    def setCycleEstimate(self, vertex: VertexRef, cycles: int) -> None:
        """The older name of :meth:`setPerfEstimate`."""
        self.setPerfEstimate(vertex, cycles)

    def getPerfEstimate(self, vertex: VertexRef) -> int | None:
        """The cost that a vertex was given, or None when it is counted."""
        return vertex.cycles

    def createVertexIntrospector(self, vertex: VertexRef) -> VertexIntrospector:
        """What an estimator would see of a vertex."""
        return VertexIntrospector(*vertex.compute_set.place_of(vertex))

    def getComputeSet(self: Graph, id: int) -> ComputeSet:  # type: ignore[misc]
        """The compute set of a number."""
        return self.compute_sets[id]


def _declared(codelet: CodeletDef, name: str) -> FieldDef:
    for declared in codelet.fields:
        if declared.name == name:
            return declared
    names = [f.name for f in codelet.fields]
    close = nearest(name, names)
    raise UnknownFieldError(
        f"vertex {codelet.name} has no field {name!r}",
        because=f"{codelet.name} is declared at {codelet.file}:{codelet.line}",
        remedy=f"did you mean {close!r}?" if close else "its fields are " + ", ".join(names),
    )
