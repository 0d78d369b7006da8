"""Supersteps, their vertices by codelet and the variables that they touch: held against totals and brute force."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import abele as ab
from abele.compiler import account
from abele.report import Report
from compiler.support import SLOTS, Reader, Update, Writer, small_system


def two_ipus() -> Report:
    """Two layers on one IPU and the same on the next, each with two codelets, and a copy between the IPUs."""
    graph = ab.Graph(small_system(num_ipus=2))
    steps: list[ab.Program] = []
    made: list[ab.Tensor] = []
    for ipu in range(2):
        for layer in range(2):
            tiles = 8 * ipu + np.arange(4)
            x = graph.variable(ab.f32, (4, 16), f"x{ipu}{layer}").map_rows(tiles)
            y = graph.variable(ab.f32, (4, 16), f"y{ipu}{layer}").map_rows(np.roll(tiles, 1))
            made.append(x)
            work = graph.compute_set(f"work{layer}")
            work.vertices(Reader, tile=np.repeat(tiles, 2), x=x.reshape((8, 8)))
            work.vertices(Writer, tile=tiles, y=y)
            steps += [ab.Execute(work), ab.Execute(work)]
    steps.append(ab.Copy(made[0], made[2]))
    return ab.compile_program(graph, ab.Sequence(*steps)).report


@pytest.fixture(scope="module")
def report() -> Report:
    return two_ipus()


def test_supersteps__steps_of_one_compute_set__share_one(report: Report) -> None:
    names = report.supersteps["name"].tolist()
    assert names == ["work0", "work1", "work0", "work1", "copy"]
    assert set(report.supersteps["kind"][report.steps["superstep"]]) == {"execute", "copy"}
    assert report.supersteps["file"].tolist() == [__file__] * 5
    assert (report.supersteps["line"] > 0).all()


def test_vertices__equal_steps_further_on__are_on_tiles_of_their_own(report: Report) -> None:
    vertices, names = report.vertices, report.codelets["name"]
    assert [(int(s), names[c]) for s, c in zip(vertices["superstep"], vertices["codelet"], strict=True)] == [
        (s, name) for s in range(4) for name in ("Reader", "Writer")
    ]
    assert vertices["num_vertices"].tolist() == [8, 4] * 4
    assert vertices["tiles"].tolist() == [4] * 8
    assert vertices["max_cycles"].tolist() == [6 * SLOTS] * 8
    assert vertices["cycles"].tolist() == [8 * 6 * SLOTS, 4 * 6 * SLOTS] * 4
    assert (vertices["slowest_tile"] // 8).tolist() == [0] * 4 + [1] * 4
    assert not vertices["assumed"].any()
    assert report.codelets["tiles"].tolist() == [8, 8]


def check_sums(report: Report) -> None:
    """Hold sums over relations to the other tables."""
    totals, vertices, supersteps, codelets = (
        report.memory.totals(),
        report.vertices,
        report.supersteps,
        report.codelets,
    )
    assert vertices["state_bytes"].sum() == supersteps["vertex_state_bytes"].sum() == totals["vertex_state"]
    assert vertices["num_vertices"].sum() == supersteps["num_vertices"].sum() == report.graph["num_vertices"]
    assert supersteps["num_edges"].sum() == report.graph["num_edges"]
    assert (codelets["code_bytes"] * codelets["tiles"]).sum() == totals["vertex_code"]
    assert supersteps["exchange_code_bytes"].sum() == totals["exchange_code"]
    table = report.buffer_tiles
    each = np.bincount(table["superstep"], weights=table["bytes"] * table["num_tiles"], minlength=len(supersteps))
    assert supersteps["buffer_bytes"].tolist() == each.tolist()
    live = (
        report.liveness["live_bytes"] - supersteps["buffer_bytes"][report.steps["superstep"][report.liveness["step"]]]
    )
    padded = report.variable_tiles
    size = np.bincount(
        padded["variable"], weights=padded["padded_bytes"] * padded["num_tiles"], minlength=len(report.variables)
    )
    sent = report.sent_tiles
    for row in range(0, len(live), max(len(live) // 50, 1)):
        step = int(report.liveness["step"][row])
        free = ((sent["first_step"] <= step) & (step <= sent["last_step"])) @ (sent["bytes"] * sent["num_tiles"])
        assert size[report.live_at(step)["variable"]].sum() - free == live[row]


def test_relations__of_a_program_on_two_ipus__add_up_to_the_totals(report: Report) -> None:
    check_sums(report)


@pytest.mark.parametrize("kind", ["matmul", "reduction", "control"])
def test_relations__of_library_calls__add_up_to_the_totals(kind: str) -> None:
    from abele.poplibs import poplin, popops

    graph = ab.Graph(ab.machine.systems.get("bow-2000").evolve(ipu={"num_tiles": 64}, num_ipus=2, name="small"))
    program = ab.Sequence()
    a = graph.variable(ab.f32, (24, 40), "a").map_linear()
    b = graph.variable(ab.f32, (40, 16), "b").map_linear()
    c = poplin.matmul(graph, a, b, program)
    if kind == "reduction":
        popops.reduce(graph, c, [0], "add", program)
    if kind == "control":
        flag = graph.variable(ab.bool_, (), "flag").map(0)
        program = ab.Sequence(ab.If(flag, program, ab.Repeat(2, program)))
    report = ab.compile_program(graph, program).report
    check_sums(report)
    slowest = np.zeros(len(report.supersteps), dtype=np.int64)
    np.maximum.at(slowest, report.vertices["superstep"], report.vertices["max_cycles"])
    compute = report.steps.where("kind", "compute")
    assert (slowest[compute["superstep"]] <= compute["compute_cycles"]).all()


def touched(report: Report, step: int) -> dict[str, tuple[int, int]]:
    found = report.variables_of(step)
    names = report.variables["name"][found["variable"]]
    return {
        str(n): (int(r), int(w)) for n, r, w in zip(names, found["read_bytes"], found["written_bytes"], strict=True)
    }


@given(data=st.data())
def test_superstep_variables__random_views__are_the_elements_that_vertices_and_copies_name(data: st.DataObject) -> None:
    graph = ab.Graph(small_system())
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    x, y, z = (graph.variable(ab.f32, (12,), n).map_linear() for n in "xyz")
    both = ab.concat([x, y])

    def some() -> tuple[int, int]:
        begin, end = sorted(rng.choice(25, 2, replace=False).tolist())
        return begin, end

    pieces = [some() for _ in range(data.draw(st.integers(1, 4)))]
    work = graph.compute_set("work")
    for begin, end in pieces:
        work.vertex(Reader, tile=int(rng.integers(8)), x=both[begin:end])
    own = sorted(rng.choice(13, 2, replace=False).tolist())
    if data.draw(st.booleans()):
        work.vertex(Update, tile=3, x=both[slice(*pieces[0])], y=z[own[0] : own[1]])
    source, target = some(), sorted(rng.choice(13, 2, replace=False).tolist())
    size = min(source[1] - source[0], target[1] - target[0])
    copy = ab.Copy(both[source[0] : source[0] + size], z[target[0] : target[0] + size])
    report = ab.compile_program(graph, ab.Sequence(ab.Execute(work), copy)).report
    read = {e for begin, end in pieces for e in range(begin, end)}
    expected = {"x": (4 * len(read & set(range(12))), 0), "y": (4 * len(read - set(range(12))), 0)}
    if any(name == "Update" for name in report.codelets["name"]):
        expected["z"] = (4 * (own[1] - own[0]),) * 2
    assert touched(report, 0) == {n: both for n, both in expected.items() if any(both)}
    read = set(range(source[0], source[0] + size))
    expected = {"x": (4 * len(read & set(range(12))), 0), "y": (4 * len(read - set(range(12))), 0), "z": (0, 4 * size)}
    assert touched(report, len(report.steps) - 1) == {n: both for n, both in expected.items() if any(both)}


def test_superstep_variables__any_program__touch_what_lives_then(report: Report) -> None:
    steps, table = report.steps, report.superstep_variables
    size = report.variables["bytes"][table["variable"]]
    assert (np.maximum(table["read_bytes"], table["written_bytes"]) <= size).all()
    assert ((table["read_bytes"] > 0) | (table["written_bytes"] > 0)).all()
    always = report.variables["always_live"]
    for step in range(len(steps)):
        rows = report.variables_of(step)["variable"]
        assert set(rows[~always[rows]].tolist()) <= set(report.live_at(step)["variable"].tolist())


def test_variables__what_is_known_of_them__is_told() -> None:
    graph = ab.Graph(small_system())
    fixed = graph.constant(ab.f32, (8,), np.ones(8, np.float32), name="fixed").map(0)
    seen = graph.variable(ab.f32, (2, 4), name="seen").map(0)
    graph.expose(seen, "seen/all")
    kept = graph.variable(ab.f32, (8,), name="kept").map(1)
    passing = graph.variable(ab.f32, (), name="passing").map(0)
    started = graph.variable(ab.f32, (8,), name="started").map(1)
    graph.initialise(started, np.arange(8, dtype=np.float32))
    one = passing.reshape((1,))
    steps = [ab.Copy(fixed, seen.flatten()), ab.Copy(kept[:1], one), ab.Copy(one, kept[1:2])]
    report = ab.compile_program(
        graph, ab.Sequence(*steps, ab.Copy(started[:1], kept[2:3]), ab.Copy(kept, started))
    ).report
    rows = {row["name"]: row for row in report.variables.rows()}
    assert {name: row["shape"] for name, row in rows.items()} == {
        "fixed": "8", "seen": "2 x 4", "kept": "8", "passing": "", "started": "8",
    }  # fmt: skip
    assert rows["fixed"]["role"] == "constant"
    assert rows["kept"]["role"] == "kept"
    assert rows["started"]["role"] == "initial data"
    assert rows["passing"]["role"] == "temporary"
    assert rows["seen"]["handle"] == "seen/all"
    assert all(row["file"] == __file__ and row["line"] > 0 for row in rows.values())
    assert rows["passing"]["op"] == report.steps["op"][1]
    assert rows["fixed"]["op"] == -1


def test_tables__saved_and_loaded__are_the_same(report: Report, tmp_path: Path) -> None:
    report.save(tmp_path / "r", full_paths=True)
    loaded = Report.load(tmp_path / "r")
    for name in ("supersteps", "codelets", "vertices", "superstep_variables", "variables", "program_tree"):
        assert getattr(loaded, name).to_lists() == getattr(report, name).to_lists(), name
    assert loaded.op_edges().to_lists() == report.op_edges().to_lists()


def test_report__nobody_looks_into_the_tables_of_the_program__they_are_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[str] = []
    for name in (
        "tree_tables",
        "superstep_tables",
        "superstep_variables",
        "ipu_tables",
        "exchange_blocks",
        "whole_run",
    ):
        original = getattr(account, name)

        def noted(*args: object, name: str = name, original: Callable[..., object] = original) -> object:
            made.append(name)
            return original(*args)

        monkeypatch.setattr(account, name, noted)
    report = two_ipus()
    assert report.total_cycles > 0
    assert made == []
    assert report.summary()
    energy = ["superstep_variables", "ipu_tables"]
    assert made == energy
    assert len(report.vertices)
    assert len(report.codelets)
    assert made == [*energy, "superstep_tables"]
    assert len(report.run_spans)
    assert len(report.run_loops) == 0
    assert made == [*energy, "superstep_tables", "whole_run"]
