"""The host view in the browser: traces, runs, rows that are pinned and shut, windows, the modelled run below."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.report import Report

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_host__runs_of_a_report__are_there_without_a_trace(look, small: Report) -> None:
    sight = look(small)
    sight.go("host")
    sight.page.get_by_role("tab", name="Runs").click()
    sight.settle()
    assert sight.page.locator(".tr").count() == len(small.runs)


def test_host__nothing_measured__says_what_to_do(look, small: Report) -> None:
    from dataclasses import replace

    sight = look(replace(small, runs=small.runs.select(slice(0, 0)), host_leaves=small.host_leaves.select(slice(0, 0))))
    sight.go("host")
    assert "abele view REPORT TRACE" in sight.page.locator(".empty").inner_text()


def test_host__a_trace_beside_a_report__shows_threads_series_and_figures(look, files: tuple[Path, Path]) -> None:
    sight = look(*files)
    sight.go("host")
    svg = sight.page.evaluate("() => abele.shown.charts[0].svg()")
    assert "&#60;b&#62;loader" in svg
    assert "epoch" in svg
    assert "loss" in svg
    assert "NaN" not in svg
    sight.page.get_by_role("tab", name="Statistics").click()
    sight.until("document.querySelectorAll('.tr').length > 2")
    assert any(text.startswith("load") for text in sight.page.locator(".tr").all_inner_texts())
    sight.page.get_by_role("tab", name="Call tree").click()
    sight.until("document.querySelector('.ttree summary')")
    assert "decode" in sight.page.locator(".ttree").inner_text()


def test_host__search__flies_to_events_and_tells_of_them(look, files: tuple[Path, Path]) -> None:
    sight = look(*files)
    sight.go("host")
    sight.page.fill(".tsearch", "decode")
    sight.until("document.querySelector('.view-host .bar [role=status]').textContent.includes('50 found')")
    sight.page.press(".tsearch", "Enter")
    sight.until("document.querySelector('.tstep')")
    text = sight.page.locator(".tdetails").first.inner_text()
    assert "<1 µs (400 ns)" in text
    assert "load" in text
    assert sight.page.evaluate("() => abele.keys.range.span") < 1e6


def test_host__an_event_that_is_a_run__has_the_modelled_run_below(look, files: tuple[Path, Path]) -> None:
    sight = look(*files)
    sight.go("host")
    sight.page.fill(".tsearch", "Engine.run")
    sight.until("document.querySelector('.view-host .bar [role=status]').textContent.includes('found')")
    sight.page.press(".tsearch", "Enter")
    sight.page.get_by_role("button", name="what the machine does").click()
    sight.until("document.querySelector('.tbelow canvas')")
    assert "on the modelled machine" in sight.page.locator(".tbelow").inner_text()


def test_host__rows__are_pinned_and_shut_and_the_link_keeps_it(look, files: tuple[Path, Path]) -> None:
    sight = look(*files)
    sight.go("host", **{"host.tab": "rows"})
    sight.page.locator(".tr", has_text="loader").get_by_label("pinned").check()
    sight.until("abele.state.get('host.pinned')")
    sight.page.get_by_role("button", name="collapse all").click()
    sight.until("abele.state.get('host.shut').split(',').length > 1")
    sight.page.get_by_role("button", name="expand all").click()
    sight.until("!abele.state.get('host.shut')")
    rows = sight.page.evaluate(
        """async () => {
          const { rowsOf } = await import('abele/views/host/rows.js');
          const { head } = await abele.context.ask('host.outline');
          const pinned = new Set([decodeURIComponent(abele.state.get('host.pinned'))]);
          return rowsOf(head, { shut: new Set(), pinned, merged: false }).map((row) => row.title);
        }"""
    )
    assert rows[0] == "<b>loader</b>"


def test_host__shift_and_drag__statistics_are_those_of_the_window(look, files: tuple[Path, Path]) -> None:
    sight = look(*files)
    sight.go("host")
    place = sight.page.locator(".tmain canvas").bounding_box()
    plot = place["width"] - 176
    sight.page.keyboard.down("Shift")
    sight.page.mouse.move(place["x"] + 168 + plot * 0.5, place["y"] + 100)
    sight.page.mouse.down()
    sight.page.mouse.move(place["x"] + 168 + plot * 0.75, place["y"] + 100, steps=4)
    sight.page.mouse.up()
    sight.page.keyboard.up("Shift")
    sight.until("abele.state.number('host.from') > 0")
    sight.until("document.querySelectorAll('.tr').length > 0")
    low, high = sight.page.evaluate("() => [abele.state.number('host.from'), abele.state.number('host.to')]")
    assert 0 < low < high
