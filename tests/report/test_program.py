"""Questions about nodes, uses and edges, on a report whose answers one can check in the head; what files may hold."""

from __future__ import annotations

import io
import json
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.errors import FileFormatError, InvalidOptionError
from abele.report import (
    CODELETS,
    FUNCTION_CALLS,
    OPS,
    PROGRAM_TREE,
    STEPS,
    SUPERSTEP_VARIABLES,
    SUPERSTEPS,
    VARIABLES,
    VERTICES,
    Report,
    Table,
    file,
)
from abele.report.schema import TABLES


@pytest.fixture(scope="module")
def told(report: Report) -> Report:
    """Program 0 fills w, calls a function that reads w and adds to x, twice, and reads x; program 1 reads w.

    Steps:    0 fill w | 1, 2 add (exchange, compute) | 3, 4 add again | 5 read x || 6 read w
    """
    steps = STEPS.table(
        name=["fill", "add: exchange", "add", "add: exchange", "add", "show", "other"],
        kind=["compute", "exchange", "compute", "exchange", "compute", "copy", "copy"],
        program=[0, 0, 0, 0, 0, 0, 1],
        op=[0, 1, 1, 2, 2, 3, 3],
        superstep=[0, 1, 1, 1, 1, 2, 3],
    )
    tree = PROGRAM_TREE.table(
        parent=[-1, 0, 1, 1, 1, 1, -1, 6, -1, 8],
        kind=["Program", "Sequence", "Execute", "Call", "Call", "Copy", "Program", "Copy", "Function", "Execute"],
        name=["main", "", "fill", "f", "f", "show", "other", "other", "f", "add"],
        function=[-1, -1, -1, 8, 8, -1, -1, -1, -1, -1],
        first_step=[0, 0, 0, 1, 3, 5, 6, 6, 1, 1],
        num_steps=[6, 6, 1, 2, 2, 1, 1, 1, 2, 2],
    )
    return replace(
        report,
        steps=steps,
        ops=OPS.table(name=["fill", "add", "add", "show"]),
        program_tree=tree,
        function_calls=FUNCTION_CALLS.table(function=[8, 8], call=[3, 4], first_step=[1, 3]),
        supersteps=SUPERSTEPS.table(name=["fill", "add", "show", "other"]),
        codelets=CODELETS.table(name=["Add"]),
        vertices=VERTICES.table(superstep=[0, 1], codelet=0, num_vertices=[2, 4]),
        superstep_variables=SUPERSTEP_VARIABLES.table(
            superstep=[0, 1, 1, 2, 3],
            variable=[0, 0, 1, 1, 0],
            read_bytes=[0, 64, 8, 32, 64],
            written_bytes=[64, 0, 8, 0, 0],
        ),
        variables=VARIABLES.table(
            name=["w", "x"], type="f32", bytes=[64, 32], shape=["4 x 4", "8"], always_live=[True, False]
        ),
        liveness=report.liveness.select(slice(0)),
    )


def test_steps_of_node__in_a_function__are_those_of_all_calls(told: Report) -> None:
    assert told.steps_of_node(9).tolist() == [1, 2, 3, 4]
    assert told.steps_of_node(4).tolist() == [3, 4]
    assert told.steps_of_node(1).tolist() == [0, 1, 2, 3, 4, 5]
    assert told.nodes_by_step.tolist() == [2, 9, 9, 9, 9, 5, 7]


def test_variables_of__step__are_what_its_superstep_touches(told: Report) -> None:
    assert list(told.variables_of(2).rows()) == [
        {"variable": 0, "read_bytes": 64, "written_bytes": 0},
        {"variable": 1, "read_bytes": 8, "written_bytes": 8},
    ]
    with pytest.raises(InvalidOptionError, match="no step 7"):
        told.variables_of(7)


def test_uses_of__variable__are_all_rows_of_the_steps_that_touch_it(told: Report) -> None:
    assert told.uses_of("x")["step"].tolist() == [1, 2, 3, 4, 5]
    assert told.uses_of(0)["step"].tolist() == [0, 1, 2, 3, 4, 6]
    assert told.uses_of(0)["written_bytes"].tolist() == [64, 0, 0, 0, 0, 0]
    with pytest.raises(InvalidOptionError, match="knows no variable 'z'"):
        told.uses_of("z")


def test_live_at__step__is_what_lives_then(told: Report) -> None:
    now = told.live_at(0)
    assert (now["variable"].tolist(), now["name"].tolist()) == ([1], ["x"])
    assert told.live_at(2)["variable"].tolist() == []


def test_op_edges__partial_writers__all_reach_the_reader(told: Report) -> None:
    found = {(int(r["writer"]), int(r["reader"]), r["variable"]): r["bytes"] for r in told.op_edges().rows()}
    assert found == {(0, 1, 0): 64, (0, 2, 0): 64, (1, 2, 1): 8, (1, 3, 1): 8, (2, 3, 1): 8}
    assert told.op_edges()["shape"].tolist() == ["4 x 4", "4 x 4", "8", "8", "8"]
    assert len(told.op_edges(1)) == 0


def test_op_edges__written_whole_again__hides_earlier_writers(told: Report) -> None:
    steps = STEPS.table(name=["a", "b", "c", "d"], kind="compute", op=[0, 1, 2, 3], superstep=[0, 1, 2, 3])
    table = SUPERSTEP_VARIABLES.table(
        superstep=[0, 1, 2, 3], variable=[0] * 4, read_bytes=[0, 64, 0, 4], written_bytes=[64, 64, 16, 0]
    )
    edges = replace(told, steps=steps, superstep_variables=table).op_edges()
    assert list(zip(edges["writer"].tolist(), edges["reader"].tolist(), strict=True)) == [(0, 1), (1, 3), (2, 3)]


@st.composite
def touching(draw: st.DrawFn) -> tuple[Table, Table]:
    """Steps of two programs, and what their supersteps do to two variables of 64 and 32 B."""
    count = draw(st.integers(1, 6))
    amount = st.sampled_from([0, 8, 32, 64])
    lines = [
        (superstep, variable, min(draw(amount), size), min(draw(amount), size))
        for superstep in range(count)
        for variable, size in enumerate((64, 32))
    ]
    lines = [line for line in lines if line[2] or line[3]]
    names = ("superstep", "variable", "read_bytes", "written_bytes")
    table = SUPERSTEP_VARIABLES.table(**{n: [line[i] for line in lines] for i, n in enumerate(names)})
    order = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, 3)), min_size=1, max_size=10))
    program = sorted(draw(st.integers(0, 1)) for _ in order)
    return STEPS.table(
        name="s", kind="compute", program=program, superstep=[s for s, _ in order], op=[o for _, o in order]
    ), table


def edges_by_hand(steps: Table, table: Table, sizes: tuple[int, ...]) -> set[tuple[int, int, int]]:
    """Writer, reader and variable of each edge of program 0, by going through its steps."""
    found: set[tuple[int, int, int]] = set()
    writers: dict[int, list[int]] = {0: [], 1: []}
    before: object = None
    for step in steps.where("program", 0).rows():
        same, before = before == (step["superstep"], step["op"]), (step["superstep"], step["op"])
        if same:
            continue
        own = [line for line in table.rows() if line["superstep"] == step["superstep"]]
        for line in own:
            if line["read_bytes"]:
                found |= {(w, step["op"], line["variable"]) for w in writers[line["variable"]] if w != step["op"]}
        for line in own:
            if line["written_bytes"] >= sizes[line["variable"]]:
                writers[line["variable"]] = []
            if line["written_bytes"]:
                writers[line["variable"]].append(step["op"])
    return found


@given(touching())
def test_op_edges__any_steps__are_those_found_by_going_through_them(told: Report, made: tuple[Table, Table]) -> None:
    steps, table = made
    edges = replace(told, steps=steps, superstep_variables=table).op_edges()
    found = list(zip(*(edges[n].tolist() for n in ("writer", "reader", "variable")), strict=True))
    assert len(found) == len(set(found))
    assert set(found) == edges_by_hand(steps, table, (64, 32))


def test_op_edges__thousands_of_writers_and_readers__stay_few(told: Report) -> None:
    n = 5000
    steps = STEPS.table(name="s", kind="compute", op=np.arange(2 * n), superstep=np.arange(2 * n))
    table = SUPERSTEP_VARIABLES.table(
        superstep=np.arange(2 * n),
        variable=np.zeros(2 * n),
        read_bytes=np.repeat([0, 4], n),
        written_bytes=np.repeat([4, 0], n),
    )
    edges = replace(told, steps=steps, ops=OPS.table(name=["o"] * 2 * n), superstep_variables=table).op_edges()
    assert len(edges) == 64 * n
    assert edges["writer"].min() == n - 64


# --- files -----------------------------------------------------------------------------------------------------------


def rewritten(path: Path, version: int = 8, **members: np.ndarray | None) -> Path:
    """The file with some arrays replaced, or left out where they are None, as of some version."""
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    for name, values in members.items():
        if values is None:
            del contents[name]
        else:
            stream = io.BytesIO()
            np.lib.format.write_array(stream, values, version=(1, 0))
            contents[name] = stream.getvalue()
    contents["report.json"] = json.dumps(json.loads(contents["report.json"]) | {"version": version}).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path


def test_load__version_6__has_what_that_had_and_the_rest_empty(told: Report, tmp_path: Path) -> None:
    path = tmp_path / "six"
    told.save(path)
    new = {
        f"{name}/{key}"
        for name, schema in TABLES.items()
        for key, spec in schema.columns.items()
        if max(schema.since, spec.since) > 6
    }
    with zipfile.ZipFile(path) as archive:
        gone = [
            m for m in archive.namelist() if m.removesuffix(".npy").removesuffix("_words").removesuffix("_ends") in new
        ]
    loaded = Report.load(rewritten(path, 6, **dict.fromkeys(gone)))
    assert len(gone) > len(new) > 40
    for name, schema in TABLES.items():
        table = getattr(loaded, name)
        if schema.since > 6:
            assert len(table) == 0, name
            continue
        for key, spec in schema.columns.items():
            expected = getattr(told, name)[key].tolist() if spec.since < 7 else [spec.default] * len(table)
            assert table[key].tolist() == expected, (name, key)
    assert loaded.nodes_by_step.tolist() == [-1] * 7
    assert not len(loaded.op_edges())
    assert not len(loaded.variables_of(0))
    loaded.save(tmp_path / "again")
    assert Report.load(tmp_path / "again").to_json() == loaded.to_json()


@pytest.mark.parametrize(
    ("member", "values", "text"),
    [
        ("program_tree/parent.npy", np.array([-1, 0, 1, 1, 1, 1, -1, 7, -1, 8], np.int32), "goes round"),
        ("program_tree/parent.npy", np.array([-2, 0, 1, 1, 1, 1, -1, 6, -1, 8], np.int32), "none may be below -1"),
        ("program_tree/function.npy", np.array([-1, -1, -1, 8, 8, -1, -1, -1, -1, 8], np.int32), "goes round"),
        ("program_tree/function.npy", np.full(10, 10, np.int32), "points outside the program_tree table"),
        ("program_tree/num_steps.npy", np.full(10, 7, np.int32), "points outside the steps table"),
        ("program_tree/num_steps.npy", np.full(10, -1, np.int32), "none may be below 0"),
        ("program_tree/op.npy", np.full(10, 4, np.int32), "points outside the ops table"),
        ("function_calls/function.npy", np.array([8, 3], np.int32), "does not ascend"),
        ("function_calls/call.npy", np.array([3, 99], np.int32), "points outside the program_tree table"),
        ("vertices/superstep.npy", np.array([0, 9], np.int32), "points outside the supersteps table"),
        ("vertices/codelet.npy", np.array([0, 1], np.int32), "points outside the codelets table"),
        ("vertices/slowest_tile.npy", np.array([0, 8], np.int32), "points outside the machine"),
        ("vertices/cycles.npy", np.full(2, 1 << 62, np.int64), "sum of vertices"),
        ("superstep_variables/variable.npy", np.array([0, 0, 1, 2, 0], np.int32), "outside the variables table"),
        ("superstep_variables/read_bytes.npy", np.full(5, -1, np.int64), "none may be below 0"),
        ("variables/op.npy", np.array([4, 0], np.int32), "points outside the ops table"),
    ],
)
def test_load__tables_of_the_program_that_do_not_fit__are_refused_by_name(
    told: Report, tmp_path: Path, member: str, values: np.ndarray, text: str
) -> None:
    told.save(tmp_path / "r")
    with pytest.raises(FileFormatError, match="the report is damaged") as caught:
        Report.load(rewritten(tmp_path / "r", **{member: values}))
    assert text in str(caught.value)


def test_save__source_files__are_told_from_the_root_of_their_project(told: Report, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "pyproject.toml").touch()
    place = str(tmp_path / "project" / "net.py")
    placed = replace(
        told,
        supersteps=SUPERSTEPS.table(name=["a"] * 4, file=[place] * 4),
        codelets=CODELETS.table(name=["Add"], file=[place]),
        variables=VARIABLES.table(name=["w", "x"], file=[place] * 2),
    )
    placed.save(tmp_path / "r")
    content = (tmp_path / "r").read_bytes()
    assert str(tmp_path).encode() not in content
    assert Report.load(tmp_path / "r").variables["file"].tolist() == ["net.py"] * 2


def test_questions__hostile_counts__are_answered_in_bounded_time(told: Report) -> None:
    n = 30_000
    tree = PROGRAM_TREE.table(
        parent=np.arange(n) - 1,
        kind="Function",
        name="x",
        first_step=np.zeros(n),
        num_steps=np.full(n, len(told.steps)),
    )
    calls = FUNCTION_CALLS.table(function=np.zeros(n), call=np.full(n, n - 1), first_step=np.zeros(n))
    hostile = replace(told, program_tree=tree, function_calls=calls)
    start = time.process_time()
    assert len(hostile.nodes_by_step) == 7
    assert len(hostile.steps_of_node(n - 1)) <= 7
    assert time.process_time() - start < 2.0


def test_format_version__of_new_files__is_twelve() -> None:
    assert file.KIND.version == 12
