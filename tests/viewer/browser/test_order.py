"""The page when things come in another order than they were asked for, fail, or are gone before they were shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from abele.report import Report

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOLD = """(question) => {
  const ask = abele.source.ask.bind(abele.source);
  globalThis.held = [];
  abele.source.ask = (key, name, params) => {
    const answer = ask(key, name, params);
    if (name !== question) return answer;
    return new Promise((done) => held.push(() => done(answer)));
  };
  globalThis.release = (i) => held[i]();
}"""
"""Answers to a question wait until ``release(i)``, i counting from the first one asked."""

FAIL = """(question) => {
  const ask = abele.source.ask.bind(abele.source);
  globalThis.failed = 0;
  abele.source.ask = (key, name, params) => {
    if (name !== question) return ask(key, name, params);
    failed += 1;
    return new Promise((_, fail) => setTimeout(() => fail(new Error("no answer")), 5));
  };
}"""


@pytest.fixture
def other(small: Report) -> Report:
    """The same program under another name, of which the report has two runs' programs."""
    return replace(small, meta={**small.meta, "name": "other", "programs": ["one", "two"]})


def test_keys__of_the_view_that_is_shown__do_what_the_help_says(look, small: Report) -> None:
    sight = look(small)
    sight.go("timeline")
    sight.page.keyboard.press("f")
    sight.until("abele.state.get('timeline.shape') === 'flame'")
    sight.go("timeline", **{"timeline.search": "second"})
    sight.go("operations")
    sight.go("timeline")
    note = "document.querySelector('.view-timeline .bar [role=status]').textContent"
    sight.until(f"{note}.includes('found')")
    sight.page.keyboard.press("n")
    sight.until(f"{note}.includes(' of ')")
    found = sight.page.evaluate(f"() => {note}")
    sight.page.keyboard.press("n")
    sight.until(f"{note} !== '{found}'")
    sight.page.keyboard.press("Shift+N")
    sight.until(f"{note} === '{found}'")
    sight.go("operations")
    sight.page.keyboard.press("f")
    assert sight.page.evaluate("() => abele.state.get('timeline.shape')") == "flame"


def test_help__of_each_view__every_key_is_named_once(look, small: Report) -> None:
    sight = look(small)
    views = sight.page.evaluate("() => import('abele/views/index.js').then((m) => m.VIEWS.map((v) => v.name))")
    for view in views:
        sight.go(view)
        keys = sight.page.evaluate("() => abele.commands().map((c) => c.key).filter(Boolean)")
        assert len(keys) == len(set(keys)), view
        assert not set(keys) & set("wasd"), view


def test_views__the_second_asked_for_is_ready_first__the_second_stays(look, small: Report) -> None:
    sight = look(small)
    sight.page.evaluate(HOLD, "timeline.outline")
    sight.page.evaluate("() => abele.context.go('timeline')")
    sight.until("held.length === 1")
    sight.page.evaluate("() => abele.context.go('matrix')")
    sight.page.wait_for_selector("main[data-view=matrix]")
    sight.settle()
    sight.page.evaluate("() => release(0)")
    sight.settle()
    assert sight.page.evaluate("() => abele.shown.charts.map((chart) => chart.name)") == ["matrix"]
    sight.page.keyboard.press("w")
    assert sight.page.evaluate("() => 'low' in (abele.keys.range ?? {})") is False


def test_view__the_state_changes_while_it_is_made__shows_what_the_state_says(look, small: Report) -> None:
    sight = look(small)
    sight.page.evaluate(HOLD, "program")
    sight.page.evaluate("() => abele.context.go('program')")
    sight.until("held.length === 1")
    sight.page.evaluate("() => abele.state.set({ step: 3 })")
    sight.page.evaluate("() => release(0)")
    sight.until("document.querySelector('.view-program .told h3')")
    sight.settle()
    name = str(small.steps["name"][3])
    assert name in sight.page.locator(".view-program .told").inner_text()


def test_reports__chosen_twice_and_answered_in_turn__the_last_one_is_shown(look, small: Report, other: Report) -> None:
    sight = look(small, other)
    keys = sight.page.evaluate("() => abele.source.reports.map((r) => r.key)")
    sight.page.evaluate("() => abele.context.go('timeline')")
    sight.page.wait_for_selector("main[data-view=timeline]")
    sight.settle()
    sight.page.evaluate(HOLD, "facts")
    sight.page.evaluate("(keys) => abele.state.set({ reports: keys.join(',') })", keys[::-1])
    sight.page.evaluate("(keys) => abele.state.set({ reports: keys.join(',') })", keys)
    sight.until("held.length === 2")
    sight.page.evaluate("() => { release(1); setTimeout(() => release(0), 20); }")
    sight.page.wait_for_timeout(100)
    sight.settle()
    assert sight.page.evaluate("() => abele.context.facts.title") == small_title(sight, keys[0])
    assert sight.page.locator(".view-timeline .tmain").count() == 1


def small_title(sight, key: str) -> str:
    title: str = sight.page.evaluate("(key) => abele.source.reports.find((r) => r.key === key).title", key)
    return title


def test_reports__the_other_one_cannot_be_read__the_first_comes_back(look, small: Report, other: Report) -> None:
    sight = look(small, other)
    keys = sight.page.evaluate("() => abele.source.reports.map((r) => r.key)")
    sight.go("operations")
    sight.page.evaluate(
        """(bad) => {
          const ask = abele.source.ask.bind(abele.source);
          abele.source.ask = (key, ...rest) => (key === bad ? Promise.reject(new Error("damaged")) : ask(key, ...rest));
        }""",
        keys[1],
    )
    sight.page.evaluate("(keys) => abele.state.set({ reports: keys.join(',') })", keys[::-1])
    sight.page.wait_for_selector("main .bad >> text=damaged")
    sight.page.evaluate("(keys) => abele.state.set({ reports: keys.join(',') })", keys)
    sight.page.wait_for_selector("main .view-operations .tr")


def test_programs__another_report_has_fewer__its_first_is_shown(look, small: Report, other: Report) -> None:
    sight = look(other, small)
    keys = sight.page.evaluate("() => abele.source.reports.map((r) => r.key)")
    sight.page.evaluate("() => abele.state.set({ program: 1 })")
    sight.go("timeline")
    sight.page.wait_for_selector(".view-timeline .empty")
    sight.page.evaluate("(keys) => abele.state.set({ reports: keys.join(',') })", keys[::-1])
    sight.page.wait_for_selector(".view-timeline .tmain")


def test_programs__more_than_are_named__can_be_chosen(look, small: Report) -> None:
    steps = small.steps.select(np.arange(len(small.steps)))
    columns = {name: steps.columns[name] for name in steps.names}
    columns["program"] = np.where(np.arange(len(steps)) < len(steps) // 2, 0, 1).astype(np.int32)
    sight = look(replace(small, steps=type(steps)(columns)))
    options = sight.page.locator("select[aria-label=Program] option").all_inner_texts()
    assert options[1:] == ["program 1"]


def test_matrix__names_cannot_be_had__are_asked_for_once(look, small: Report) -> None:
    sight = look(small)
    sight.page.evaluate(FAIL, "table")
    sight.go("matrix", step=0)
    sight.page.wait_for_timeout(300)
    assert 1 <= sight.page.evaluate("() => failed") <= 4


def test_graph__gone_before_it_had_a_size__asks_for_no_more_frames(look, small: Report) -> None:
    sight = look(small)
    frames = sight.page.evaluate(
        """async () => {
          const { mount } = await import('abele/views/graph.js');
          const place = document.createElement('div');
          const view = mount(abele.context, place);
          await new Promise((done) => setTimeout(done, 300));
          view.destroy();
          await new Promise((done) => setTimeout(done, 50));
          let asked = 0;
          const before = globalThis.requestAnimationFrame;
          globalThis.requestAnimationFrame = (run) => { asked += 1; return before(run); };
          await new Promise((done) => setTimeout(done, 100));
          globalThis.requestAnimationFrame = before;
          return asked;
        }"""
    )
    assert frames == 0


def test_host__two_events_picked_the_first_answered_last__tells_the_second(look, files: tuple[Path, Path]) -> None:
    sight = look(*files)
    sight.go("host")
    source, first, second = sight.page.evaluate(
        """async () => {
          const { arrays } = await abele.context.ask('host.find', { text: 'decode' });
          const { arrays: other } = await abele.context.ask('host.find', { text: 'load' });
          return [arrays.source[0], arrays.row[0], other.row[0]];
        }"""
    )
    sight.page.evaluate(HOLD, "host.event")
    for row in (first, second):
        sight.page.evaluate("(event) => abele.state.set({ 'host.event': event })", f"{source}-{row}")
    sight.until("held.length === 2")
    sight.page.evaluate("() => { release(1); setTimeout(() => release(0), 20); }")
    sight.page.wait_for_timeout(100)
    sight.settle()
    assert sight.page.locator(".view-host .tstep").inner_text() == "load"


@pytest.mark.parametrize("values", ["[1, Infinity]", "[NaN, 3]", "[]"])
def test_decades__values_that_are_no_numbers__are_left_out(frame, values: str) -> None:
    low, high = frame.page.evaluate(f"() => import('abele/core/log_axis.js').then((m) => m.decades({values}))")
    assert -1 < low < high < 10
