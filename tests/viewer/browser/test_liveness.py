"""The liveness view: the curve, stepping, playing, comparing steps, lifetimes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from abele.report import Report
from random_reports import RandomReport, random_report

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def made() -> RandomReport:
    return random_report(3, variables=60, steps=60)


def shown(look, report: Report, **state: object):
    sight = look(report)
    sight.go("liveness", **state)
    sight.until("abele.shown.charts.length === 3 && abele.shown.charts[0].frames > 0")
    return sight


def steps_of(sight) -> list[int]:
    first = sight.page.evaluate("abele.state.number('step', -1)")
    more = sight.page.evaluate("abele.state.get('liveness.steps')")
    return [int(first), *(int(word) for word in more.split(",") if word)]


def click_place(sight, place: float, keys: Iterable[str] = ()) -> None:
    box = sight.page.locator(".curve .chart.grows canvas").bounding_box()
    low, high = sight.page.evaluate("[abele.keys.range.low, abele.keys.range.high]")
    x = box["x"] + 76 + (place + 0.5 - low) / (high - low) * (box["width"] - 86)
    for key in keys:
        sight.page.keyboard.down(key)
    sight.page.mouse.click(x, box["y"] + box["height"] / 2)
    for key in keys:
        sight.page.keyboard.up(key)
    sight.settle()


def test_liveness__no_step_chosen__shows_the_peak(look, made: RandomReport) -> None:
    sight = shown(look, made.report)
    live = made.report.liveness
    peak = int(live["step"][np.argmax(live["live_bytes"])])
    assert sight.page.locator(".step-line b").inner_text() == f"step {peak}"
    sight.settle()
    names = sight.page.locator(".tab-body .tr .td:nth-child(1)").all_inner_texts()
    size = np.where(made.lives[:, peak], made.padded.sum(axis=1), 0)
    wanted = [str(made.report.variables["name"][row]) for row in np.argsort(-size, kind="stable") if size[row]]
    assert names[:5] == wanted[:5]


def test_liveness__keys__step_through_the_curve_and_to_the_peak(look, made: RandomReport) -> None:
    sight = shown(look, made.report)
    steps = made.report.liveness["step"].tolist()
    click_place(sight, 4)
    assert steps_of(sight) == [steps[4]]
    sight.page.locator("body").press(".")
    sight.page.locator("body").press("ArrowRight")
    assert steps_of(sight) == [steps[6]]
    sight.page.locator("body").press(",")
    assert steps_of(sight) == [steps[5]]
    sight.page.locator("body").press("p")
    assert steps_of(sight) == [steps[int(np.argmax(made.report.liveness["live_bytes"]))]]


def test_liveness__shift_click__compares_steps_with_differences(look, made: RandomReport) -> None:
    sight = shown(look, made.report)
    steps = made.report.liveness["step"].tolist()
    click_place(sight, 5)
    click_place(sight, 20, ["Shift"])
    assert steps_of(sight) == [steps[5], steps[20]]
    heads = sight.page.locator(".tab-body .th").all_inner_texts()
    assert [head.split(" ▼")[0] for head in heads[1:4]] == [f"step {steps[5]}", f"step {steps[20]}", f"− {steps[5]}"]
    sight.page.get_by_role("tab", name="by line, operation …").click()
    sight.settle()
    table = sight.page.locator(".tab-body .tree tbody tr").first.inner_text()
    assert table.startswith("together")
    click_place(sight, 20, ["Shift"])
    assert steps_of(sight) == [steps[5]]
    click_place(sight, 9)
    assert steps_of(sight) == [steps[9]]


def test_liveness__floor_plan__shows_memory_at_the_step(look, made: RandomReport) -> None:
    step = int(made.report.liveness["step"][7])
    sight = shown(look, made.report, step=step)
    label = sight.page.locator("aside.side .chart.grows canvas").get_attribute("aria-label")
    assert f"at step {step}: the fullest tile is {int(np.argmax(made.report.memory_at(step)))}" in label


def test_liveness__play__passes_through_every_step_and_pauses(look, made: RandomReport) -> None:
    sight = shown(look, made.report, step=0, **{"liveness.speed": "15"})
    seen = sight.page.evaluate(
        """async () => {
          const seen = new Set();
          abele.state.listen(() => seen.add(Number(abele.state.get("step"))));
          abele.commands().find((c) => c.key === " ").run();
          await new Promise((done) => setTimeout(done, 1200));
          abele.commands().find((c) => c.key === " ").run();
          const at = abele.state.get("step");
          await new Promise((done) => setTimeout(done, 300));
          return { seen: [...seen], still: abele.state.get("step") === at };
        }"""
    )
    steps = made.report.liveness["step"].tolist()
    assert seen["still"]
    assert len(seen["seen"]) >= 5
    assert seen["seen"] == steps[1 : len(seen["seen"]) + 1]
    sight.settle()
    now = int(sight.page.evaluate("abele.state.get('step')"))
    assert f"at step {now}:" in sight.page.locator("aside.side .chart.grows canvas").get_attribute("aria-label")


def test_liveness__sources__change_curve_lifetimes_and_tables(look, made: RandomReport) -> None:
    sight = shown(look, made.report, tiles="3, 9", step=9)
    greatest = "abele.shown.charts[0].canvas.getAttribute('aria-label')"
    whole = sight.page.evaluate(greatest)
    sight.page.select_option("select[aria-label='Bytes of']", "tiles")
    sight.settle()
    assert sight.page.evaluate(greatest) != whole
    here = made.padded[:, [3, 9]].sum(axis=1)
    rows = sight.page.locator(".tab-body .tr .td:nth-child(1)").all_inner_texts()
    wanted = [str(made.report.variables["name"][row]) for row in np.flatnonzero(made.lives[:, 9] & (here > 0))]
    assert sorted(rows) == sorted(wanted)
    sight.page.select_option("select[aria-label='Divide by']", "type")
    sight.settle()
    assert {"f32", "f16", "i32"} <= set(sight.page.locator(".curve .legend span").all_inner_texts())
    sight.page.locator("label.toggle", has_text="always live").locator("input").uncheck()
    sight.settle()
    assert "always live" not in sight.page.locator(".curve .legend span").all_inner_texts()


def test_liveness__lifetime_clicked__selects_the_variable_here_and_in_memory(look, made: RandomReport) -> None:
    sight = shown(look, made.report)
    box = sight.page.locator(".lifetimes canvas").bounding_box()
    sight.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 6)
    sight.settle()
    size = np.where(made.lives.any(axis=1), made.padded.sum(axis=1), 0)
    assert sight.page.evaluate("abele.state.number('variable')") == int(np.argmax(size))
    sight.go("memory", **{"memory.tab": "variables"})
    assert sight.page.locator(".tr.chosen").count() == 1


@pytest.mark.parametrize(
    "tab", ["live at the step", "by line, operation …", "always live", "vertices", "cycles of the step"]
)
def test_liveness__every_tab__shows_rows_of_a_compiled_program(look, small: Report, tab: str) -> None:
    sight = shown(look, small)
    sight.page.get_by_role("tab", name=tab, exact=True).click()
    sight.settle()
    assert sight.page.locator(".tab-body .tr, .tab-body .tree tbody tr").count() > 0


def test_liveness__links__lead_to_timeline_and_program_with_the_step(look, made: RandomReport) -> None:
    sight = shown(look, made.report, step=12)
    for view in ("timeline", "program"):
        sight.page.locator(".step-line button", has_text=view).click()
        sight.until(f"document.querySelector('main').dataset.view === '{view}'")
        assert sight.page.evaluate("abele.state.get('step')") == "12"
        sight.go("liveness")


def test_liveness__step_that_there_is_not__shows_one_that_there_is(look, made: RandomReport) -> None:
    sight = shown(look, made.report, step=4_000, **{"liveness.steps": "x,-3,70"})
    assert sight.page.locator(".step-line b").inner_text() == "step 0"


def test_snapped__windows__lie_on_a_grid_and_cover_what_is_seen(look, made: RandomReport) -> None:
    sight = shown(look, made.report)
    snap = "(a) => import('abele/views/liveness/lifetimes.js').then((m) => m.snapped(...a))"
    assert sight.page.evaluate(snap, [0, 50_000, 50_000]) == [0, 50_000]
    for low, high in ((100.5, 140.2), (3.0, 4.0), (40_000, 49_999.5)):
        first, last = sight.page.evaluate(snap, [low, high, 50_000])
        assert first <= low
        assert last >= min(high, 50_000)
        assert last - first <= 2 * max(high - low, 1) + 2
    stride = "(a) => import('abele/views/liveness/player.js').then((m) => m.stride(a))"
    assert [sight.page.evaluate(stride, speed) for speed in (2, 15, 60, 2_000)] == [1, 1, 4, 133]


def test_liveness__link_to_a_source_that_there_is_not__says_so_and_goes_on_to_the_peak(
    look, made: RandomReport
) -> None:
    sight = look(made.report)
    sight.go("liveness", **{"liveness.source": "ipu:99"})
    sight.until("document.querySelector('.empty.bad') !== null")
    assert "has no curve" in sight.page.locator(".empty.bad").first.inner_text()
    sight.page.evaluate("abele.state.set({ 'liveness.source': null })")
    sight.settle()
    live = made.report.liveness
    peak = int(live["step"][np.argmax(live["live_bytes"])])
    sight.until(f"document.querySelector('.tab-body .th.right')?.textContent.startsWith('step {peak}')")
    assert sight.page.locator(".empty.bad").count() == 0
    # What the server refused is told by the console as well.
    assert all("400" in problem for problem in sight.problems)
    sight.problems.clear()
