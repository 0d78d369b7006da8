"""Target, graph, tiles, variables, liveness and operations under libpva's names."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from abele import pva
from abele.errors import FileFormatError, InvalidOptionError, MissingDatumError, ReportIndexError
from abele.pva.tiles import CATEGORIES, HELD_ELSEWHERE
from abele.report import LIVENESS, OPS, STEPS, VARIABLE_TILES, VARIABLES, Memory
from pva.kit import bare_report


def test_target__of_a_bow__is_what_libpva_calls_it(dense: pva.Report) -> None:
    target = dense.compilation.target
    assert (target.numIPUs, target.numTiles, target.numTilesPerIPU, target.numReplicas) == (1, 1472, 1472, 1)
    assert target.clockFrequency == 1.85e9
    assert target.bytesPerTile == 638_976
    assert target.totalMemory == target.bytesPerIPU == 1472 * 638_976
    assert (target.architecture, target.type) == ("Bow", "Abele")


def test_graph__counts__are_the_reports(dense: pva.Report) -> None:
    graph, counts = dense.compilation.graph, dense.columns.graph
    found = (graph.numComputeSets, graph.numEdges, graph.numVars, graph.numVertices)
    names = ("num_compute_sets", "num_edges", "num_variables", "num_vertices")
    assert found == tuple(counts[name] for name in names)
    assert min(found) > 0


def test_graph__count_that_a_file_lacks__is_said_to_be_missing() -> None:
    found = pva.openReport(bare_report()).compilation
    with pytest.raises(MissingDatumError, match="reports do not hold compute sets of this graph"):
        found.graph.numComputeSets  # noqa: B018
    target = {name: value for name, value in found._report.target.items() if name != "tile_bytes"}
    with pytest.raises(MissingDatumError, match="tile_bytes of the target"):
        pva.openReport(bare_report(target=target)).compilation.target.totalMemory  # noqa: B018


def test_versions__of_a_report__say_abele(dense: pva.Report) -> None:
    import abele as ab

    assert dense.poplarVersion.string == ab.__version__
    numbers = (dense.poplarVersion.major, dense.poplarVersion.minor, dense.poplarVersion.point)
    assert ".".join(map(str, numbers)) == ab.__version__
    assert not hasattr(dense.poplarVersion, "packageHash")
    assert dense.version.major >= 6
    assert not dense.version.isUnstableFormat
    settings = dense.instrumentationSettings
    assert (settings.computeInstrumentation, settings.externalExchangeInstrumentation) == (False, False)
    assert not settings.hostProfile
    assert pva.openReport(bare_report(meta={"abele_version": "odd.x"})).poplarVersion.major == 0


def test_tiles__categories__add_up_to_what_the_report_has() -> None:
    held = np.arange(9 * 8).reshape(9, 8)
    report = bare_report(memory=Memory(held, 1000))
    tiles = pva.openReport(report).compilation.tiles
    names = report.memory.categories
    for name, parts in CATEGORIES.items():
        expected = held[[names.index(part) for part in parts]].sum(axis=0)
        assert tiles.category(name).tolist() == expected.tolist()
        assert [getattr(tile.memory.category, name).total for tile in tiles] == expected.tolist()
    gaps, temporaries = held[names.index("gaps")], held[names.index("temporaries")]
    assert tiles.includingGaps.tolist() == held.sum(axis=0).tolist()
    assert tiles.excludingGaps.tolist() == (held.sum(axis=0) - gaps).tolist()
    assert tiles.notAlwaysLiveBytes.tolist() == temporaries.tolist()
    assert tiles.alwaysLiveBytes.tolist() == (held.sum(axis=0) - gaps - temporaries).tolist()
    assert tiles[2:4].includingGaps.tolist() == held.sum(axis=0)[2:4].tolist()
    assert [tile.id for tile in tiles[6:]] == [6, 7]


@pytest.mark.parametrize("name", HELD_ELSEWHERE)
def test_category__that_is_part_of_another__says_of_which(name: str) -> None:
    tiles = pva.openReport(bare_report()).compilation.tiles
    assert HELD_ELSEWHERE[name] in CATEGORIES
    assert not hasattr(tiles[0].memory.category, name)
    with pytest.raises(MissingDatumError, match=f"{name} by itself: it is part of {HELD_ELSEWHERE[name]}"):
        tiles.category(name)


def test_category__misspelt__names_the_nearest() -> None:
    with pytest.raises(MissingDatumError) as error:
        pva.openReport(bare_report()).compilation.tiles.category("vertexCod")
    assert error.value.remedy == "did you mean vertexCode?"


def test_tiles__of_a_memory_without_categories__are_zero() -> None:
    report = bare_report(memory=Memory(np.full((1, 8), 7), 1000, ("odd",)))
    tiles = pva.openReport(report).compilation.tiles
    assert tiles.includingGaps.tolist() == tiles.alwaysLiveBytes.tolist() == [7] * 8
    assert tiles.category("variable").tolist() == [0] * 8
    assert tiles[0].memory.category.stack.total == 0


def test_ipus__of_a_report__share_its_tiles() -> None:
    target = {**bare_report().target, "num_ipus": 2}
    report = bare_report(target=target, memory=Memory.of(8, 1000, variables=np.arange(8)))
    first, second = pva.openReport(report).compilation.ipus
    assert [t.id for t in second.tiles] == [4, 5, 6, 7]
    assert second.tiles.includingGaps.tolist() == [4, 5, 6, 7]
    assert (first.id, len(first.tiles)) == (0, 4)
    with pytest.raises(ReportIndexError, match="no IPU 2 among 2 IPU"):
        pva.openReport(report).compilation.ipus[2]


def test_variables__rows_and_arrays__say_the_same() -> None:
    report = bare_report(
        variables=VARIABLES.table(
            name=["w", "x", "layer/w"], type=["f16", "f32", "f32"], bytes=[6, 40, 8], tiles=[1, 2, 1],
            always_live=[True, False, True],
        ),
        variable_tiles=VARIABLE_TILES.table(
            variable=[0, 1, 2], first_tile=[0, 4, 7], num_tiles=[1, 2, 1], bytes=[6, 20, 8], padded_bytes=[8, 24, 8]
        ),
    )  # fmt: skip
    compilation = pva.openReport(report).compilation
    always = compilation.alwaysLiveVariables
    assert [(v.name, v.size, v.bytes, v.type, v.numTiles, v.alwaysLive) for v in always] == [
        ("w", 6, 6, "f16", 1, True),
        ("layer/w", 8, 8, "f32", 1, True),
    ]
    assert always.bytes.tolist() == always.sizes.tolist() == [6, 8]
    assert always.names.tolist() == ["w", "layer/w"]
    assert always.rows.tolist() == [0, 2]
    assert [v.name for v in always.named("layer")] == ["layer/w"]
    assert always[1:].bytes.tolist() == [8]
    assert len(compilation.variables) == 3
    assert compilation.variables[1].bytesByTile.tolist() == [0, 0, 0, 0, 20, 20, 0, 0]
    assert len(always.named("nothing")) == 0


def test_liveness__steps__lead_to_programs_and_variables(dense: pva.Report) -> None:
    found = dense.compilation.livenessProgramSteps
    columns = dense.columns
    assert [s.notAlwaysLiveMemory.bytes for s in found] == found.bytes.tolist()
    assert [s.notAlwaysLiveMemory.maxTileBytes for s in found] == found.maxTileBytes.tolist()
    assert [s.program.row for s in found] == found.steps.tolist() == columns.liveness["step"].tolist()
    for step in found:
        live = [
            columns.variables["name"][row["variable"]]
            for row in columns.lifetimes.rows()
            if row["first_step"] <= step.program.row <= row["last_step"]
        ]
        assert [v.name for v in step.notAlwaysLiveMemory.variables] == live
        assert step.notAlwaysLiveMemory.variables.bytes.sum() <= step.notAlwaysLiveMemory.bytes
    peak = found[int(np.argmax(found.maxTileBytes))]
    assert peak.bytesByTile.max() == columns.memory.by_tile.max()


def test_operations__of_a_report__are_the_rows_of_its_table() -> None:
    report = bare_report(
        steps=STEPS.table(name=["a", "b", "c"], kind="compute", op=[1, -1, 1]),
        ops=OPS.table(name=["x", "y"], kind="poplin.matmul", path=["", "s/t"], cycles=[3, 4], flops=[5, 6], line=[0, 9],
                      file=["", "f.py"], code_bytes=[7, 8]),
    )  # fmt: skip
    first, second = pva.OperationAnalysis(pva.openReport(report)).operations
    assert (second.name, second.cycles, second.flops, second.codeSize) == ("y", 4, 6, 8)
    assert second.debugContext.name == "s/t/y"
    assert (second.debugContext.location.fileName, second.debugContext.location.lineNumber) == ("f.py", 9)
    assert [p.name for p in second.programs] == ["a", "c"]
    assert (first.debugContext.name, first.debugContext.location.fileName, len(first.programs)) == ("x", "", 0)


def test_engine_options__where_the_report_has_none__are_said_to_be_missing() -> None:
    with pytest.raises(MissingDatumError, match="the options of this program"):
        pva.openReport(bare_report()).compilation.engineOptions  # noqa: B018
    options = {"debug.instrument": "true"}
    assert pva.openReport(bare_report(meta={"options": options})).compilation.engineOptions == options


def test_open__file_and_report_in_memory__say_the_same(dense: pva.Report, dense_file: Path) -> None:
    again = pva.openReport(str(dense_file), debugFile="debug.cbor")
    held = pva.openReport(again.columns)
    assert [repr(p) for p in again.compilation.programs] == [repr(p) for p in dense.compilation.programs]
    assert held.execution.totalCycles.total == dense.execution.totalCycles.total


def test_open__profile_of_poplars__is_refused_as_no_report(tmp_path: Path) -> None:
    path = tmp_path / "profile.pop"
    with sqlite3.connect(path) as database:
        database.execute("create table programs (id integer)")
    database.close()
    with pytest.raises(FileFormatError, match=r"profile\.pop"):
        pva.openReport(path)
    with pytest.raises(FileFormatError):
        pva.openReport(tmp_path / "nothing.abele-report")


def test_open__hostile_names__are_text(tmp_path: Path) -> None:
    odd = ["\x1b[2J", "\ud800", "<script>", "a\0b", "", "x" * 60_000]
    report = bare_report(
        steps=STEPS.table(name=odd, kind="compute", block=odd),
        variables=VARIABLES.table(name=odd, type="f32", bytes=4, always_live=True),
        liveness=LIVENESS.table(step=[0], live_bytes=[4]),
    )
    report.save(tmp_path / "r")
    found = pva.openReport(tmp_path / "r")
    assert [v.name for v in found.compilation.alwaysLiveVariables] == odd
    assert [p.name for p in found.compilation.programs if p.row >= 0] == odd
    assert found.compilation.livenessProgramSteps[0].program.name == odd[0]


def test_report__without_steps_operations_and_runs__answers_everything() -> None:
    found = pva.openReport(replace(bare_report(), meta={}))
    compilation = found.compilation
    sequences = (compilation.programs, compilation.alwaysLiveVariables, compilation.livenessProgramSteps)
    assert [len(s) for s in (*sequences, pva.OperationAnalysis(found).operations)] == [0, 0, 0, 0]
    assert compilation.timestamp == ""
    with pytest.raises(InvalidOptionError, match="no type of program"):
        compilation.programs.of_type("Loop")


@pytest.mark.slow
def test_variables__a_million__are_asked_in_a_second() -> None:
    count = 1_000_000
    variables = VARIABLES.table(
        name=[f"layer/{k}" for k in range(count)],
        type="f32",
        bytes=np.arange(count),
        always_live=np.arange(count) % 2 == 0,
    )
    report = pva.openReport(bare_report(variables=variables))
    begin = time.process_time()
    always = report.compilation.alwaysLiveVariables
    assert always.bytes.sum() == (count // 2) * (count // 2 - 1)
    assert always[-1].name == f"layer/{count - 2}"
    assert len(always.names) == count // 2
    assert time.process_time() - begin < 1
