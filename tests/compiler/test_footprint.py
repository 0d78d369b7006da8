"""Bytes of records, of control code and of exchange code on each tile."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele.codelet import COMPACT_PTR, Input, Output, Vector, Vertex, codelet
from abele.compiler import compile_program
from abele.errors import CodeletError, FileFormatError
from abele.graph import Copy, CrossReplicaCopy, Execute, Graph, Sequence
from abele.machine import systems
from abele.numerics import f32, i32
from compiler.store.test_executables import rewritten


@codelet
class Numbered(Vertex):
    """Its numbers stand for what the library's vertex has in pointers."""

    x: Input[Vector[f32]]
    y: Output[Vector[f32]]
    walk: Vector[i32]

    def compute(self):
        for i in range(len(self.y)):
            self.y[i] = self.x[i]

    @staticmethod
    def cycles(v, ipu):
        return 10 + v.x

    @staticmethod
    def state_bytes(v, ipu):
        return 9 + 4 * v.walk


@codelet
class Compact(Vertex):
    x: Input[Vector[f32, COMPACT_PTR]]
    y: Output[Vector[f32, COMPACT_PTR]]
    n: i32

    def compute(self):
        for i in range(self.n):
            self.y[i] = self.x[i]


@codelet
class Long(Numbered):
    """Its code on the machine is longer than its meaning."""

    least_code_bytes = 1000


def numbered(graph: Graph, kind: type = Numbered, **state: object) -> Sequence:
    x, y = (graph.variable(f32, (3, 4), name).map_rows([0, 1, 2]) for name in "xy")
    step = graph.compute_set("step")
    step.vertices(kind, tile=[0, 1, 2], x=x, y=y, **state)
    return Sequence(Execute(step))


def held(executable: ab.Executable, category: str) -> list[int]:
    return np.asarray(executable.memory.by_category[category])[:5].tolist()


def test_vertex_state__codelet_says_its_record__is_that_in_whole_words(graph: Graph) -> None:
    program = numbered(graph, walk=[np.zeros(n, np.int32) for n in (0, 1, 5)])
    assert held(compile_program(graph, program), "vertex_state") == [12, 16, 32, 0, 0]


def test_vertex_state__record_of_a_wrong_shape__is_refused(graph: Graph) -> None:
    @codelet
    class Wrong(Vertex):
        x: Input[Vector[f32]]
        y: Output[Vector[f32]]

        def compute(self):
            self.y[0] = self.x[0]

        @staticmethod
        def state_bytes(v, ipu):
            return [1, -2]

    with pytest.raises(CodeletError, match=r"state_bytes\(\) of codelet Wrong gave int64 of shape \[2\]"):
        compile_program(graph, numbered(graph, Wrong))


@pytest.mark.parametrize(("chip", "bytes_each"), [("gc2", 2 + 2 + 4), ("gc200", 4 + 4 + 4)])
def test_vertex_state__compact_pointers__are_as_short_as_the_memory_allows(chip: str, bytes_each: int) -> None:
    graph = Graph(systems.get(chip))
    executable = compile_program(graph, numbered(graph, Compact, n=4))
    assert held(executable, "vertex_state") == [bytes_each] * 3 + [0, 0]


def test_vertex_state__of_a_loaded_executable__is_what_was_saved(graph: Graph, tmp_path: Path) -> None:
    executable = compile_program(graph, numbered(graph, walk=[np.zeros(n, np.int32) for n in (0, 1, 5)]))
    executable.save(tmp_path / "saved")
    loaded = ab.Executable.load(tmp_path / "saved")
    assert held(loaded, "vertex_state") == held(executable, "vertex_state")


@pytest.mark.parametrize("size", [-1, 1 << 60])
def test_load__records_of_no_memory__are_refused(graph: Graph, tmp_path: Path, size: int) -> None:
    executable = compile_program(graph, numbered(graph, walk=[np.zeros(2, np.int32)] * 3))
    executable.save(tmp_path / "saved")
    changed: dict[str, str] = {}

    def note(document: dict[str, Any]) -> None:
        changed["name"] = document["graph"]["compute_sets"][0][1][0]["state_bytes"]

    rewritten(tmp_path / "saved", tmp_path / "same", note)
    stream = io.BytesIO()
    np.save(stream, np.full(3, size, np.int64))
    hostile = rewritten(
        tmp_path / "saved", tmp_path / "hostile", lambda d: None, **{changed["name"].split(".")[0]: stream.getvalue()}
    )
    with pytest.raises(FileFormatError, match="more memory than there is, or less than none"):
        ab.Executable.load(hostile)


def test_vertex_code__hand_written__is_at_least_what_the_codelet_says(graph: Graph, tmp_path: Path) -> None:
    walk = [np.zeros(1, np.int32)] * 3
    graphs = {kind: Graph(graph.system) for kind in (Numbered, Long)}
    short, long = (compile_program(g, numbered(g, kind, walk=walk)) for kind, g in graphs.items())
    assert 0 < held(short, "vertex_code")[0] < 1000
    assert held(long, "vertex_code") == [1000] * 3 + [0, 0]
    long.save(tmp_path / "saved")
    loaded = ab.Executable.load(tmp_path / "saved")
    assert held(loaded, "vertex_code") == held(long, "vertex_code")
    assert "1,000 B" in loaded.memory_text(0)


def test_control_code__of_a_step__is_on_tiles_that_have_a_part_in_it(graph: Graph) -> None:
    memory = graph.system.ipu.tile
    program = numbered(graph, walk=[np.zeros(1, np.int32)] * 3)
    assert held(compile_program(graph, program), "control_code") == [memory.control_step_bytes] * 3 + [0, 0]


def test_control_and_exchange_code__of_a_copy_to_another_tile__are_on_both(graph: Graph) -> None:
    ipu = graph.system.ipu
    x, y = graph.variable(f32, 4, "x").map(0), graph.variable(f32, 4, "y").map(3)
    executable = compile_program(graph, Copy(x, y))
    exchange, control = ipu.exchange.message_code_bytes, ipu.tile.control_exchange_bytes
    assert held(executable, "exchange_code") == [exchange, 0, 0, exchange, 0]
    assert held(executable, "control_code") == [control, 0, 0, control, 0]


def test_control_code__of_a_copy_between_replicas__is_that_of_an_exchange_on_all_tiles(graph: Graph) -> None:
    pair = Graph(systems.get("m2000").evolve(ipu={"num_tiles": 5}), replicas=4)
    x, y = (pair.variable(f32, 4, name).map(0) for name in "xy")
    found = compile_program(pair, CrossReplicaCopy(x, y, {0: 1, 1: 0, 2: 3, 3: 2}))
    assert held(found, "control_code") == [pair.system.ipu.tile.control_exchange_bytes] * 5
    (op,) = found.report.ops.rows()
    assert op["control_code_bytes"] == 5 * pair.system.ipu.tile.control_exchange_bytes


def test_exchange_code__many_pieces__takes_an_instruction_for_each(graph: Graph) -> None:
    exchange = graph.system.ipu.exchange
    x, y = graph.variable(f32, (4, 8), "x").map(0), graph.variable(f32, (4, 3), "y").map(3)
    found = held(compile_program(graph, Copy(x[:, 2:5], y)), "exchange_code")
    pieces = exchange.message_code_bytes + 3 * exchange.fragment_code_bytes
    assert found == [pieces, 0, 0, pieces, 0]


def test_exchange_code__of_equal_supersteps__is_there_once_with_the_registers_of_each(graph: Graph) -> None:
    exchange, pairs = graph.system.ipu.exchange, []
    for n in range(3):
        x, y = graph.variable(f32, (16, 8), f"x{n}").map(0), graph.variable(f32, (16, 3), f"y{n}").map(3)
        pairs.append(Copy(x[:, 2:5], y))
    alone = exchange.message_code_bytes + 15 * exchange.fragment_code_bytes
    executable = compile_program(graph, Sequence(*pairs))
    # Both variables and what is in motion.
    bases = 3 * exchange.base_code_bytes
    assert held(executable, "exchange_code") == [alone + 3 * bases, 0, 0, alone + 3 * bases, 0]
    assert [s.exchange_code_bytes for s in executable.plan] == [2 * (alone + bases), 2 * bases, 2 * bases]
    assert [s.exchange_code_users for s in executable.plan] == [3, 3, 3]


def test_exchange_code__shorter_than_the_registers__is_there_for_each_superstep(graph: Graph) -> None:
    exchange, copies = graph.system.ipu.exchange, []
    for n in range(3):
        copies.append(Copy(graph.variable(f32, 4, f"x{n}").map(0), graph.variable(f32, 4, f"y{n}").map(3)))
    executable = compile_program(graph, Sequence(*copies))
    assert held(executable, "exchange_code")[0] == 3 * exchange.message_code_bytes
    assert [s.exchange_code_bytes for s in executable.plan] == [2 * exchange.message_code_bytes] * 3
