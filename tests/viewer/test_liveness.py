"""Live memory at each step, against sums over dense lifetimes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import abele as ab
from abele.errors import InvalidOptionError
from abele.poplibs import poplin, popops
from abele.report import Memory, Report
from abele.report.schema import VARIABLES
from abele.viewer.answers import answer
from abele.viewer.answers.live_curve import live_bytes, peaks, variable_groups
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer
from random_reports import RandomReport, random_report


@pytest.fixture(params=[1, 2])
def made(request: pytest.FixtureRequest) -> RandomReport:
    return random_report(request.param)


def ask(made: RandomReport, question: str, **params: Any) -> Answer:
    opened = Opened("random", "random", made.report)
    return answer(opened, question, Params({name: str(value) for name, value in params.items()}))


def brute(made: RandomReport, tiles: list[int]) -> Any:
    """Bytes live and not always so on some tiles, at each place of the curve."""
    steps = made.report.liveness["step"]
    return np.array(
        [
            made.padded[made.lives[:, s]][:, tiles].sum() + (made.moving - made.sent)[s, tiles].sum()
            for s in steps.tolist()
        ]
    )


ALL = list(range(64))


@pytest.mark.parametrize("by", ["none", "type", "scope", "role"])
@pytest.mark.parametrize(
    ("source", "text", "tiles"),
    [("chip", "", ALL), ("ipu:1", "", list(range(32, 64))), ("tiles", "3, 10-12", [3, 10, 11, 12]), ("tiles", "", ALL)],
)
def test_liveness_curve__every_source_and_division__adds_up_to_what_lives(
    made: RandomReport, by: str, source: str, text: str, tiles: list[int]
) -> None:
    found = ask(made, "liveness.curve", source=source, tiles=text, by=by, base=0)
    assert found.arrays["values"].sum(axis=0).tolist() == brute(made, tiles).tolist()
    assert found.arrays["step"].tolist() == made.report.liveness["step"].tolist()
    assert found.head["greatest"] == brute(made, tiles).max()


def test_liveness_curve__with_its_base__is_memory_at_each_step(made: RandomReport) -> None:
    found = ask(made, "liveness.curve", source="tiles", tiles="7", base=1)
    held = [made.report.memory_at(step)[7] for step in made.report.liveness["step"].tolist()]
    assert found.arrays["values"].sum(axis=0).tolist() == held
    assert found.head["parts"][0] == "always live"
    assert found.head["available"] == made.report.memory.available_bytes


def test_liveness_curve__chip_and_most__are_what_the_report_tells(made: RandomReport) -> None:
    liveness = made.report.liveness
    chip = ask(made, "liveness.curve", source="chip", base=0)
    assert chip.arrays["values"].sum(axis=0).tolist() == liveness["live_bytes"].tolist()
    most = ask(made, "liveness.curve", source="most")
    assert most.arrays["values"][0].tolist() == liveness["max_tile_bytes"].tolist()
    assert liveness["max_tile_bytes"].tolist() == [
        max(brute(made, [tile])[at] for tile in ALL) for at in range(len(liveness))
    ]


def test_liveness_curve__fullest__is_the_tile_that_memory_names(made: RandomReport) -> None:
    found = ask(made, "liveness.curve", source="fullest", base=0)
    assert found.arrays["values"].sum(axis=0).tolist() == brute(made, [made.report.memory.fullest_tile]).tolist()


@pytest.mark.parametrize("source", ["ipu:2", "ipu:x", "tile", "ipu:99999999999999999999"])
def test_liveness_curve__no_such_source__is_refused(made: RandomReport, source: str) -> None:
    with pytest.raises(InvalidOptionError, match="has no curve"):
        ask(made, "liveness.curve", source=source)


def test_live_bytes__temporaries_of_memory__are_its_maximum(made: RandomReport) -> None:
    memory = made.report.memory
    for tile in (0, 13, 63):
        at_worst = memory.bytes[memory.categories.index("temporaries"), tile]
        assert live_bytes(made.report, np.array([tile])).max() == at_worst


def test_peaks__plateaus_and_ends__are_found_highest_first() -> None:
    assert peaks(np.array([5])) == [0]
    assert peaks(np.array([], np.int64)) == []
    assert peaks(np.array([1, 3, 3, 2, 5, 4, 4, 6])) == [7, 4, 1]
    assert peaks(np.array([9, 1, 1, 1, 8])) == [0, 4]
    assert peaks(np.zeros(5, np.int64)) == [0]


def test_peaks__two_that_are_close_on_a_long_axis__are_told_once() -> None:
    total = np.ones(6_000, np.int64)
    total[[1_000, 1_010, 3_000]] = [50, 49, 20]
    assert peaks(total)[:2] == [1_000, 3_000]


@pytest.mark.parametrize("window", [(0, 27), (5, 9), (26, 27), (0, 1)])
def test_liveness_lifetimes__a_window__are_those_that_live_in_it_largest_first(
    made: RandomReport, window: tuple[int, int]
) -> None:
    steps = made.report.liveness["step"]
    found = ask(made, "liveness.lifetimes", source="chip", first=window[0], last=window[1])
    size = made.padded.sum(axis=1)
    bars: dict[int, list[tuple[int, int]]] = {}
    for of, first, last in zip(*(found.arrays[name].tolist() for name in ("of", "first", "last")), strict=True):
        bars.setdefault(int(found.arrays["row"][of]), []).append((first, last))
    for row in np.flatnonzero(made.lives.any(axis=1)).tolist():
        alive = [at for at in range(*window) if made.lives[row, steps[at]]]
        if alive and size[row]:
            covered = {place for first, last in bars[row] for place in range(first, last + 1)}
            assert set(alive) <= covered
    for row, spans in bars.items():
        for first, last in spans:
            assert all(made.lives[row, steps[at]] for at in range(first, last + 1)) or first == last
    assert found.arrays["bytes"].tolist() == sorted(found.arrays["bytes"].tolist(), reverse=True)
    assert found.arrays["bytes"].tolist() == size[found.arrays["row"]].tolist()
    assert found.head["name"] == [str(made.report.variables["name"][row]) for row in found.arrays["row"]]


def test_liveness_lifetimes__fewer_than_there_are__are_the_largest(made: RandomReport) -> None:
    whole = ask(made, "liveness.lifetimes", source="chip")
    some = ask(made, "liveness.lifetimes", source="chip", count=3)
    assert some.head["found"] == whole.head["found"]
    assert some.arrays["row"].tolist() == whole.arrays["row"][:3].tolist()
    assert some.arrays["of"].max() <= 2


def test_liveness_at__two_steps__are_the_variables_of_either(made: RandomReport) -> None:
    found = ask(made, "liveness.at", source="tiles", tiles="3, 9", steps="10,25", count=1_000)
    here = made.padded[:, [3, 9]].sum(axis=1)
    wanted = (made.lives[:, 10] | made.lives[:, 25]) & (here > 0)
    rows = found.arrays["row"]
    assert rows.tolist() == np.flatnonzero(wanted).tolist()
    assert found.arrays["live0"].tolist() == np.where(made.lives[:, 10], here, 0)[rows].tolist()
    assert found.arrays["live1"].tolist() == np.where(made.lives[:, 25], here, 0)[rows].tolist()
    ordered = ask(made, "liveness.at", source="tiles", tiles="3, 9", steps="10,25", sort="-live1", count=1_000)
    assert ordered.arrays["live1"].tolist() == sorted(found.arrays["live1"].tolist(), reverse=True)


def test_liveness_at__always__are_those_that_always_live(made: RandomReport) -> None:
    found = ask(made, "liveness.at", source="tiles", tiles="3", always=1, count=1_000)
    assert found.arrays["row"].tolist() == np.flatnonzero(made.always & (made.held[:, 3] > 0)).tolist()


@pytest.mark.parametrize("steps", ["40", "-1", "1,x", "1.5", "99999999999999999999"])
def test_liveness_at__no_such_step__is_refused(made: RandomReport, steps: str) -> None:
    with pytest.raises(InvalidOptionError, match="no step"):
        ask(made, "liveness.at", steps=steps)


@pytest.mark.parametrize("by", ["line", "op", "scope", "type", "role"])
def test_liveness_groups__every_kind__adds_up_to_what_lives(made: RandomReport, by: str) -> None:
    found = ask(made, "liveness.groups", source="chip", steps="9,24,30", by=by)
    sums = found.arrays["bytes"].sum(axis=1) + found.arrays["moving"]
    wanted = [made.padded[made.lives[:, s]].sum() + made.moving[s].sum() for s in (9, 24, 30)]
    assert sums.tolist() == wanted
    alive = made.lives[:, 9] | made.lives[:, 24] | made.lives[:, 30]
    assert found.arrays["variables"].sum() == alive.sum()
    assert len(set(found.head["name"])) == len(found.head["name"])


def test_variable_groups__line__is_of_the_operation_that_writes_first(made: RandomReport) -> None:
    names, code = variable_groups(made.report, "line")
    report = made.report
    for row, first in enumerate(report.variables["first_step"].tolist()):
        op = int(report.steps["op"][first]) if first >= 0 else -1
        file = str(report.ops["file"][op]) if op >= 0 else ""
        assert names[code[row]] == (f"{file}:{report.ops['line'][op]}" if file else "of no known line")


def test_variable_groups__one_scope_around_all__is_told_by_the_scopes_in_it() -> None:
    made = random_report(1)
    names, _ = variable_groups(made.report, "scope")
    assert set(names) == {f"layer{i}" for i in range(4)}
    columns = {name: made.report.variables[name] for name in made.report.variables.names}
    columns["name"] = np.array([f"model/{name}" for name in columns["name"]], dtype=object)
    nested = replace(made.report, variables=VARIABLES.table(**columns))
    assert set(variable_groups(nested, "scope")[0]) == {f"model/layer{i}" for i in range(4)}


def test_liveness_floor__each_step__is_memory_there_rounded_up_by_less_than_a_unit(made: RandomReport) -> None:
    for step in (0, 11, 39):
        found = ask(made, "liveness.floor", step=step)
        exact = made.report.memory_at(step)
        told = found.arrays["values"].astype(np.int64) * found.head["unit"]
        assert ((told >= exact) & (told - exact < found.head["unit"])).all()
        assert found.head["fullest"] == int(np.argmax(exact))
        assert found.head["greatest"] == exact.max()


def test_liveness_floor__memory_beyond_16_bits__still_fits() -> None:
    made = random_report(1)
    memory = made.report.memory
    large = Memory(memory.run_bytes * 1_000, memory.available_bytes, memory.categories, memory.run_tiles)
    report = replace(made.report, memory=large)
    opened = Opened("random", "random", report)
    found = answer(opened, "liveness.floor", Params({"step": "5"}))
    exact = report.memory_at(5)
    assert exact.max() > 65_535
    told = found.arrays["values"].astype(np.int64) * found.head["unit"]
    assert ((told >= exact) & (told - exact < found.head["unit"])).all()


def test_liveness_touched__a_step_of_a_compiled_program__are_its_variables() -> None:
    report = compiled()
    opened = Opened("x", "x", report)
    for step in range(len(report.steps)):
        found = answer(opened, "liveness.touched", Params({"step": str(step), "count": "1000"}))
        uses = report.variables_of(step)
        assert found.arrays["row"].tolist() == sorted(uses["variable"].tolist())
        assert found.arrays["read"].sum() == uses["read_bytes"].sum()
        assert found.arrays["written"].sum() == uses["written_bytes"].sum()


def test_liveness_stack__a_step_in_a_loop__leads_out_to_the_program() -> None:
    report = compiled()
    opened = Opened("x", "x", report)
    told = [answer(opened, "liveness.stack", Params({"step": str(s)})).head["nodes"] for s in range(len(report.steps))]
    inner = next(nodes for nodes in told if any("Repeat" in node["text"] for node in nodes))
    assert inner[-1]["text"].startswith("Program")
    assert [node["row"] for node in inner] == sorted((node["row"] for node in inner), reverse=True)
    with pytest.raises(InvalidOptionError, match="no step"):
        answer(opened, "liveness.stack", Params({"step": str(len(report.steps))}))


def test_liveness_stack__a_report_without_a_program_tree__has_no_nodes(made: RandomReport) -> None:
    assert ask(made, "liveness.stack", step=3).head == {"nodes": []}


def test_memory_codelets__a_tile_of_a_compiled_program__are_those_of_its_compute_sets() -> None:
    report = compiled()
    opened = Opened("x", "x", report)
    tile = report.memory.fullest_tile
    found = answer(opened, "memory.codelets", Params({"tiles": str(tile), "count": "1000"}))
    ran = {
        int(report.steps["superstep"][step])
        for step in range(len(report.steps))
        if report.steps["phase"][step] >= 0 and report.step_by_tile("compute_cycles", step)[tile] > 0
    }
    mine = [row for row in report.vertices.rows() if row["superstep"] in ran]
    assert found.arrays["row"].tolist() == sorted({row["codelet"] for row in mine})
    assert found.arrays["vertices"].sum() == sum(row["num_vertices"] for row in mine) > 0
    assert found.arrays["state_bytes"].sum() == sum(row["state_bytes"] for row in mine)


def test_memory_code_and_kept__tiles_of_a_compiled_program__are_the_reports_own() -> None:
    report = compiled()
    opened = Opened("0", "compiled", report)
    for tile in (0, report.memory.fullest_tile):
        found = answer(opened, "memory.code", Params({"tiles": str(tile), "sort": "-here", "count": "1000"}))
        on = report.code_on(tile)
        assert found.arrays["here"].tolist() == on["bytes"].tolist()
        of_op = dict(zip(on["op"].tolist(), on["exchange_code"].tolist(), strict=True))
        assert dict(zip(found.arrays["row"].tolist(), found.arrays["exchange_code"].tolist(), strict=True)) == of_op
        use = report.memory_use(tile)
        kept = answer(opened, "memory.kept", Params({"tile": str(tile)}))
        assert [each["why"] for each in kept.head["rows"]] == [v.why for v in use.temporaries]
        assert kept.head["moving_bytes"] == use.moving_bytes
    everywhere = answer(opened, "memory.code", Params({"count": "1000"}))
    totals = report.memory.totals()
    for name in ("vertex_state", "vertex_code", "control_code", "exchange_code"):
        assert everywhere.arrays[name].sum() == totals[name]


def test_floor_metric__operation__is_its_state_and_code_by_tile() -> None:
    report = compiled()
    found = answer(Opened("0", "compiled", report), "floor.metric", Params({"metric": "operation:0"}))
    names = ("vertex_state", "vertex_code", "control_code", "exchange_code")
    assert found.arrays["values"].tolist() == sum(report.code_by_tile(name, 0) for name in names).tolist()
    assert found.head["title"] == f"state and code of {report.ops['name'][0]}"


@cache
def compiled() -> Report:
    """A product, and sums in a loop, on part of an IPU."""
    graph = ab.Graph("bow-2000:1")
    a, b = (graph.variable(ab.f32, (32, 32), name=name).map_linear() for name in "ab")
    program, body = ab.Sequence(), ab.Sequence()
    product = poplin.matmul(graph, a, b, program, name="product")
    popops.add(graph, product, b, body, name="sum")
    program.add(ab.Repeat(3, body))
    return ab.Engine(graph, program).report


def test_memory_steps__exchanges_of_a_compiled_program__have_the_code_of_their_supersteps() -> None:
    report = compiled()
    found = answer(Opened("x", "x", report), "memory.steps", Params({"of": "exchange", "count": "1000"}))
    superstep = report.steps["superstep"][found.arrays["row"]]
    assert found.arrays["exchange_code"].tolist() == report.supersteps["exchange_code_bytes"][superstep].tolist()
    assert found.arrays["exchange_code"].any()
