"""The program tree out of steps and the blocks around them."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele import pva
from abele.errors import InvalidOptionError, MissingDatumError
from abele.pva.program_nodes import MOST_DEEP, ProgramNodes
from abele.report import STEPS
from pva.conftest import ROUNDS
from pva.kit import bare_report

Tree = tuple[str, str, list["Tree"]]


def tree_of(rows: list[tuple[str, list[str]]]) -> list[Tree]:
    """Steps and neighbouring ones in equal blocks, written down as one would by hand."""
    found: list[Tree] = []
    for block, group in groupby(rows, key=lambda row: row[1][0] if row[1] else None):
        members = list(group)
        if block is None:
            found += [("OnTileExecute", name, []) for name, _ in members]
        else:
            found.append(("Block", block, tree_of([(name, path[1:]) for name, path in members])))
    return found


def shown(program: pva.Program) -> Tree:
    return program.type.name, program.name, [shown(child) for child in program.children()]


paths = st.lists(st.lists(st.sampled_from("abc"), max_size=4), max_size=12)


@given(st.lists(paths, min_size=1, max_size=3), st.randoms())
def test_tree__of_any_blocks__is_the_one_written_by_hand(programs: list[list[list[str]]], random: object) -> None:
    lines = [(number, path) for number, rows in enumerate(programs) for path in rows]
    steps = STEPS.table(
        name=[f"step {k}" for k in range(len(lines))],
        kind="compute",
        program=[number for number, _ in lines],
        block=["/".join(path) for _, path in lines],
    )
    report = pva.openReport(bare_report(steps=steps, meta={"programs": [f"p{k}" for k in range(len(programs))]}))
    names = [f"step {k}" for k in range(len(lines))]
    expected: list[Tree] = []
    for number in range(len(programs)):
        mine = [(name, path) for name, (owner, path) in zip(names, lines, strict=True) if owner == number]
        expected.append(("Sequence", f"p{number}", tree_of(mine)))
    roots = report.compilation.controlPrograms
    assert [shown(root) for root in roots] == expected
    # The flat list is the tree, each before what is below it, and each step is there once.
    walked = [program for root in roots for program in root.walk()]
    assert walked == list(report.compilation.programs)
    assert [p.row for p in walked if p.row >= 0] == list(range(len(lines)))
    assert [report.nodes.of_step[p.row] for p in walked if p.row >= 0] == [p._id for p in walked if p.row >= 0]
    for depth, level in enumerate(report.nodes.blocks):
        for row, node in enumerate(level.tolist()):
            inside = len(lines[row][1]) > depth
            assert (node >= 0) == inside
            if inside:
                assert report.compilation.programs[node].name == lines[row][1][depth]
                assert row in [p.row for p in report.compilation.programs[node].walk()]


def test_tree__rows_of_programs_mixed__are_put_together_by_program() -> None:
    steps = STEPS.table(name=["a", "b", "c"], kind="compute", program=[1, 0, 1], block=["x", "x", "x"])
    first, second = pva.openReport(bare_report(steps=steps)).compilation.controlPrograms
    assert shown(first) == ("Sequence", "program 0", [("Block", "x", [("OnTileExecute", "b", [])])])
    assert [p.name for p in second.walk()] == ["program 1", "x", "a", "c"]


def test_tree__without_steps__has_the_control_programs() -> None:
    found = pva.openReport(bare_report(meta={"programs": ["main"]})).compilation
    assert [p.name for p in found.programs] == ["main"]
    assert len(found.controlPrograms[0].children()) == 0
    assert len(pva.openReport(bare_report()).compilation.programs) == 0


def test_tree__program_of_a_huge_number__is_one_program() -> None:
    steps = STEPS.table(name=["a"], kind="compute", program=[2**31 - 1])
    found = pva.openReport(bare_report(steps=steps)).compilation.controlPrograms
    assert [(p.name, len(p.children())) for p in found] == [(f"program {2**31 - 1}", 1)]


def test_tree__blocks_without_end__are_cut_at_a_depth() -> None:
    steps = STEPS.table(name=["a", "b"], kind="compute", block=["/".join("x" * 30_000), ""])
    nodes = ProgramNodes(bare_report(steps=steps))
    assert nodes.columns.depth.max() == MOST_DEEP + 1
    assert len(nodes.name(int(nodes.blocks[-1][0]))) == 2 * (30_000 - MOST_DEEP + 1) - 1


def test_types__of_kinds_of_steps__are_libpvas() -> None:
    steps = STEPS.table(
        name=["a", "b", "c", "d", "e", "f"],
        kind=["compute", "copy", "exchange", "exchange", "stream", "control"],
        partner=["", "", "", "replicas", "streaming memory", ""],
        num_vertices=[7, 0, 0, 0, 0, 0],
        executions=[5, 1, 1, 1, 1, 1],
    )
    programs = pva.openReport(bare_report(steps=steps)).compilation.programs
    types = ["OnTileExecute", "OnTileExecute", "DoExchange", "GlobalExchange", "StreamCopyMid", "Control"]
    assert [p.type.name for p in programs] == ["Sequence", *types]
    assert [p.name for p in programs.of_type("OnTileExecute")] == ["a", "b"]
    assert programs.of_type(pva.Program.Type.Control)[0].kind == "control"
    assert programs[5].partner == "streaming memory"
    assert programs[1].computeset.numVertices == 7
    assert [p.executions for p in programs] == [0, 5, 1, 1, 1, 1, 1]
    assert [p.name for p in programs.named("d")] == ["d"]
    assert programs.steps.tolist() == [-1, 0, 1, 2, 3, 4, 5]
    with pytest.raises(InvalidOptionError, match="DoExchnge") as error:
        programs.of_type("DoExchnge")
    assert error.value.remedy == "did you mean 'DoExchange'?"


def test_visitor__each_type__has_a_method_that_is_called_alone() -> None:
    steps = STEPS.table(
        name=list("abcde"),
        kind=["compute", "exchange", "exchange", "stream", "control"],
        partner=["", "", "replicas", "", ""],
        block=["x", "", "", "", ""],
    )
    called: list[str] = []

    class Visitor(pva.ProgramVisitor):
        def __getattribute__(self, name: str) -> object:
            if name.startswith("visit"):
                called.append(name)
            return super().__getattribute__(name)

    programs = pva.openReport(bare_report(steps=steps)).compilation.programs
    for program in programs:
        program.accept(Visitor())
    assert called == [f"visit{p.type.name}" for p in programs]
    assert all(hasattr(pva.ProgramVisitor, f"visit{each.name}") for each in pva.ProgramType)


def test_program__what_it_has_not__is_said_and_hasattr_is_false(dense: pva.Report) -> None:
    train = dense.compilation.controlPrograms[0]
    step = next(p for p in train.walk() if p.type == pva.ProgramType.OnTileExecute)
    for owner, name in [(train, "computeset"), (train, "vars"), (step, "function")]:
        assert not hasattr(owner, name)
        with pytest.raises(MissingDatumError, match="reports do not hold"):
            getattr(owner, name)


def test_program__of_a_report_of_an_earlier_version__lacks_vertices_and_variables() -> None:
    steps = STEPS.table(name=["a"], kind="compute", num_vertices=3, superstep=0)
    step = pva.openReport(bare_report(steps=steps)).compilation.programs[1]
    with pytest.raises(MissingDatumError, match="vertices of compute sets here"):
        step.computeset.vertices  # noqa: B018
    with pytest.raises(MissingDatumError, match="which variables a step uses here"):
        step.vars  # noqa: B018


def test_vertices_and_variables__of_a_product__are_those_of_its_superstep(dense: pva.Report) -> None:
    columns = dense.columns
    for program in dense.compilation.programs.of_type("OnTileExecute"):
        superstep = columns.steps["superstep"][program.row]
        groups = [
            (columns.codelets["name"][row["codelet"]], row["num_vertices"], row["tiles"], row["max_cycles"])
            for row in columns.vertices.rows()
            if row["superstep"] == superstep
        ]
        vertices = program.computeset.vertices
        expected = groups if program.computeset.numVertices else []
        assert [(v.name, v.count, v.numTiles, v.maxCycles) for v in vertices] == expected
        assert vertices.counts.sum() == program.computeset.numVertices
        used = [
            (columns.variables["name"][row["variable"]], row["read_bytes"], row["written_bytes"])
            for row in columns.superstep_variables.rows()
            if row["superstep"] == superstep
        ]
        assert [(v.name, v.readBytes, v.writtenBytes) for v in program.vars] == used
        assert program.vars.variables.bytes.tolist() == [v.size for v in program.vars]
    (halves,) = dense.compilation.programs.of_type("OnTileExecute").named("halves")
    assert [v.name for v in halves.vars] == ["x"]
    assert halves.vars[0].shape == (64, 32)
    assert halves.vars[0].location.fileName.endswith("conftest.py")
    assert halves.computeset.numActiveTiles == 64


def test_program__of_a_step__leads_to_its_operation(dense: pva.Report) -> None:
    for program in dense.compilation.programs:
        op = -1 if program.row < 0 else dense.columns.steps["op"][program.row]
        assert (program.operation is None) == (op < 0)
        if program.operation is not None:
            assert program.operation.name == dense.columns.ops["name"][op]
            assert program in list(program.operation.programs)


def test_tree__of_a_real_program__has_loops_blocks_and_calls(dense: pva.Report) -> None:
    train = dense.compilation.controlPrograms[0]
    (loop,) = train.children()
    assert (loop.type.name, loop.count) == ("Repeat", ROUNDS)
    (whole,) = loop.children()
    assert (whole.type, whole.name) == (pva.ProgramType.Block, "round")
    assert whole.location.fileName.endswith("conftest.py")
    product = next(p for p in train.walk() if p.name == "product")
    calls = [p for p in product.walk() if p.type == pva.ProgramType.LibraryCall]
    assert [c.name for c in calls] == ["layer/dense"]
    inside = [p.row for p in product.walk() if p.row >= 0]
    assert inside == list(range(len(inside)))


def test_operation__categories_of_state_and_code__add_up_to_those_of_the_tiles(dense: pva.Report) -> None:
    operations, tiles = pva.OperationAnalysis(dense).operations, dense.compilation.tiles
    for name in ("vertexInstanceState", "vertexCode", "controlCode", "internalExchangeCode"):
        assert operations.category(name).sum() == tiles.category(name).sum()
        assert [getattr(o.category, name).total for o in operations] == operations.category(name).tolist()
        assert operations.category(name, tile=3).sum() == tiles.category(name)[3]
    with pytest.raises(MissingDatumError, match="variable by operation"):
        operations.category("variable")
    with pytest.raises(MissingDatumError, match="did you mean vertexCode"):
        operations[0].category.vertexCodes  # noqa: B018
