"""Relations with tiles: what each tile does and holds, from programs whose figures one can work out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import abele as ab
from abele.report import Report
from compiler.support import small_system


@ab.codelet
class Grow(ab.Vertex):
    x: ab.Input[ab.Vector[ab.f32]]
    y: ab.Output[ab.Vector[ab.f32]]

    def compute(self) -> None:
        for i in range(len(self.x)):
            self.y[i] = self.x[i] + 1.0


def moved(num_tiles: int = 8) -> ab.Executable:
    """Tiles 1 to 3 add one to what tile 0 holds, twice; the result of the second time goes back to tile 0."""
    graph = ab.Graph(small_system(num_tiles))
    x = graph.variable(ab.f32, (3, 16), name="x").map(0)
    y = graph.variable(ab.f32, (3, 16), name="y").map_rows([1, 2, 3])
    step = graph.compute_set("grow")
    step.vertices(Grow, tile=np.array([1, 2, 3]), x=x, y=y)
    body = ab.Sequence(ab.Execute(step), ab.Copy(y, x))
    return ab.compile_program(graph, ab.Sequence(graph_in(graph, x), ab.Repeat(2, body), graph_out(graph, x)))


def graph_in(graph: ab.Graph, x: ab.Tensor) -> ab.Copy:
    return ab.Copy(graph.host_stream_in("in", ab.f32, x.shape), x)


def graph_out(graph: ab.Graph, x: ab.Tensor) -> ab.Copy:
    return ab.Copy(x, graph.host_stream_out("out", ab.f32, x.shape))


@pytest.fixture(scope="module")
def report() -> Report:
    return moved().report


def row_of(report: Report, name: str) -> int:
    return report.steps["name"].tolist().index(name)


def test_phase_tiles__exchange_and_compute__are_those_of_the_tiles_that_take_part(report: Report) -> None:
    bring = row_of(report, "grow: exchange")
    assert report.step_by_tile("sent_bytes", bring).tolist() == [192, 0, 0, 0, 0, 0, 0, 0]
    assert report.step_by_tile("received_bytes", bring).tolist() == [0, 64, 64, 64, 0, 0, 0, 0]
    work = report.step_by_tile("compute_cycles", row_of(report, "grow"))
    assert (work > 0).tolist() == [False, True, True, True] + [False] * 4
    assert work.max() == report.steps["compute_cycles"][row_of(report, "grow")]


def test_program_tiles__loop__counts_each_round(report: Report) -> None:
    steps = range(len(report.steps))
    for column in ("compute_cycles", "sent_bytes", "received_bytes"):
        each = sum(report.steps["executions"][s] * report.step_by_tile(column, s) for s in steps)
        assert report.program_by_tile(column).tolist() == np.asarray(each).tolist()
    assert report.program_by_tile("sent_bytes").tolist() == [384, 128, 128, 128, 0, 0, 0, 0]


def test_variable_tiles__bytes_of_a_variable__are_where_it_is_mapped(report: Report) -> None:
    assert report.variable_by_tile("x").tolist() == [192] + [0] * 7
    assert report.variable_by_tile("y").tolist() == [0, 64, 64, 64] + [0] * 4


def test_memory_at__worst_step__is_what_the_tiles_are_said_to_need(report: Report) -> None:
    worst = np.max([report.memory_at(s) for s in range(len(report.steps))], axis=0)
    assert worst.tolist() == report.memory.by_tile.tolist()


def test_lifetimes__temporary__is_live_from_its_write_to_its_read(report: Report) -> None:
    names = report.variables["name"].tolist()
    rows = report.lifetimes.where("variable", names.index("y"))
    # It begins with the vertices that write it, behind the exchange of what they read.
    first, last = row_of(report, "grow: exchange") + 1, len(report.steps) - 1
    assert rows["first_step"].tolist() == [first]
    assert rows["last_step"].tolist() in ([last - 1], [last])
    live = report.variables.select(np.array([names.index("y")]))
    assert live["first_step"].tolist() == rows["first_step"].tolist()
    assert live["last_step"].tolist() == rows["last_step"].tolist()


def test_relations__saved_and_loaded__are_the_same(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "r")
    again = Report.load(tmp_path / "r")
    for name in ("phase_tiles", "program_tiles", "variable_tiles", "lifetimes", "buffer_tiles", "step_groups"):
        assert getattr(again, name).to_lists() == getattr(report, name).to_lists(), name
        assert len(getattr(report, name)), name


def test_relations__of_a_larger_machine__have_no_more_rows() -> None:
    small, large = moved(8).report, moved(1000).report
    for name in ("phase_tiles", "program_tiles", "variable_tiles", "lifetimes", "buffer_tiles"):
        assert len(getattr(small, name)) == len(getattr(large, name)), name


def test_phase_tiles__decision__is_received_by_every_tile_in_one_row() -> None:
    graph = ab.Graph(small_system(64))
    flag = graph.variable(ab.bool_, (), name="flag").map(3)
    report = ab.compile_program(graph, ab.If(flag, ab.Sequence(), ab.Sequence())).report
    received = report.step_by_tile("received_bytes", 0)
    assert received.sum() == report.steps["exchanged_bytes"][0]
    assert (received > 0).sum() >= 63
    assert len(report.phase_tiles) <= 3


def test_addresses__of_a_report__are_those_of_the_plan_and_lie_on_the_tiles_of_their_variables(report: Report) -> None:
    table, held = report.addresses, report.variable_tiles
    assert len(table)
    for tile in dict.fromkeys(table["tile"].tolist()):
        mine = table["tile"] == tile
        assert (np.diff(table["address"][mine]) >= 0).all()
        assert table["variable"][mine][0] == -1
        last = held["first_tile"] + held["num_tiles"]
        here = (held["first_tile"] <= tile) & (tile < last)
        assert sorted(table["variable"][mine][1:].tolist()) == held["variable"][here].tolist()
        top = (table["address"] + table["bytes"])[mine].max()
        assert top <= report.memory.by_tile[tile]
