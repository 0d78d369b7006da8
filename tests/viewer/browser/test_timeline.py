"""The timeline in the browser: its lanes, search, window, details, links, tiles, keys, and pure functions below it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from abele.report import GROUPS, SPANS, Report

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def box(sight) -> dict[str, float]:
    found: dict[str, float] = sight.page.locator(".tmain canvas").bounding_box()
    return found


def colours(sight) -> int:
    """Number of different colours in the main picture."""
    count: int = sight.page.evaluate(
        """() => {
          const { canvas } = abele.shown.charts[0];
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          const seen = new Set();
          for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
          return seen.size;
        }"""
    )
    return count


def evaluate(sight, module: str, call: str):
    return sight.page.evaluate(f"() => import('abele/views/{module}.js').then((m) => {call})")


def test_timeline__a_report__shows_lanes_and_figures(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline")
    text = sight.page.locator(".view-timeline").inner_text()
    assert "tile balance" in text
    assert "What the cycles go to" in text
    assert colours(sight) > 6
    label = sight.page.locator(".tmain canvas").get_attribute("aria-label")
    assert label is not None
    assert label.startswith("Timeline")


def test_timeline__wheel_and_drag__zoom_and_move_and_the_link_keeps_them(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline")
    place = box(sight)
    sight.page.mouse.move(place["x"] + 500, place["y"] + 60)
    for _ in range(6):
        sight.page.mouse.wheel(0, -200)
    sight.until(f"abele.state.number('timeline.high') < {small.total_cycles * 0.7}")
    before = sight.page.evaluate("() => [abele.state.number('timeline.low'), abele.state.number('timeline.high')]")
    sight.page.mouse.down()
    sight.page.mouse.move(place["x"] + 380, place["y"] + 60, steps=5)
    sight.page.mouse.up()
    sight.until(f"abele.state.number('timeline.low') > {before[0]}")
    sight.settle()
    link = sight.page.evaluate(
        "() => abele.state.values && location.href.split('#')[0] + '#' + new URLSearchParams([...abele.state.values])"
    )
    low = sight.page.evaluate("() => abele.state.number('timeline.low')")
    sight.page.goto(link)
    sight.page.reload()
    sight.page.wait_for_selector("main[data-view=timeline]")
    sight.settle()
    assert sight.page.evaluate("() => abele.keys.range.low") == pytest.approx(low)


def test_timeline__keys__fly_and_show_all_again(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline")
    sight.page.keyboard.press("w")
    sight.until("abele.keys.range.span < abele.keys.range.most")
    sight.page.keyboard.press("0")
    sight.until("abele.keys.range.span === abele.keys.range.most")


def test_timeline__click__selects_the_step_with_its_source_and_ways_on(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline")
    place = box(sight)
    sight.page.mouse.click(place["x"] + 132 + (place["width"] - 140) * 0.5, place["y"] + 45)
    sight.until("document.querySelector('.tstep')")
    step = int(sight.page.evaluate("() => abele.state.number('step')"))
    middle = small.total_cycles * 0.5
    start, cycles = int(small.steps["start_cycle"][step]), int(small.steps["cycles"][step])
    assert start <= middle + small.total_cycles / 800
    assert start + cycles >= middle - small.total_cycles / 800
    sight.settle()
    text = sight.page.locator(".tdetails").inner_text()
    assert str(small.steps["name"][step]) in text
    assert "tests/" in text or "conftest.py" in text
    sight.page.get_by_role("button", name="operation", exact=True).click()
    sight.until("abele.state.get('view') === 'operations'")
    assert sight.page.evaluate("() => abele.state.number('op')") == int(small.steps["op"][step])


def test_timeline__shift_and_drag__figures_of_the_window_stand_below(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline")
    place = box(sight)
    plot = place["width"] - 140
    sight.page.keyboard.down("Shift")
    sight.page.mouse.move(place["x"] + 132 + plot * 0.25, place["y"] + 45)
    sight.page.mouse.down()
    sight.page.mouse.move(place["x"] + 132 + plot * 0.75, place["y"] + 45, steps=4)
    sight.page.mouse.up()
    sight.page.keyboard.up("Shift")
    sight.until("document.querySelector('.tbars')")
    low, high = sight.page.evaluate("() => [abele.state.number('from'), abele.state.number('to')]")
    assert low == pytest.approx(small.total_cycles * 0.25, rel=0.02)
    assert high == pytest.approx(small.total_cycles * 0.75, rel=0.02)
    assert "tiles compute" in sight.page.locator(".tdetails").inner_text()
    sight.page.get_by_role("button", name="clear").click()
    sight.until("document.querySelector('.tdetails').textContent.includes('No window')")


def test_timeline__search__flies_from_one_find_to_the_next(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline")
    sight.page.fill(".tsearch", "second")
    sight.until("document.querySelector('.view-timeline .bar [role=status]').textContent.includes('found')")
    sight.page.press(".tsearch", "Enter")
    sight.until("Number.isFinite(abele.state.number('step'))")
    first = sight.page.evaluate("() => abele.state.number('step')")
    assert "second" in str(small.steps["name"][int(first)])
    sight.page.press(".tsearch", "Enter")
    sight.until(f"abele.state.number('step') !== {first}")
    second = int(sight.page.evaluate("() => abele.state.number('step')"))
    low, high = sight.page.evaluate("() => [abele.keys.range.low, abele.keys.range.high]")
    assert low <= int(small.steps["start_cycle"][second]) < high


@pytest.mark.parametrize(
    "state", [{"timeline.shape": "flame"}, {"timeline.view": "tiles"}, {"timeline.over": "critical,bubbles"}]
)
@pytest.mark.parametrize("dark", [False, True])
def test_timeline__each_shape__is_drawn_and_saved_as_svg(
    look, small: Report, state: dict[str, str], dark: bool
) -> None:
    sight = look(small, dark=dark)
    sight.go("timeline", **state)
    assert colours(sight) > 5
    svg = sight.page.evaluate("() => abele.shown.charts[0].svg()")
    assert svg.startswith("<svg")
    assert "NaN" not in svg


def test_timeline__tiles_down_to_one__shows_its_workers(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline", **{"timeline.view": "tiles"})
    sight.page.get_by_role("radio", name="one tile").click()
    sight.until("document.querySelector('.tnote').textContent.includes('Workers')")
    assert sight.page.evaluate("() => abele.state.get('timeline.rows')") != ""
    assert colours(sight) > 4


def test_timeline__report_without_spans__is_shown_and_says_so(look, small: Report) -> None:
    sight = look(
        replace(small, spans=SPANS.empty(), groups=GROUPS.empty(), run_spans=small.run_spans.select(slice(0, 0)))
    )
    sight.go("timeline")
    assert "does not say when steps run" in sight.page.locator(".tnote").inner_text()
    assert colours(sight) > 5


def test_timeline__names_with_markup__stay_names(look, small: Report) -> None:
    names = ["<img src=x onerror=alert(1)>" for _ in range(len(small.steps))]
    hostile = replace(
        small, steps=type(small.steps)({**small.steps.columns, "name": small.steps.columns["name"].of(names)})
    )
    sight = look(hostile)
    sight.go("timeline", step=0, **{"timeline.tab": "step", "timeline.shape": "flame"})
    assert sight.page.locator(".view-timeline img").count() == 0
    assert "<img" in sight.page.locator(".tstep").inner_text()


def test_timeline__seconds__axis_has_them(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline", **{"timeline.axis": "seconds"})
    assert "µs" in sight.page.evaluate("() => abele.shown.charts[0].svg()")


def test_wanted__windows__have_tiles_of_about_a_screen(look, small: Report) -> None:
    sight = look(small)
    assert evaluate(sight, "timeline/mosaic", "m.wanted(0, 1000, 0, 1000, 512)") == {"level": 0, "first": 0, "last": 0}
    assert evaluate(sight, "timeline/mosaic", "m.wanted(0, 1000, 0, 1000, 1024)") == {"level": 1, "first": 0, "last": 1}
    assert evaluate(sight, "timeline/mosaic", "m.wanted(500, 625, 0, 1000, 512)") == {"level": 3, "first": 4, "last": 4}
    assert evaluate(sight, "timeline/mosaic", "m.wanted(0, 1e-9, 0, 1000, 512).level") == 40


def test_pure_functions__of_the_timeline__are_right(look, small: Report) -> None:
    sight = look(small)
    assert evaluate(sight, "timeline/axis", "m.timeMarks(0, 1000, 330).map((x) => x.text)") == ["0", "500", "1,000"]
    texts = evaluate(sight, "timeline/axis", "m.timeMarks(1e6, 1e6 + 10, 440, 1e-9).map((x) => x.text)")
    assert len(set(texts)) == len(texts)
    assert evaluate(
        sight,
        "timeline/search",
        "[[[1, 5, 9], 5, 1], [[1, 5, 9], 5, -1], [[1, 5, 9], 9, 1], [[], 1, 1]].map((each) => m.neighbour(...each))",
    ) == [2, 1, 0, -1]
    assert evaluate(sight, "timeline/lanes", "m.visible([0, 10, 20, 30], [10, 5, 10, 10], 0, 4, 12, 25)") == [1, 3]
    assert evaluate(sight, "timeline/lanes", "m.visible([0, 10, 20, 30], [10, 5, 10, 10], 0, 4, 15, 20)") == [2, 2]
    assert evaluate(sight, "timeline/tiles", "m.workerShares(2.5, 6)") == [1, 1, 0.5, 0, 0, 0]
    assert evaluate(sight, "timeline/tiles", "m.workerShares(-1, 3)") == [1, 1, 1]
    assert evaluate(
        sight, "timeline/tiles", "[m.rowHeight(100, 300), m.rowHeight(1472, 300), m.rowHeight(94208, 300)]"
    ) == [0, 4, 10]
    arrays = json.dumps({"lane": [0], "start": [10], "cuts": [1, 3, 3, 8], "part": [4, 2, 5, 0]})
    shares = evaluate(sight, "timeline/paint", f"Array.from(m.sharesOfSpans({arrays}, [10, 20], 1, 10, 7))")
    wanted = [0] * 70
    for column, part in enumerate([4, 2, 2, 0, 0, 0, 0, 0]):
        wanted[column * 7 + part] = 255
    assert shares == wanted
