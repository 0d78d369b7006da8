"""Native code and costs of a C++ codelet, with the interface of those written in Python."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from abele.codelet.compiled import CompiledCodelet
from abele.codelet.cpp.blocks import Blocks
from abele.codelet.cpp.costing import Costs, cost_blocks
from abele.codelet.cpp.counting import control_body, counted_body
from abele.codelet.cpp.extract import Code
from abele.codelet.cpp.fingerprint import fingerprint
from abele.codelet.cpp.native import RUN, RUN_COUNTED, SLOTS, VERTEX, module_text, readable_text
from abele.codelet.cpp.reflect import VertexClass
from abele.codelet.cpp.taint import Taint
from abele.codelet.sizes import UNKNOWN, Sizes
from abele.errors import CodeletError

if TYPE_CHECKING:
    from abele.codelet.cpp.unit import Unit
    from abele.codelet.vertex import CodeletDef


@dataclass(frozen=True, eq=False)
class CppVertex:
    """What the definition of a C++ codelet carries.

    Attributes:
        vertex: Its class.
        number: Its number in its file.
        code: Its code.
        unit: Its file.
    """

    vertex: VertexClass
    number: int
    code: Code = field(repr=False)
    unit: Unit = field(repr=False)


class CompiledCppCodelet(CompiledCodelet):
    """Native code of a C++ codelet."""

    def __init__(self, definition: CodeletDef) -> None:
        cpp = definition.source
        assert isinstance(cpp, CppVertex)
        self.definition = definition
        self.cpp = cpp
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

    @property
    def run_checked(self) -> int:
        """C++ accesses memory through pointers, whose fields are not known.

        Raises:
            CodeletError: Always.
        """
        raise CodeletError(
            f"accesses of codelet {self.definition.name} cannot be checked: it is in C++", at=self.definition.location
        )

    @property
    def run_stochastic(self) -> None:
        """There is no code that rounds at random."""

    @cached_property
    def blocks(self) -> Blocks:
        """The code, to be looked at."""
        return Blocks(readable_text(self.cpp.vertex, self.cpp.code.body, self.cpp.code.around), VERTEX)

    @cached_property
    def costs(self) -> Costs:
        """What its blocks cost."""
        return cost_blocks(self.blocks, sum(m.direction != "state" for m in self.cpp.vertex.members))

    @cached_property
    def taint(self) -> Taint:
        """What depends on data."""
        return Taint(self.blocks, self.cpp.vertex.members)

    def _code_bytes(self) -> int:
        return self.costs.code_bytes

    def _value_text(self, *, aliasing: bool = False, sizes: Sizes = UNKNOWN) -> str:
        code = self.cpp.unit.code(self.cpp.number, aliasing=True) if aliasing else self.cpp.code
        return module_text(self.cpp.vertex, code.body, code.around, RUN, aliasing=aliasing, sizes=sizes)

    def _counted_text(self) -> str:
        body = counted_body(self.blocks, self.costs)
        return module_text(self.cpp.vertex, body, self.cpp.code.around, RUN_COUNTED)

    def _slots_text(self) -> str:
        facts = f"@data_dependent = constant i64 {int(self.taint.control)}\n"
        if self.taint.control:
            return facts
        body = control_body(self.blocks, self.costs, self.taint)
        return facts + module_text(self.cpp.vertex, body, self.cpp.code.around, SLOTS)
