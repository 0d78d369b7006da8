"""The memory view: the curve, the floor plan, selection in all its ways, and the tabs below."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import abele as ab
from abele.poplibs import popops
from abele.report import Memory, Report
from abele.report.schema import TABLES, VARIABLES
from abele.viewer.answers.floor import places
from abele.viewer.answers.selection import ranges_text, tiles_of
from abele.viewer.open_reports import Opened
from random_reports import random_report

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def stacked(look, small: Report, **state: object):
    sight = look(small)
    sight.go("memory", **state)
    sight.until("abele.shown.charts.length === 2 && abele.shown.charts[0].frames > 0")
    return sight


def chart_box(sight) -> dict[str, float]:
    return sight.page.locator(".curve .chart.grows canvas").bounding_box()


def place_x(sight, place: float) -> float:
    """Position on the page of a place of the axis."""
    box = chart_box(sight)
    low, high = sight.page.evaluate("[abele.keys.range.low, abele.keys.range.high]")
    left, right = 76, 10
    return box["x"] + left + (place + 0.5 - low) / (high - low) * (box["width"] - left - right)


def test_memory__a_report__draws_the_parts_that_it_has(look, small: Report) -> None:
    sight = stacked(look, small)
    totals = small.memory.totals()
    legend = sight.page.locator(".curve .legend span").all_inner_texts()
    assert legend == [name.replace("_", " ") for i, name in enumerate(totals) if totals[name] or i == 0]
    label = sight.page.locator(".curve .chart.grows canvas").get_attribute("aria-label")
    assert f"{small.memory.num_tiles:,} tiles" in label
    rows = sight.page.locator(".tree tbody tr").all_inner_texts()
    assert rows[0].startswith("▾including gaps")


def test_memory__click_and_shift_click__select_a_tile_and_a_range(look, small: Report) -> None:
    sight = stacked(look, small)
    sight.page.evaluate("abele.keys.range.set(0, 40)")
    sight.settle()
    box = chart_box(sight)
    sight.page.mouse.click(place_x(sight, 7), box["y"] + box["height"] / 2)
    sight.until("abele.state.get('tiles') === '7'")
    sight.page.keyboard.down("Shift")
    sight.page.mouse.click(place_x(sight, 12), box["y"] + box["height"] / 2)
    sight.page.keyboard.up("Shift")
    sight.until("abele.state.get('tiles') === '7-12'")
    sight.page.keyboard.down("Control")
    sight.page.mouse.click(place_x(sight, 9), box["y"] + box["height"] / 2)
    sight.page.keyboard.up("Control")
    sight.until("abele.state.get('tiles') === '7-8, 10-12'")
    sight.settle()
    assert sight.page.locator(".tree thead th").all_inner_texts()[1:3] == ["tile 7", "tile 8"]
    assert "− tile 7" in sight.page.locator(".tree thead").inner_text()


def test_memory__tiles_typed__are_selected_or_refused_in_words(look, small: Report) -> None:
    sight = stacked(look, small)
    box = sight.page.locator(".tiles-input")
    box.fill("top 2")
    box.press("Enter")
    sight.until("abele.state.get('tiles') !== ''")
    held = small.memory.by_tile
    marks = sight.page.evaluate("abele.state.get('tiles')")
    tiles = tiles_of(Opened("x", "x", small), marks)
    assert sorted(held[tiles].tolist()) == sorted(held.tolist())[-2:]
    sight.page.evaluate("abele.source.ask(abele.context.report, 'tiles', {text: 'all'})")
    sight.settle()
    sight.problems.clear()
    box.fill("tpo 2")
    box.press("Enter")
    sight.until("document.querySelector('.tiles-box .bad') !== null")
    assert "did you mean 'top'" in sight.page.locator(".tiles-box .bad").inner_text()
    # The refusal is an answer of the server that the browser's console tells of as well.
    assert all("400" in problem for problem in sight.problems)
    sight.problems.clear()


def test_memory__drag_on_the_floor_plan__selects_the_tiles_beneath(look, small: Report) -> None:
    sight = stacked(look, small)
    found = sight.page.evaluate(
        """async () => {
          const plan = abele.shown.charts[1];
          const canvas = plan.canvas.getBoundingClientRect();
          return {x: canvas.x, y: canvas.y, width: canvas.width, height: canvas.height};
        }"""
    )
    side = min(found["width"] - 6, found["height"] - 6) / 1.0
    side *= 1 - 0.06
    left = found["x"] + (found["width"] - side) / 2
    top = found["y"] + (found["height"] - side) / 2
    wide, tall = side / 32, side / 46
    # Columns 2 and 3, rows 1 to 3: the second column of pairs goes upwards.
    sight.page.mouse.move(left + 2.5 * wide, top + 1.5 * tall)
    sight.page.mouse.down()
    sight.page.mouse.move(left + 3.5 * wide, top + 3.5 * tall, steps=4)
    sight.page.mouse.up()
    sight.until("abele.state.get('tiles') !== ''")
    column, row = places(1472)
    inside = np.flatnonzero((column >= 2) & (column <= 3) & (row >= 1) & (row <= 3))
    assert sight.page.evaluate("abele.state.get('tiles')") == f"{inside[0]}-{inside[-1]}"
    assert len(inside) == inside[-1] - inside[0] + 1 == 6
    sight.page.mouse.click(left + 0.5 * wide, top + 0.5 * tall)
    sight.until("abele.state.get('tiles') === '0'")


def test_memory__colour_handles__change_the_picture_and_the_link(look, small: Report) -> None:
    sight = stacked(look, small)
    before = sight.page.evaluate("abele.shown.charts[1].canvas.toDataURL()")
    box = sight.page.locator(".colour-scale canvas").bounding_box()
    sight.page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] - 20)
    sight.page.mouse.down()
    sight.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 20, steps=3)
    sight.page.mouse.up()
    sight.settle()
    assert sight.page.evaluate("abele.shown.charts[1].canvas.toDataURL()") != before
    high = sight.page.evaluate("abele.state.number('memory.high')")
    most = int(small.memory.by_tile.max())
    assert most * 0.4 < high < most * 0.6
    sight.page.locator(".colour-scale canvas").dblclick()
    sight.until("abele.state.get('memory.high') === ''")


def test_memory__by_size__is_fullest_first_and_selection_follows(look, small: Report) -> None:
    sight = stacked(look, small, **{"memory.order": "size"})
    sight.page.evaluate("abele.keys.range.set(0, 20)")
    sight.settle()
    box = chart_box(sight)
    sight.page.mouse.click(place_x(sight, 0), box["y"] + box["height"] / 2)
    sight.until("abele.state.get('tiles') !== ''")
    tile = int(sight.page.evaluate("abele.state.get('tiles')"))
    assert tile == small.memory.fullest_tile
    sight.page.locator("body").press(".")
    sight.settle()
    following = int(sight.page.evaluate("abele.state.get('tiles')"))
    assert following == int(np.argsort(-small.memory.by_tile, kind="stable")[1])


def test_memory__variables_ticked__are_plotted_and_in_the_link(look, small: Report) -> None:
    sight = stacked(look, small, **{"memory.tab": "variables"})
    names = sight.page.locator(".filled .tr .td:nth-child(2)").all_inner_texts()
    sight.page.locator(".filled .tr input[type=checkbox]").nth(0).check()
    sight.settle()
    sight.until("abele.state.get('memory.kind') === 'variables'")
    assert sight.page.locator(".curve .legend span").all_inner_texts() == [names[0]]
    sight.page.locator(".filled .tr input[type=checkbox]").nth(1).check()
    sight.settle()
    assert sight.page.locator(".curve .legend span").count() == 2
    assert len(sight.page.evaluate("abele.state.get('memory.variables')").split(",")) == 2


def test_memory__link__restores_window_order_and_tab(look, small: Report) -> None:
    sight = stacked(look, small)
    state = {"memory.order": "size", "memory.tab": "compute", "tiles": "3"}
    sight.go("memory", **state, **{"memory.from": "10.00", "memory.to": "30.00"})
    sight.until("location.hash.includes('memory.to=30')")
    text = sight.page.evaluate("location.hash")
    sight.page.goto("about:blank")
    sight.page.goto(sight.address.split("?")[0] + text)
    sight.page.wait_for_selector("main[data-view=memory]")
    sight.settle()
    assert sight.page.evaluate("[abele.keys.range.low, abele.keys.range.high]") == [10, 30]
    assert sight.page.locator(".tab.on").inner_text() == "compute sets"
    assert sight.page.locator("select[aria-label='Order of tiles']").input_value() == "size"
    assert sight.page.locator(".tiles-input").input_value() == "3"


def test_memory__out_of_memory__says_how_much_and_what_would_have_to_go(look) -> None:
    made = random_report(4, room=4_000)
    sight = look(made.report)
    sight.go("memory")
    over = int((made.report.memory.by_tile > 4_000).sum())
    text = sight.page.locator(".overflow").inner_text()
    assert f"{over} of 64 tiles are too full" in text
    sight.page.locator(".overflow .link", has_text="Select them").click()
    sight.settle()
    sight.until("abele.state.get('tiles') !== ''")
    tiles = np.flatnonzero(made.report.memory.by_tile > 4_000)
    assert sight.page.evaluate("abele.state.get('tiles')") in (ranges_text(tiles), "over")
    assert f"{over} tiles" in sight.page.locator(".tiles-box").inner_text()


@pytest.mark.parametrize("tab", ["tiles", "variables", "vertices", "compute sets", "exchanges", "gaps"])
def test_memory__every_tab__shows_rows_for_a_tile(look, small: Report, tab: str) -> None:
    sight = stacked(look, small, tiles=str(small.memory.fullest_tile))
    sight.page.get_by_role("tab", name=tab, exact=True).click()
    sight.settle()
    if tab == "gaps" and not sight.page.locator(".tab-body .tr .td:nth-child(2)").count():
        assert "no row" in sight.page.locator(".tab-body").inner_text()
    else:
        assert sight.page.locator(".tab-body .tr, .tab-body .tree tbody tr").count() > 0


def test_memory__names_of_a_hostile_report__stay_text(look) -> None:
    made = random_report(2)
    columns = {name: made.report.variables[name] for name in made.report.variables.names}
    columns["name"] = np.array(["<img src=x onerror=alert(1)>\u202e\0" + str(i) for i in range(30)], dtype=object)
    columns["type"] = np.array(["</script><b>"] * 30, dtype=object)
    sight = look(replace(made.report, variables=VARIABLES.table(**columns)))
    sight.go("memory", **{"memory.tab": "variables", "memory.by": "type", "variable": 3})
    sight.page.locator(".filled .tr input[type=checkbox]").nth(0).check()
    sight.settle()
    assert sight.page.locator("#app img, #app b b").count() == 0
    assert "<img src=x" in sight.page.locator(".curve .legend").inner_text()
    svg = sight.page.evaluate("abele.shown.charts[0].svg()")
    assert "<img" not in svg


@pytest.mark.parametrize("dark", [False, True])
def test_memory__pictures__are_drawn_as_svg_in_both_themes(look, small: Report, dark: bool) -> None:
    sight = look(small, dark=dark)
    sight.go("memory", tiles="3-9")
    for number in range(2):
        root = ElementTree.fromstring(sight.page.evaluate(f"abele.shown.charts[{number}].svg()"))
        assert len(list(root)) > 3


def test_memory__another_report_chosen__begins_anew(look, small: Report) -> None:
    made = random_report(2)
    sight = look(small, made.report)
    sight.go("memory")
    keys = sight.page.evaluate("abele.source.reports.map((r) => r.key)")
    sight.page.evaluate("(keys) => abele.state.set({ reports: keys.join(',') })", keys[::-1])
    sight.until("abele.context.facts.num_tiles === 64")
    sight.settle()
    sight.until("abele.keys.range.most === 64")
    assert sight.page.locator(".tree tbody tr").count() > 3


def test_memory__one_tile_that_holds_nothing__is_drawn(look, small: Report) -> None:
    empty = {name: schema.empty() for name, schema in TABLES.items()}
    target = {**small.target, "num_tiles": 1, "tiles_per_ipu": 1}
    sight = look(replace(small, target=target, memory=Memory.of(1, 1_000), **empty))
    sight.go("memory")
    assert sight.page.locator(".tree tbody tr").count() > 3
    sight.go("liveness")
    assert "nothing about what is live" in sight.page.locator(".view").inner_text()


def test_floor_plan__arithmetic__places_ipus_and_counts_values(look, small: Report) -> None:
    sight = look(small)
    run = sight.page.evaluate
    across = "(a) => import('abele/core/floorplan.js').then((m) => m.acrossFor(...a))"
    assert run(across, [1, 300, 900]) == 1
    assert run(across, [4, 400, 400]) == 2
    assert run(across, [64, 1000, 250]) == 16
    count = "(a) => import('abele/core/colour_scale.js').then((m) => [...m.histogram(...a)])"
    assert run(count, [[0, 1, 2, 3, 99, -5], 0, 4, 4]) == [2, 1, 1, 2]


PLAN = """async (box) => {
  const { FloorPlan } = await import("abele/core/floorplan.js");
  const { numbersOf } = await import("abele/core/tileset.js");
  const floor = await abele.context.ask("floor");
  const plan = new FloorPlan({ label: "x", name: "x", floor, tell: () => [], words: String });
  [plan.chart.width, plan.chart.height] = [700, 400];
  return { areas: plan.areas(...box), within: numbersOf(plan.within(...box)) };
}"""


@pytest.mark.parametrize("box", [[0, 0, 700, 400], [100, 50, 420, 333], [350, 200, 351, 201], [-50, -50, 5, 5]])
def test_floor_plan__a_rectangle__is_the_same_in_tiles_and_in_words(look, box: list[int]) -> None:
    made = random_report(2, num_ipus=5, tiles_per_ipu=96, variables=3, steps=4)
    sight = look(made.report)
    found = sight.page.evaluate(PLAN, box)
    assert tiles_of(Opened("x", "x", made.report), found["areas"]).tolist() == found["within"]
    assert found["within"] or box[0] in (350, -50)


def test_floor_plan__wheel_and_arrows__zoom_and_walk(look, small: Report) -> None:
    sight = stacked(look, small)
    canvas = sight.page.locator("aside.side .chart.grows canvas")
    before = sight.page.evaluate("abele.shown.charts[1].canvas.toDataURL()")
    box = canvas.bounding_box()
    sight.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    sight.page.mouse.wheel(0, -600)
    sight.settle()
    sight.until(f"abele.shown.charts[1].canvas.toDataURL() !== {before!r}")
    sight.page.locator("aside.side button", has_text="all").click()
    sight.settle()
    sight.until(f"abele.shown.charts[1].canvas.toDataURL() === {before!r}")
    canvas.focus()
    canvas.press("ArrowRight")
    sight.until("abele.state.get('tiles') === '1'")
    canvas.press("ArrowDown")
    sight.until("abele.state.get('tiles') === '3'")


def test_stacked__arithmetic__levels_and_chunks_cover_the_window(look, small: Report) -> None:
    sight = look(small)
    run = sight.page.evaluate
    level = "(a) => import('abele/core/stacked.js').then((m) => m.levelFor(...a))"
    assert [run(level, [span, 1_000, 7]) for span in (10, 1_000, 1_001, 94_208, 10**9)] == [0, 0, 1, 7, 7]
    chunks = "(a) => import('abele/core/stacked.js').then((m) => m.chunksIn(...a))"
    assert run(chunks, [0, 94_208, 7, 94_208]) == [0]
    assert run(chunks, [1_023, 1_025, 0, 94_208]) == [0, 1]
    assert run(chunks, [2_048, 3_072, 0, 94_208]) == [2]
    assert run(chunks, [94_000, 99_000, 0, 94_208]) == [91]


def test_tileset__ranges__come_back_as_they_were(look, small: Report) -> None:
    sight = look(small)
    run = sight.page.evaluate
    there = "(a) => import('abele/core/tileset.js').then((m) => m.rangesText(a))"
    assert run(there, [3, 10, 11, 12]) == "3, 10-12"
    assert run(there, []) == ""
    back = "(a) => import('abele/core/tileset.js').then((m) => m.marked(...a) && m.numbersOf(m.marked(...a)))"
    assert run(back, ["3, 10-12, 99-200", 20]) == [3, 10, 11, 12]
    assert run(back, ["top 3", 20]) is None


def test_brush__press__takes_hold_of_what_is_beneath(look, small: Report) -> None:
    sight = look(small)
    grips = "(xs) => import('abele/core/brush.js').then((m) => xs.map((x) => m.grip(x, 100, 200)))"
    assert sight.page.evaluate(grips, [100, 150, 198, 300, 20]) == ["low", "window", "high", "new", "new"]
    narrow = "(xs) => import('abele/core/brush.js').then((m) => xs.map((x) => m.grip(x, 100, 101)))"
    assert sight.page.evaluate(narrow, [95, 100, 101, 107]) == ["low", "low", "high", "high"]
    sight.go("memory")
    box = sight.page.locator(".brush canvas").bounding_box()
    y = box["y"] + box["height"] / 2
    sight.page.mouse.move(box["x"] + box["width"] - 10, y)
    sight.page.mouse.down()
    sight.page.mouse.move(box["x"] + 76 + (box["width"] - 86) / 4, y, steps=3)
    sight.page.mouse.up()
    low, high = sight.page.evaluate("[abele.keys.range.low, abele.keys.range.high]")
    assert low == 0
    assert abs(high - 1472 / 4) < 8


ODD = (
    {"memory.ipu": "99"},
    {"memory.ipu": "x", "memory.order": "physical"},
    {"memory.by": "junk"},
    {"memory.by": None, "memory.from": "abc", "memory.to": "-5"},
    {"memory.from": "1e99", "memory.to": "2e99", "memory.ipu": None},
    {"memory.kind": "variables", "memory.variables": "999999,abc,-1"},
    {"memory.kind": "nope", "memory.metric": "nope", "memory.tab": "nope", "memory.split": "7"},
    {"memory.metric": "variable", "variable": "1e9", "tiles": "rubbish <b>"},
    {"tiles": "0-99999999", "memory.low": "nan", "memory.high": "-1"},
)


def test_memory__odd_links__are_said_or_ignored_and_the_view_goes_on(look) -> None:
    sight = look(random_report(2).report)
    sight.go("memory")
    for state in ODD:
        sight.page.evaluate("(state) => abele.state.set(state)", state)
        sight.settle()
    names = {name: None for state in ODD for name in state}
    sight.page.evaluate("(state) => abele.state.set(state)", names)
    sight.settle()
    assert sight.page.evaluate("[abele.keys.range.least, abele.keys.range.most]") == [0, 64]
    assert sight.page.locator(".tree tbody tr").count() > 3
    # What the server refuses is told by the console as well; nothing else goes wrong.
    assert all("400" in problem for problem in sight.problems)
    sight.problems.clear()


def test_memory__state_and_code_and_temporaries__are_told_by_operation(look) -> None:
    graph, program = ab.Graph("bow-2000:1"), ab.Sequence()
    x = graph.variable(ab.f32, (64, 64), name="x").map_linear()
    y = popops.exp(graph, x.T, program, name="turn")
    popops.add_in_place(graph, x, y, program, name="collect")
    report = ab.compile_program(graph, program).report
    tile = report.memory.fullest_tile
    sight = stacked(look, report, tiles=str(tile))
    sight.page.get_by_role("tab", name="temporaries", exact=True).click()
    sight.page.wait_for_selector(".kept tbody tr")
    use = report.memory_use(tile)
    text = sight.page.locator(".kept").inner_text()
    assert use.temporaries[0].why in text
    assert f"Tile {tile}" in text
    sight.page.get_by_role("tab", name="state and code", exact=True).click()
    sight.settle()
    row = sight.page.locator(".filled .tr").filter(has_text=use.code[0].operation).first
    row.click()
    sight.until(f"abele.state.get('op') === '{use.code[0].op}'")
    sight.page.get_by_role("button", name="floor plan", exact=True).click()
    sight.until("abele.state.get('memory.metric') === 'operation'")
    sight.settle()
    label = sight.page.locator("aside.side canvas").first.get_attribute("aria-label")
    assert f"state and code of {use.code[0].operation}" in label
