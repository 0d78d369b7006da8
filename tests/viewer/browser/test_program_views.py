"""Program tree, operations, graph, exchange and matrix in a page."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import abele as ab
from abele.report import FUNCTION_CALLS, PROGRAM_TREE, SUPERSTEP_VARIABLES, SUPERSTEPS, VERTICES, Report
from abele.viewer.open_reports import Shelf
from abele.viewer.static import frozen

pytestmark = [pytest.mark.browser, pytest.mark.slow]

VIEWS = ("program", "operations", "graph", "exchange", "matrix")


@pytest.fixture(scope="module")
def plain(small: Report) -> Report:
    """The report as older files have it: without tree, supersteps and accesses."""
    empty = {s.name: s.empty() for s in (PROGRAM_TREE, FUNCTION_CALLS, SUPERSTEPS, SUPERSTEP_VARIABLES, VERTICES)}
    return replace(small, **empty)


@pytest.fixture(scope="module")
def bare() -> Report:
    """A program of nothing."""
    return ab.compile_program(ab.Graph("bow-2000:1"), ab.Sequence()).report


@pytest.mark.parametrize("view", VIEWS)
def test_view__report_of_nothing__says_so(look, bare: Report, view: str) -> None:
    sight = look(bare)
    sight.go(view)
    assert sight.page.locator("main [role=alert]").count() == 0
    assert sight.page.locator("main").inner_text().strip()


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dark", [False, True])
def test_view__older_report__shows_what_it_has(look, plain: Report, view: str, dark: bool) -> None:
    sight = look(plain, dark=dark)
    sight.go(view, step=2, op=0, tiles="3")
    assert sight.page.locator("main [role=alert]").count() == 0
    assert sight.page.locator(f".view-{view}").inner_text().strip()


@pytest.mark.parametrize("view", VIEWS)
def test_view__names_of_markup__stay_text(look, small: Report, view: str) -> None:
    evil = '<img src=x onerror="document.title=1">'
    tables = {
        name: type(getattr(small, name))({
            **getattr(small, name).columns,
            "name": type(getattr(small, name).columns["name"]).of([evil] * len(getattr(small, name))),
        })
        for name in ("steps", "ops", "variables", "program_tree", "supersteps", "codelets")
    }  # fmt: skip
    sight = look(replace(small, **tables))
    sight.go(view, step=2, op=0, tiles="3")
    assert sight.page.locator("main img").count() == 0
    assert "Abele" in sight.page.title()


@pytest.mark.parametrize("view", VIEWS)
def test_view__another_report_first__shows_that_one(look, small: Report, bare: Report, view: str) -> None:
    names = small.steps.columns["name"]
    other = replace(small, meta={**small.meta, "name": "other"}, steps=type(small.steps)({
        **small.steps.columns, "name": type(names).of([f"renamed/{name}" for name in names.decode()]),
    }))  # fmt: skip
    sight = look(replace(other, program_tree=PROGRAM_TREE.empty()), small, bare)
    sight.go(view)
    keys = sight.page.evaluate("abele.context.reports")
    for key in (keys[2], keys[1], keys[0]):
        sight.page.evaluate("(key) => abele.state.set({ reports: key, step: null })", key)
        sight.settle()
        assert sight.page.locator("main [role=alert]").count() == 0
    if view == "program":
        assert "renamed" in sight.page.locator(".treegrid").inner_text()
    if view == "exchange":
        assert "renamed" in sight.page.locator(".table").inner_text()


def test_program__click_on_a_step__details_and_steps_of_its_operation(look, small: Report) -> None:
    sight = look(small)
    sight.go("program")
    sight.page.click("button[title='Open all']")
    sight.settle()
    rows = sight.page.locator(".treegrid .tr")
    assert rows.count() > 10
    name = str(small.steps["name"][2])
    sight.page.locator(".treegrid .tr", has_text=name.rsplit("/", 1)[-1]).last.click()
    sight.settle()
    step = int(sight.page.evaluate("abele.state.get('step')"))
    op = int(small.steps["op"][step])
    assert sight.page.evaluate("abele.state.get('op')") == str(op)
    assert sight.page.locator(".tr.same").count() >= 1
    details = sight.page.locator(".told").inner_text()
    assert str(small.steps["name"][step]) in details
    assert f"{int(small.steps['cycles'][step]):,}" in details


def test_program__filter__keeps_the_parents_of_what_it_finds(look, small: Report) -> None:
    sight = look(small)
    sight.go("program")
    sight.page.fill("input.filter", "reduce exchange")
    sight.until("document.querySelector('.treegrid .dim').textContent.includes('found')")
    levels = sight.page.locator(".treegrid .tr").evaluate_all(
        "rows => rows.map((r) => Number(r.getAttribute('aria-level')))"
    )
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    expected = sum("reduce" in n and "exchange" in n for n in small.steps["name"].tolist())
    assert sight.page.locator(".tr.found").count() == expected > 0


def test_program__keyboard__opens_and_closes(look, small: Report) -> None:
    sight = look(small)
    sight.go("program", **{"program.level": 0})
    sight.page.focus(".treegrid .tscroll")
    before = sight.page.locator(".treegrid .tr").count()
    sight.page.keyboard.press("ArrowRight")
    sight.settle()
    assert sight.page.locator(".treegrid .tr").count() > before
    sight.page.keyboard.press("ArrowLeft")
    sight.settle()
    assert sight.page.locator(".treegrid .tr").count() == before


def test_program__stage_as_written__leaves_the_steps_out(look, small: Report) -> None:
    sight = look(small)
    sight.go("program", **{"program.level": 99})
    steps = sight.page.locator(".treegrid [role=status], .treegrid .bar .dim").first.inner_text()
    sight.page.click("text=as written")
    sight.settle()
    assert sight.page.locator(".treegrid .bar .dim").inner_text() != steps
    total = int(sight.page.locator(".treegrid .bar .dim").inner_text().split(" of ")[1].split()[0])
    assert total == len(small.program_tree)


def test_seen_and_kept__arrays_of_a_tree__are_what_recursion_finds(look, small: Report) -> None:
    sight = look(small)
    found = sight.page.evaluate("""import('abele/core/tree.js').then((m) => {
        const size = [6, 3, 1, 1, 2, 1, 2, 1];
        return {
          parents: [...m.parents(size)],
          open: [...m.seen(size, (i) => i !== 1, null, null)],
          sorted: [...m.seen(size, () => true, null, (a, b) => b - a)],
          kept: [...m.kept(size, m.parents(size), (i) => i === 3 || i === 4)],
        };
    })""")
    assert found["parents"] == [-1, 0, 1, 1, 0, 4, -1, 6]
    assert found["open"] == [0, 1, 4, 5, 6, 7]
    assert found["sorted"] == [6, 7, 0, 4, 5, 1, 3, 2]
    assert found["kept"] == [1, 1, 0, 2, 2, 3, 0, 0]


def test_operations__groups__have_the_sums_and_open(look, small: Report) -> None:
    sight = look(small)
    sight.go("operations", **{"operations.by": "kind"})
    kinds = sight.page.locator(".treegrid .tr .own").all_inner_texts()
    assert {k.split()[1] for k in kinds} == set(small.ops["kind"].tolist())
    sight.page.locator(".treegrid .tr", has_text="poplin.matmul").first.click()
    sight.settle()
    assert sight.page.locator(".treegrid .tr").count() == len(kinds) + int((small.ops["kind"] == "poplin.matmul").sum())


def test_operations__tabs_of_one__show_steps_code_variables_and_source(look, small: Report) -> None:
    sight = look(small)
    op = int(small.ops["cycles"].argmax())
    sight.go("operations", op=op)
    mine = np.flatnonzero(small.steps["op"] == op)
    sight.page.click("[role=tab]:has-text('Steps')")
    assert sight.page.locator(".listing tbody tr").count() == len(mine)
    for tab in ("Code", "Variables", "Source", "FLOPs"):
        sight.page.click(f"[role=tab]:has-text('{tab}')")
        sight.settle()
        assert sight.page.locator(".tab-body").inner_text().strip()
    sight.page.click("[role=tab]:has-text('Steps')")
    sight.page.locator(".listing .link").first.click()
    sight.page.wait_for_selector("main[data-view=program]")
    assert sight.page.evaluate("abele.state.get('step')") == str(mine[0])


def test_operations__none_selected__the_roofline_stands_there(look, small: Report) -> None:
    sight = look(small)
    sight.go("operations")
    sight.until("document.querySelector('.roof canvas') !== null")
    assert "Roofline" in sight.page.locator(".roof canvas").get_attribute("aria-label")


def test_graph__click_and_keys__select_operations(look, small: Report) -> None:
    sight = look(small)
    sight.go("graph")
    sight.until("abele.shown.charts[0].width > 0")
    sight.page.locator(".view-graph canvas").focus()
    sight.page.keyboard.press("ArrowDown")
    sight.settle()
    assert sight.page.evaluate("abele.state.get('op')") == "0"
    assert "Goes to" in sight.page.locator(".told").inner_text()
    # The picture is drawn: more colours than the background's.
    colours = sight.page.evaluate("""() => {
        const c = document.querySelector('.view-graph canvas');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const seen = new Set();
        for (let i = 0; i < d.length; i += 4) if (d[i + 3]) seen.add(`${d[i]},${d[i + 1]},${d[i + 2]}`);
        return seen.size;
    }""")
    assert colours > 5
    assert sight.page.evaluate("abele.shown.charts[0].svg()").startswith("<svg")


def test_graph__of_a_tile__steps_and_variables(look, small: Report) -> None:
    sight = look(small)
    sight.go("graph", **{"graph.of": "tile", "tiles": "0"})
    sight.until("document.querySelector('.view-graph .bar .dim').textContent.includes('steps')")
    held = sum(small.variable_by_tile(v)[0] > 0 for v in range(len(small.variables)))
    assert f"{held} variables" in sight.page.locator(".view-graph .bar .dim").inner_text()


def test_exchange__pick_one__floor_plan_and_busiest_tiles(look, small: Report) -> None:
    sight = look(small)
    sight.go("exchange")
    sight.page.locator(".table .tr", has_text="exchange").first.click()
    sight.settle()
    step = int(sight.page.evaluate("abele.state.get('step')"))
    received = small.step_by_tile("received_bytes", step)
    busiest = int(np.argsort(-received, kind="stable")[0])
    assert f"tile {busiest:,}" in sight.page.locator(".bars").first.inner_text()
    sight.page.click("text=who to whom")
    sight.settle()
    assert sight.page.locator("canvas[aria-label^='Who sends to whom']").count() == 1


def test_matrix__click_on_a_cell__selects_its_tile_and_step(look, small: Report) -> None:
    sight = look(small)
    sight.go("matrix")
    sight.until("abele.shown.charts[0].width > 0")
    box = sight.page.locator(".view-matrix canvas").bounding_box()
    left, right, top, bottom = 122, 8, 62, 20
    wide, high = box["width"] - left - right, box["height"] - top - bottom
    step, tile = 3, 700
    x = box["x"] + left + (step + 0.5) / len(small.steps) * wide
    y = box["y"] + top + (tile + 0.5) / 1472 * high
    sight.page.mouse.click(x, y)
    sight.settle()
    assert sight.page.evaluate("abele.state.get('step')") == str(step)
    assert abs(int(sight.page.evaluate("abele.state.get('tiles')")) - tile) <= 2
    link = sight.page.evaluate("location.hash")
    sight.page.mouse.move(x, y)
    sight.page.mouse.wheel(0, -400)
    sight.until("abele.state.get('matrix.columns') !== ''")
    sight.until(f"location.hash !== '{link}'")


def test_matrix__keys__fly_and_arrows_move_the_selection(look, small: Report) -> None:
    sight = look(small)
    sight.go("matrix", tiles="5", step=2)
    sight.until("abele.shown.charts[0].width > 0")
    sight.page.locator(".view-matrix canvas").focus()
    sight.page.keyboard.press("ArrowRight")
    sight.page.keyboard.press("ArrowDown")
    assert sight.page.evaluate("[abele.state.get('step'), abele.state.get('tiles')]") == ["3", "6"]
    sight.page.keyboard.down("w")
    sight.page.wait_for_timeout(200)
    sight.page.keyboard.up("w")
    sight.until("abele.state.get('matrix.columns') !== ''")
    sight.page.keyboard.press("0")
    sight.until("abele.state.get('matrix.columns') === ''")


@pytest.mark.parametrize(
    ("module", "code", "expected"),
    [
        ("views/matrix/cells", "[m.levelFor(1472, 500), m.levelFor(10, 500), m.levelFor(94208, 486, 3)]", [2, 0, 8]),
        ("views/matrix/cells", "[[0, 9], [1000, 1000], [7, 3]].map(([v, most]) => m.toned(v, most, 'log'))", [0, 1, 1]),
        ("views/matrix/cells", "m.tileAt({ head: { sorted: true, unit: 2 }, arrays: { tile: [8, 0] } }, 6)", 2),
        ("views/matrix/cells", "m.greatest([3, 9, 1, 7], 2)", [1, 3]),
        ("views/matrix/cells", "import('abele/core/range.js').then((r) => m.bars([0, 0], new r.Range(0, 2), 8))", []),
        ("views/graph/draw", "[m.shade(4, 16), m.shade(1, 0), m.shade(-1, 2)]", [0.5, 0, 0]),
        ("core/part_titles", "[m.partTitle('streams'), m.partTitle('other')]", ["host streams", "other"]),
        ("views/graph_tile", "[...m.packed([0, 1, 3, 2], [2, 5, 4, 9], [0, 1, 3, 2]).lane]", [0, 1, 0, 2]),
        ("views/graph", "[m.openText([]), m.openText([3, 1])]", ["none", "1.3"]),
        ("core/plane", "m.zoomedAbout([10, 20, 1], 2, 30, 40)", [-10, 0, 2]),
        ("core/plane", "m.fitting(100, 50, 232, 132)", [66, 41, 1]),
        ("core/log_axis", "[m.decades([3, 250]), m.decades([0])]", [[0, 3], [0, 1]]),
        ("views/roofline", "[m.roofOver(2, 10, 100), m.roofOver(50, 10, 100), m.roofOver(0, 10, 100)]", [20, 100, 100]),
        ("views/exchange", "[...m.byTile([0, 2], [2, 9], [5, 7], 4)]", [5, 5, 7, 7]),
        ("core/detail", "[m.lastScopes('a/b/c/d: exchange', 2), m.lastScopes('a', 2)]", ["…/c/d: exchange", "a"]),
    ],
)  # fmt: skip
def test_units_of_the_page__pure_functions__give(look, small: Report, module: str, code: str, expected: object) -> None:
    found = look(small).page.evaluate(f"import('abele/{module}.js').then((m) => {code})")
    assert found == expected


@pytest.mark.parametrize("view", VIEWS)
def test_view__answers_that_a_static_page_takes_along__are_those_that_it_asks_for(
    look, small: Report, view: str
) -> None:
    found = frozen(Shelf([small]), 10**8)
    sight = look(small)
    before = len(sight.asked)
    sight.page.evaluate(
        "([answers, bundles]) => {"
        " const { source } = abele; source.kept.clear();"
        " Object.assign(source, { inside: ['', ...bundles], frozen: { answers, reports: source.reports } }); }",
        [found.places, found.bundles],
    )  # fmt: skip
    step = int(np.flatnonzero(small.steps["kind"] == "exchange")[0])
    for state in ({}, {"step": step, "op": 0}, {"operations.by": "path", "matrix.metric": "idle_cycles"}):
        sight.go(view, **state)
        assert sight.page.locator("main [role=alert], main .bar .bad").count() == 0
    assert not [url for url in sight.asked[before:] if "/data/" in url]


def test_bars__more_places_than_pixels__are_the_greatest_of_each(look, small: Report) -> None:
    found = look(small).page.evaluate(
        """async () => {
          const { Range } = await import('abele/core/range.js');
          const { bars } = await import('abele/views/matrix/cells.js');
          return bars([1, 4, 2, 2], new Range(0, 4), 2).map(({ from, share, at }) => [from, share, at]);
        }"""
    )
    assert found == [[0, 1, 1], [1, 0.5, 2]]


def test_overview__one_of_two_lanes_computes_half_the_run__is_a_half_high_for_half_of_it(look, small: Report) -> None:
    bars, used = look(small).page.evaluate(
        """async () => {
          const { stackedShares } = await import('abele/views/timeline/overview.js');
          const arrays = { lane: [0], start: [0], cuts: [0, 0, 0, 50], part: [0, 0, 0, 1] };
          const outline = { lanes: [{ group: 0 }, { group: 1 }], parts: ['sync', 'compute'], total: 100 };
          const { bars, used } = stackedShares({ head: { mode: 'spans' }, arrays }, outline);
          return [bars, [...used]];
        }"""
    )
    assert used == ["compute"]
    assert bars == [{"part": "compute", "column": column, "low": 0, "high": 0.5} for column in range(256)]


def test_key_names__letters__differ_by_shift_and_not_by_caps_lock(look, small: Report) -> None:
    found = look(small).page.evaluate(
        """async () => {
          const { keyName } = await import('abele/core/keys.js');
          const presses = [['n', false], ['N', true], ['N', false], ['k', false, true], ['Escape', true], ['?', true]];
          return presses.map(([key, shiftKey, ctrlKey]) => keyName({ key, shiftKey, ctrlKey }));
        }"""
    )
    assert found == ["n", "N", "n", "ctrl+k", "Escape", "?"]
