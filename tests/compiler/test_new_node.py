"""A new kind of program node: a class, and one entry in the table of each room that cares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import abele.graph as graph_room
from abele.compiler import Executable, Step, Superstep, compile_program
from abele.compiler.analyse import Analysis
from abele.compiler.exchange import nothing_moves
from abele.compiler.nodes.lookup import meaning_of
from abele.compiler.nodes.meaning import NODES, NodeMeaning
from abele.compiler.store.control_nodes import STORED, NodeForm, forgotten, stored
from abele.compiler.store.format import Number
from abele.compiler.text.program import TEXT, program_text
from abele.errors import ControlProgramError
from abele.graph import Graph, Program, Repeat, Sequence, Tensor
from abele.graph.debug import DebugRecord, here
from abele.graph.flow import InOrder, OneOf
from abele.numerics import f32
from abele.runtime import Engine
from abele.runtime.lowering.lower import STEPS
from compiler.support import small_system


class Mark(Program):
    """Adds one to a view: a node that no room knows."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.debug = here("mark")

    def reads(self) -> tuple[Tensor, ...]:
        return (self.tensor,)

    def writes(self) -> tuple[Tensor, ...]:
        return (self.tensor,)


class MarkRow(NodeForm, tag="Mark"):
    tensor: Number


MARK_CYCLES = 7


def analyse(analysis: Analysis, step: Step) -> Superstep:
    found = replace(Superstep.of(step, analysis.access(step)), sync_cycles=0, work_cycles=MARK_CYCLES)
    return analysis.moving(found, nothing_moves(analysis.layout))


def run(lowering, step) -> None:  # type: ignore[no-untyped-def]
    def add_one() -> None:
        arena = lowering.context.arena
        arena.write(step.tensor, arena.read(step.tensor) + 1)

    lowering.emitter.callback(lowering.context.callbacks.add(add_one))


@pytest.fixture
def mark() -> Iterator[type[Mark]]:
    NODES.add(Mark, NodeMeaning(lambda n: "mode", analyse, origin=lambda n: DebugRecord(f"mark {n.tensor.name}")))
    TEXT.add(Mark, lambda n: f"mark {n.tensor.name}")
    STEPS.add(Mark, run)
    stored(Mark, MarkRow, parts=lambda out, n: [out.view(n.tensor)], make=lambda at, tensor: Mark(at.view(tensor)))
    yield Mark
    for table in (NODES, TEXT, STEPS):
        table.remove(Mark)
    forgotten(Mark)


def test_new_node__entered_in_four_tables__is_compiled_costed_shown_run_and_stored(
    mark: type[Mark], tmp_path: Path
) -> None:
    graph = Graph(small_system())
    x = graph.variable(f32, (4,), name="x").map(2)
    graph.expose(x, "x")
    program = Sequence(Repeat(3, mark(x)))
    assert program_text(program) == "repeat 3 times\n  mark x"
    executable = compile_program(graph, program)
    report = executable.report
    assert report.steps["name"].tolist() == ["mark x"]
    assert report.total_cycles == 3 * MARK_CYCLES
    executable.save(tmp_path / "x")
    for each in (executable, Executable.load(tmp_path / "x")):
        engine = Engine(each)
        engine["x"] = np.arange(4, dtype=np.float32)
        engine.run()
        assert engine["x"].tolist() == [3, 4, 5, 6]


def test_new_node__entered_nowhere__is_refused_by_name() -> None:
    graph = Graph(small_system())
    x = graph.variable(f32, (4,), name="x").map(2)
    with pytest.raises(ControlProgramError, match="a Mark is no program step that can be compiled"):
        compile_program(graph, Mark(x))


class Unless(Program):
    """Runs a program when a predicate is false: a branch unknown to all rooms, explained to them by its flow."""

    def __init__(self, predicate: Tensor, body: Program) -> None:
        self.predicate, self.body, self.debug = predicate, body, here("unless")

    def reads(self) -> tuple[Tensor, ...]:
        return (self.predicate,)

    def children(self) -> tuple[Program, ...]:
        return (self.body, Sequence())

    def flow(self) -> OneOf:
        return OneOf(self.predicate, self.children(), ("unless", "else"), lambda value: 1 if value else 0)


def test_new_branch__by_its_flow_alone__is_compiled_and_listed() -> None:
    graph = Graph(small_system())
    flag = graph.variable("bool", (), name="flag").map(0)
    x = graph.variable(f32, (4,), name="x").map(1)
    y = graph.variable(f32, (4,), name="y").map(2)
    executable = compile_program(graph, Unless(flag, graph_room.Copy(x, y)))
    assert executable.report.steps["kind"].tolist()[0] == "control"
    listing = executable.listing()
    assert "unless" in listing
    assert "every tile goes by flag" in listing


OF_HOSTS = {graph_room.StashCopy}
"""Nodes inside of what hosts run instead of other steps: kernels carry them out, the compiler refuses them."""


def kinds_of_nodes() -> list[type[Program]]:
    found = [getattr(graph_room, name) for name in graph_room.__all__]
    return [each for each in found if isinstance(each, type) and issubclass(each, Program) and each is not Program]


@pytest.mark.parametrize("kind", kinds_of_nodes())
def test_tables__every_node_of_the_graph_room__has_its_file_form_and_runs(kind: type[Program]) -> None:
    assert kind in STORED
    assert (kind in STEPS) != (kind in OF_HOSTS)


def test_tables__leaves_of_the_graph_room__mean_something_to_the_compiler() -> None:
    leaves = [k for k in kinds_of_nodes() if k.flow is Program.flow and k.children is Program.children]
    assert len(leaves) >= 12
    assert {k for k in leaves if NODES.find(k) is None} == OF_HOSTS
    with pytest.raises(ControlProgramError):
        meaning_of(Mark.__new__(Mark))
    assert isinstance(Sequence().flow(), InOrder)
