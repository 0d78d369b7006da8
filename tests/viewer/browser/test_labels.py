"""Names and labels that can be told apart: cut where they are alike, and placed so that none lies over another."""

from __future__ import annotations

from pathlib import Path

import pytest

from abele.report import Report
from abele.viewer import static_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LAYERS = [
    f"bert.encoder.layer.{layer}.{module} (Linear)/{name}"
    for layer in range(24)
    for module in ("attention.self.query", "attention.output.dense", "intermediate.dense")
    for name in ("matmul", "calculate_weight_deltas")
]


@pytest.mark.parametrize("room", [200, 90, 32, 5, 1, 0])
def test_names__cut_to_fit__fit_and_keep_what_differs(frame, room: int) -> None:
    names = [*LAYERS, "", "x", "stream input/labels", "a//b..c", "é" * 80, "\N{GRINNING FACE}" * 40]
    cut = frame.page.evaluate(
        """([names, room]) => import('abele/core/names.js').then(({ shared, shortened, parts }) => {
          const common = shared(names);
          const width = (text) => [...text].length;
          if (names.some((name) => parts(name).join("") !== name)) throw new Error("parts are not the name");
          return names.map((name) => shortened(name, common, width, room));
        })""",
        [names, room],
    )
    assert all(len(text) <= max(room, 1) for text in cut)
    assert [text for name, text in zip(names, cut, strict=True) if len(name) <= room] == [
        name for name in names if len(name) <= room
    ]
    if room >= 32:
        assert len(set(cut[: len(LAYERS)])) == len(LAYERS)


def test_labels__of_random_points__lie_in_the_box_and_none_over_another(frame) -> None:
    told = frame.page.evaluate(
        """() => import('abele/core/place.js').then(({ placed, overlap }) => {
          let seed = 1;
          const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;
          const told = { sets: 0, labels: 0, over: 0, outside: 0, differ: 0, unled: 0 };
          for (let turn = 0; turn < 300; turn += 1) {
            const box = { left: 54, top: 8, width: 60 + 500 * random(), height: 40 + 500 * random() };
            const crowd = turn % 3 ? 1 : 0.05;
            const wanted = Array.from({ length: 1 + (turn % 12) }, () => ({
              x: box.left + box.width * random() * crowd, y: box.top + box.height * random() * crowd,
              radius: 2 + 9 * random(), width: 20 + 180 * random(), height: 14,
            }));
            const dots = wanted.map(({ x, y, radius }) => [x, y, radius]);
            const places = placed(wanted, box, dots);
            told.sets += 1;
            told.differ += JSON.stringify(places) !== JSON.stringify(placed(wanted, box, dots));
            const sized = (place, i) => place && { ...place, width: wanted[i].width, height: 14 };
            const boxes = places.map(sized).filter(Boolean);
            told.labels += boxes.length;
            boxes.forEach((a, i) => {
              told.over += boxes.slice(i + 1).filter((b) => overlap(a, b)).length;
              told.outside += a.left < box.left || a.left + a.width > box.left + box.width;
              told.outside += a.top < box.top || a.top + a.height > box.top + box.height;
            });
            places.forEach((place, i) => {
              if (!place || place.isLed) return;
              const near = Math.hypot(place.to[0] - wanted[i].x, place.to[1] - wanted[i].y) - wanted[i].radius;
              told.unled += near > 20;
            });
          }
          return told;
        })"""
    )
    assert (told["over"], told["outside"], told["differ"], told["unled"]) == (0, 0, 0, 0)
    assert told["labels"] > 2 * told["sets"]


def test_operations__their_table__has_the_module_first_and_keeps_widths_between_views(look, small: Report) -> None:
    sight = look(small)
    sight.go("operations")
    heads = sight.page.locator(".view-operations .th").all_inner_texts()
    assert [head.split(" ")[0] for head in heads[:4]] == ["module", "operation", "kind", "cycles"]

    def width() -> float:
        return sight.page.evaluate("document.querySelectorAll('.view-operations .thcell')[2].offsetWidth")

    edge = sight.page.locator(".view-operations .thcell .grip").nth(2).bounding_box()
    assert edge is not None
    before = width()
    sight.page.mouse.move(edge["x"] + 3, edge["y"] + 8)
    sight.page.mouse.down()
    sight.page.mouse.move(edge["x"] + 63, edge["y"] + 8, steps=3)
    sight.page.mouse.up()
    assert width() == before + 60
    assert sight.page.evaluate("abele.state.get('operations.sort')") == ""
    sight.go("summary")
    sight.go("operations")
    assert width() == before + 60
    sight.page.locator(".view-operations .th").nth(2).press("Alt+ArrowLeft")
    assert width() == before + 44
    sight.page.locator(".view-operations .grip").nth(2).dblclick()
    assert width() == before


def test_page_of_an_older_browser__says_what_it_lacks(browser, small: Report, tmp_path: Path) -> None:
    static_page(small, tmp_path / "page.html")
    page = browser.new_page()
    page.add_init_script("delete globalThis.DecompressionStream")
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("text=This browser cannot show the page")
    page.close()
