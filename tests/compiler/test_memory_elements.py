"""Constraints of fields on memory: apart, interleaved, aligned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import SPAN, InOut, Input, Output, Vector, Vertex, codelet
from abele.compiler import compile_program, field_uses
from abele.compiler.memory_elements import check_constraints
from abele.errors import MemoryElementError, OutOfMemoryError
from abele.graph import Execute, Graph, Regions
from abele.numerics import f32
from compiler.support import small_system


@codelet
class Apart(Vertex):
    """Its inputs must not share a memory element."""

    constraints = "elem(*a) != elem(*b)"
    a: Input[Vector[f32]]
    b: Input[Vector[f32]]
    c: Output[Vector[f32]]

    def compute(self):
        for i in range(len(self.c)):
            self.c[i] = self.a[i] + self.b[i]


@codelet
class Interleaved(Vertex):
    x: InOut[Vector[f32, SPAN, 8, True]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] += 1.0


@codelet
class Aligned(Vertex):
    x: InOut[Vector[f32, SPAN, 32]]

    def compute(self):
        for i in range(len(self.x)):
            self.x[i] += 1.0


def apart(graph: Graph, a: object, b: object, n: int = 2) -> Execute:
    c = graph.variable(f32, (n, 4), "c").map_rows(range(n))
    cs = graph.compute_set("step")
    cs.vertices(Apart, tile=range(n), a=a, b=b, c=c)
    return Execute(cs)


def test_constraint__same_elements_in_both_fields__names_them(graph: Graph) -> None:
    x, y = (graph.variable(f32, (2, 4), n).map_rows(range(2)) for n in "xy")
    compile_program(graph, apart(graph, x, y))
    with pytest.raises(MemoryElementError) as caught:
        compile_program(graph, apart(graph, x, [y[0], x[1]]))
    text = str(caught.value)
    assert text.startswith(
        "fields Apart.a and .b of vertex 1 in compute set 'step' share elements [4:8) of variable 'x'\n"
    )
    assert "constraint elem(*a) != elem(*b)" in text
    assert "test_memory_elements.py:" in text


def test_constraint__same_elements_in_different_vertices__is_no_clash(graph: Graph) -> None:
    x = graph.variable(f32, (2, 4), "x").map_rows(range(2))
    compile_program(graph, apart(graph, x, [x[1], x[0]]))


Piece = st.tuples(st.integers(0, 18), st.integers(1, 6))
Rows = st.lists(st.lists(Piece, max_size=3), min_size=3, max_size=3)


@given(Rows, Rows)
def test_constraint__random_intervals__agree_with_brute_force(first: list, second: list) -> None:
    graph = Graph(small_system())
    x = graph.variable(f32, (24,), "x").map(0)

    def regions(rows: list[list[tuple[int, int]]]) -> Regions:
        flat = np.array([p for r in rows for p in r], dtype=np.int64).reshape(-1, 2)
        return Regions(np.cumsum([0, *map(len, rows)]).astype(np.int64), flat[:, 0], flat[:, 1], x)

    step = apart(graph, regions(first), regions(second), 3)
    elements = [[{e for b, n in r for e in range(b, b + n)} for r in rows] for rows in (first, second)]
    common = [a & b for a, b in zip(*elements, strict=True)]
    uses = field_uses(step.compute_set.groups)
    if not any(common):
        check_constraints(uses, graph, "here")
        return
    with pytest.raises(MemoryElementError) as caught:
        check_constraints(uses, graph, "here")
    message = caught.value.message
    vertex = int(message.split("vertex ")[1].split()[0])
    begin, end = map(int, message.split("[")[1].split(")")[0].split(":"))
    assert set(range(begin, end)) <= common[vertex]
    assert end > begin


def test_interleaved__field_larger_than_all_of_it__is_refused(graph: Graph) -> None:
    room = graph.system.ipu.tile.interleaved_bytes
    x = graph.variable(f32, (room // 4 + 1,), "x").map(0)
    cs = graph.compute_set("step")
    cs.vertex(Interleaved, tile=0, x=x)
    with pytest.raises(MemoryElementError, match="must lie in interleaved memory, of which a tile has") as caught:
        compile_program(graph, Execute(cs))
    assert f"{room:,} B" in str(caught.value)
    assert "Interleaved.x of vertex 0 in compute set 'step'" in str(caught.value)


def test_interleaved__variables_together__are_counted_once_each(graph: Graph) -> None:
    x = graph.variable(f32, (1000,), "x").map(0)
    y = graph.variable(f32, (10,), "y").map(0)
    cs = graph.compute_set("step")
    for part in (x[:500], x[500:], y):
        cs.vertex(Interleaved, tile=0, x=part)
    found = compile_program(graph, Execute(cs))
    assert found.memory.interleaved_bytes.tolist() == [4040] + [0] * 7
    assert "4,040 B must lie in" in found.memory_text(0)


def test_interleaved__more_than_there_is__does_not_fit() -> None:
    graph = Graph(small_system().evolve(ipu={"tile": {"plain_bytes": 600_000, "executable_bytes": 600_000}}))
    cs = graph.compute_set("step")
    for number in range(3):
        x = graph.variable(f32, (4000,), f"x{number}").map(0)
        cs.vertex(Interleaved, tile=0, x=x)
    with pytest.raises(OutOfMemoryError, match="needs 48,000 B of interleaved memory, has 38,976 B"):
        compile_program(graph, Execute(cs))


def test_alignment__beyond_the_usual__may_leave_a_gap(graph: Graph) -> None:
    x = graph.variable(f32, (2, 4), "x").map_rows([0, 1])
    cs = graph.compute_set("step")
    cs.vertices(Aligned, tile=[0, 1], x=x)
    memory = compile_program(graph, Execute(cs)).memory
    placed = memory.addresses_of(1)
    assert placed is not None
    lost = int(placed.address[0]) - int(memory.total[1]) + 16 + int(memory.by_category["gaps"][1])
    assert placed.address[0] % 32 == 0
    assert 0 <= lost < 32
    assert memory.by_category["gaps"].tolist() == [lost, lost] + [0] * 6
