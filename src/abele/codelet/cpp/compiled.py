"""Native code and costs of a C++ codelet, with the interface of those written in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from abele.codelet.compiled import CompiledCodelet
from abele.codelet.cpp.blocks import FlowGraph
from abele.codelet.cpp.checking import Checked
from abele.codelet.cpp.costing import Costs, cost_blocks
from abele.codelet.cpp.counting import control_body, counted_body
from abele.codelet.cpp.extract import VertexSource
from abele.codelet.cpp.fingerprint import fingerprint
from abele.codelet.cpp.native import (
    RUN,
    RUN_CHECKED,
    RUN_COUNTED,
    RUN_WORKER,
    RUN_WORKER_CHECKED,
    SLOTS,
    VERTEX,
    TableFunction,
    module_text,
    readable_text,
)
from abele.codelet.cpp.reflect import VertexClass
from abele.codelet.cpp.taint import Taint
from abele.codelet.cpp.violation import violation
from abele.codelet.early_exits import EndPlace
from abele.codelet.sizes import UNKNOWN, Sizes
from abele.errors import ApplicationRuntimeError, CodeletAccessError, CodeletError

if TYPE_CHECKING:
    from abele.codelet.cpp.unit import Unit
    from abele.codelet.vertex import CodeletDef


@dataclass(frozen=True, eq=False)
class CppVertex:
    """A C++ codelet's class, code and file, as its definition carries them.

    Attributes:
        vertex: Its class.
        number: Its number in its file.
        code: Its code.
        unit: Its file.
    """

    vertex: VertexClass
    number: int
    code: VertexSource = field(repr=False)
    unit: Unit = field(repr=False)


class CompiledCppCodelet(CompiledCodelet):
    """Native code of a C++ codelet."""

    def __init__(self, definition: CodeletDef) -> None:
        cpp = definition.source
        assert isinstance(cpp, CppVertex)
        self.definition = definition
        self.cpp = cpp
        self._ending = []
        self._key = f"c++ {fingerprint()} {cpp.unit.key} {cpp.number}"

    @property
    def tree(self) -> Any:
        """C++ has none.

        Raises:
            CodeletError: Always.
        """
        raise CodeletError(
            f"codelet {self.definition.name} is in C++: it cannot be run as Python",
            at=self.definition.location,
            remedy="run it compiled; printf in it prints",
        )

    @cached_property
    def checked(self) -> Checked:
        """Its code with every access checked, and which accesses there are."""
        return self.cpp.unit.checked(self.cpp.number)

    @cached_property
    def run_checked(self) -> int:
        """As ``CompiledCodelet.run_checked``; :func:`~abele.codelet.cpp.violation.violation` reads the report."""
        return self._checked_address(RUN_CHECKED)

    @cached_property
    def run_worker_checked(self) -> int:
        """As :attr:`run_checked`: runs the worker alone whose number is in word 4 of the report."""
        return self._checked_address(RUN_WORKER_CHECKED)

    @cached_property
    def run_worker(self) -> int:
        """Address of ``void run_worker(i64 begin, i64 end, void** tables, i64 worker)``: runs one worker of each
        vertex, fields that overlap included."""

        def text() -> str:
            code = self.cpp.unit.code(self.cpp.number, aliasing=True)
            return module_text(self.cpp.vertex, code, RUN_WORKER, aliasing=True)

        return self._native("run_worker", text).address("run_worker")

    def access_error(self, words: Sequence[int]) -> tuple[int, CodeletAccessError | ApplicationRuntimeError] | None:
        """The vertex of the first access outside a field, or of the first end before its time, that checked code
        reported, and the error."""
        return violation(self.cpp.vertex, self.checked.sites, words)

    def _checked_address(self, function: TableFunction) -> int:
        def text() -> str:
            return module_text(self.cpp.vertex, self.checked, function, aliasing=True)

        return self._native(function.name, text).address(function.name)

    @property
    def run_stochastic(self) -> None:
        """There is no code that rounds at random."""

    @cached_property
    def blocks(self) -> FlowGraph:
        """Basic blocks of the code."""
        return FlowGraph(readable_text(self.cpp.vertex, self.cpp.code.body, self.cpp.code.around), VERTEX)

    @cached_property
    def costs(self) -> Costs:
        """Costs of its blocks."""
        return cost_blocks(self.blocks, sum(m.direction != "state" for m in self.cpp.vertex.members))

    @cached_property
    def taint(self) -> Taint:
        """Values that depend on data."""
        return Taint(self.blocks, self.cpp.vertex.members)

    def _places(self, part: str) -> tuple[EndPlace, ...]:
        if not part.startswith("run"):
            return ()
        if "checked" in part:
            return self.checked.places
        aliasing = part in ("run_aliasing", "run_worker")
        return self.cpp.unit.code(self.cpp.number, aliasing=True).places if aliasing else self.cpp.code.places

    def _code_bytes(self) -> int:
        return self.costs.code_bytes

    def _value_text(self, *, aliasing: bool = False, sizes: Sizes = UNKNOWN) -> str:
        code = self.cpp.unit.code(self.cpp.number, aliasing=True) if aliasing else self.cpp.code
        return module_text(self.cpp.vertex, code, RUN, aliasing=aliasing, sizes=sizes)

    def _counted_text(self) -> str:
        body = counted_body(self.blocks, self.costs)
        return module_text(self.cpp.vertex, replace(self.cpp.code, body=body), RUN_COUNTED)

    def _slots_text(self) -> str:
        facts = f"@data_dependent = constant i64 {int(self.taint.control)}\n"
        if self.taint.control:
            return facts
        body = control_body(self.blocks, self.costs, self.taint)
        return facts + module_text(self.cpp.vertex, replace(self.cpp.code, body=body), SLOTS)
