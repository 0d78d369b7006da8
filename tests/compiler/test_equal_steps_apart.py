"""Equal copies, and steps that do the same on another IPU: found, and costed as if they were alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.compiler import Executable, compile_program
from abele.compiler import analyse as analysis
from abele.errors import ConstantWriteError
from abele.graph import Copy, Execute, Graph, Program, Sequence, Tensor, concat
from abele.numerics import f32
from compiler.support import Move, small_system
from compiler.test_equal_steps import found
from support.examples import examples

TILES, IPUS = 4, 3
Rows = st.lists(st.integers(0, TILES - 1), min_size=4, max_size=4)
View = st.sampled_from(["plain", "flipped", "cut", "row"])


def meetings(executable: Executable, number: int) -> list[object]:
    """Figures of a superstep that the timeline takes besides."""
    step = executable.plan[number]
    parts = (step.before, step.gather, step.scatter, step.after)
    return [step.meets, step.num_tiles, *(None if p is None else p.groups for p in parts)]


def view(x: Tensor, kind: str) -> Tensor:
    match kind:
        case "flipped":
            return x.T.reshape((4, 6))
        case "cut":
            return concat([x[1:], x[:1]])
        case "row":
            return x[2].broadcast_to((4, 6))
    return x


@examples(8)
@given(st.lists(st.tuples(Rows, Rows, View, st.sampled_from(["plain", "flipped", "cut"])), min_size=1, max_size=4))
def test_equal_steps__copies_and_vertices_on_several_ipus__are_analysed_as_if_alone(steps: list) -> None:
    graph = Graph(small_system(TILES, IPUS))
    nodes: list[Program] = []
    for ipu in range(IPUS):
        here = graph.ipu(ipu)
        for number, (home, goal, reading, writing) in enumerate([*steps, *steps]):
            name = f"{ipu}/{number}"
            x, y = here.variable(f32, (4, 6), f"x{name}"), here.variable(f32, (4, 6), f"y{name}")
            here.map_rows(x, home)
            here.map_rows(y, goal)
            nodes.append(Copy(view(x, reading), view(y, writing)))
            cs = here.compute_set(name)
            cs.vertices(Move, tile=np.arange(4), x=view(x, "cut"), y=view(y, writing))
            nodes.append(Execute(cs))
    together = compile_program(graph, Sequence(*nodes))
    singly = [compile_program(graph, node) for node in nodes]
    for number, alone in enumerate(singly):
        assert found(together.plan[number]) == found(alone.plan[0])
        assert meetings(together, number) == meetings(alone, 0)
    alone = sum(one.memory.by_category["vertex_state"] for one in singly)
    assert together.memory.by_category["vertex_state"].tolist() == alone.tolist()
    # Every IPU has programs of its own, each of which serves two steps or more.
    apart = np.array([one.memory.by_category["exchange_code"] for one in singly])
    shared = np.asarray(together.memory.by_category["exchange_code"])
    assert (shared >= apart.max(axis=0)).all()
    assert (shared <= apart.sum(axis=0)).all()
    assert shared.sum() == sum(s.exchange_code_bytes for s in together.plan)


def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sources of the copies that are planned from scratch, filled as that happens."""
    names: list[str] = []
    whole = analysis.plan_copy
    monkeypatch.setattr(analysis, "plan_copy", lambda a, *rest: (names.append(a.name), whole(a, *rest))[1])
    return names


def pair(graph: Graph, ipu: int, name: str, rows: object = range(TILES)) -> tuple[Tensor, Tensor]:
    here = graph.ipu(ipu)
    x, y = here.variable(f32, (4, 6), f"{name}/x"), here.variable(f32, (4, 6), f"{name}/y")
    here.map_rows(x, rows)
    here.map_rows(y, [1, 2, 3, 0])
    return x, y


def test_equal_steps__equal_copies_on_all_ipus__are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(small_system(TILES, IPUS))
    copies = [Copy(*pair(graph, ipu, f"{ipu}{n}")) for ipu in range(IPUS) for n in range(3)]
    names = planned(monkeypatch)
    compile_program(graph, Sequence(*copies))
    assert names == ["00/x"]


def test_equal_steps__another_mapping_view_or_ipu_pair__is_analysed_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(small_system(TILES, IPUS))
    x, y = pair(graph, 0, "first")
    other, _ = pair(graph, 1, "far")
    copies = [
        Copy(x, y),
        Copy(*pair(graph, 1, "mapped", [3, 2, 1, 0])),
        Copy(other.T.reshape((4, 6)), pair(graph, 1, "turned")[1]),
        Copy(x, pair(graph, 1, "across")[1]),
    ]
    names = planned(monkeypatch)
    compile_program(graph, Sequence(*copies))
    assert names == ["first/x", "mapped/x", "far/x", "first/x"]


def test_equal_steps__users_sync_groups__keep_ipus_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(small_system(TILES, IPUS))
    graph.sync_group([5], name="alone")
    copies = [Copy(*pair(graph, ipu, f"{ipu}")) for ipu in (0, 1)]
    names = planned(monkeypatch)
    compile_program(graph, Sequence(*copies))
    assert names == ["0/x", "1/x"]


def test_equal_steps__second_copy_writes_a_constant__is_still_found() -> None:
    graph = Graph(small_system(TILES))
    x = graph.variable(f32, (4,), "x", map=0)
    y = graph.variable(f32, (4,), "y", map=1)
    fixed = graph.constant(f32, (4,), 1.0, name="fixed")
    graph.map(fixed, 1)
    with pytest.raises(ConstantWriteError, match="fixed"):
        compile_program(graph, Sequence(Copy(x, y), Copy(x, fixed)))
