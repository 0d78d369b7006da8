"""Cycles of programs against measurements on a Bow IPU: library formula and launch constants together."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from abele.compiler import compile_program
from abele.graph import Execute, Graph, Sequence, Tensor
from abele.machine import systems
from abele.numerics import f16, f32
from abele.poplibs import popops
from abele.poplibs.poplin.vertices import cost
from abele.poplibs.poplin.vertices.work import Work
from compiler.support import Multi, Reader, small_system

# TessellateIPU's measurements; both had 45 cycles of reading the counter in them, which are taken off here.
ADD = {10: 285, 1024: 1815}
SCALED_SUBTRACT = {64: 330, 128: 422, 256: 620, 512: 998}


def operands(graph: Graph, tiles: int, elements: int) -> tuple[Tensor, Tensor]:
    a, b = (graph.variable(f32, (tiles, elements), n).map_rows(range(tiles)) for n in "ab")
    return a, b


@pytest.mark.parametrize("tiles", [1, 4, 1024])
@pytest.mark.parametrize(("elements", "silicon"), ADD.items())
def test_add__elements_a_tile__is_within_three_percent_of_silicon(tiles: int, elements: int, silicon: int) -> None:
    graph, main = Graph("bow"), Sequence()
    a, b = operands(graph, tiles, elements)
    out = graph.variable(f32, a.shape, "out").map_rows(range(tiles))
    popops.map_with_output(graph, popops._1 + popops._2, [a, b], out, main)
    assert compile_program(graph, main).report.cycles().total == pytest.approx(silicon, rel=0.03)


@pytest.mark.parametrize("scale", ["number", "tensor"])
@pytest.mark.parametrize(("elements", "silicon"), SCALED_SUBTRACT.items())
def test_scaled_subtract__elements_on_one_tile__is_within_three_percent_of_silicon(
    scale: str, elements: int, silicon: int
) -> None:
    graph, main = Graph("bow"), Sequence()
    a, b = operands(graph, 1, elements)
    factor = 0.5 if scale == "number" else graph.variable(f32, (), "scale").map(0)
    popops.scaled_subtract_from(graph, a, b, factor, main)
    assert compile_program(graph, main).report.cycles().total == pytest.approx(silicon, rel=0.03)


@pytest.mark.shared
def test_amp_matmul__wide_weight_loads_and_launch__is_within_two_percent_of_silicon(shared_data: Path) -> None:
    # A supervisor vertex too, and a third measurement: the same launch constant has to hold.
    with (shared_data / "reference" / "amp_matmul_bow_silicon.csv").open() as file:
        points = [(int(row["N"]), float(row["cycles_measured"])) for row in csv.DictReader(file)]
    rows, silicon = (np.array(column) for column in zip(*points, strict=True))
    one, ipu = np.ones_like(rows), systems.get("bow").ipu
    work = Work(f16, f16, one, 16 * one, 16 * one, rows, rows, rows, one, one)
    vertex = cost.amp_1x1(work, 16, ipu.amp.wide_weight_load_bytes_per_cycle)
    assert len(rows) == 64
    assert np.abs((vertex + ipu.launch.compute_set_cycles) / silicon - 1).max() < 0.02


def test_launch__each_kind_of_vertex__pays_what_its_formula_leaves_out() -> None:
    def launch(kind: str) -> int:
        graph = Graph(small_system())
        x = graph.variable(f32, (3, 5), "x").map(0)
        cs = graph.compute_set("step")
        if "multi" in kind:
            cs.vertices(Multi, tile=[0] * 3, x=x, cycles=100)
        if "plain" in kind:
            cs.vertices(Reader, tile=[0] * 3, x=x, cycles=50)
        return int(compile_program(graph, Execute(cs)).report.cycles().sync)

    ipu = small_system().ipu
    plain = ipu.launch.run_all_cycles + ipu.sync.worker_cycles
    assert launch("plain") == ipu.launch.compute_set_cycles + plain
    assert launch("multi") == ipu.launch.compute_set_cycles + 3 * ipu.launch.multi_vertex_cycles
    assert launch("multi, plain") == launch("multi") + plain
