"""The page as one file: what it takes along, how large it becomes, and that it is written whole or not at all."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from abele.errors import FileFormatError, InvalidOptionError
from abele.report import Report
from abele.report import file as report_file
from abele.viewer import static_html, static_page
from abele.viewer.answers import QUESTIONS, Question, answer
from abele.viewer.open_reports import Shelf
from abele.viewer.pages import hashed
from abele.viewer.params import Params
from abele.viewer.static import address
from abele.viewer.wire import Answer, pack, unpack


def inflated(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def parts(html: str) -> list[str]:
    """Data of a page, as it holds it: first the list, then bundles of answers."""
    found = re.search(r'<script type="application/json" id="abele-frozen">(.*?)</script>', html, re.S)
    assert found is not None
    content: list[str] = json.loads(found[1])
    return content


def known(html: str) -> dict[str, Any]:
    """Data of a page; answers by address, each as bundle, first byte, size."""
    content: dict[str, Any] = json.loads(inflated(parts(html)[0]))
    return content


def answers_of(html: str) -> dict[str, Answer]:
    bundles = [inflated(part) for part in parts(html)[1:]]
    return {
        place: unpack(bundles[bundle][first : first + size])
        for place, (bundle, first, size) in known(html)["answers"].items()
    }


@pytest.fixture(scope="module")
def html(made_small: Report) -> str:
    """The page of the small report."""
    return static_html(made_small)


def test_static_page__its_answers__are_those_of_the_questions(made_small: Report, html: str) -> None:
    (opened,) = Shelf([made_small])
    answers = answers_of(html)
    for question in QUESTIONS.values():
        for params in [] if question.frozen is None else question.frozen(opened):
            found = answers[address(opened.key, question.name, params)]
            if "refused" not in found.head:
                expected = unpack(pack(answer(opened, question.name, Params(params))))
                assert found.head == expected.head
                for name, array in expected.arrays.items():
                    assert found.arrays[name].dtype == array.dtype
                    assert found.arrays[name].shape == array.shape
                    assert found.arrays[name].tobytes() == array.tobytes()


def test_static_page__written_twice__is_the_same(made_small: Report, html: str) -> None:
    assert static_html(made_small) == html


def test_static_page__size__keeps_to_what_was_said_and_drops_what_matters_least(
    made_small: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    def noise(opened: object, params: Params) -> Answer:
        size = params.number("size")
        return Answer({}, {"noise": np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)})

    def sizes(opened: object) -> Any:
        return iter([{"size": "100000"}, {"size": "300000"}, {"size": "10"}])

    monkeypatch.setitem(QUESTIONS, "first", Question("first", noise, sizes, rank=-2))
    monkeypatch.setitem(QUESTIONS, "last", Question("last", noise, sizes, rank=99))
    monkeypatch.setitem(QUESTIONS, "asked", Question("asked", noise, None, rank=0))
    whole = len(static_html(made_small).encode())
    for most in (whole + 60_000, whole - 500_000):
        html = static_html(made_small, most)
        assert len(html.encode()) <= most
        found = known(html)
        assert "small-transformer/first?size=300000" in found["answers"]
        assert found["left"].get("asked") == "server"
        assert ("last" in found["left"]) == (most < whole)
        assert "small-transformer/last?size=10" in found["answers"]  # Every question gets a little first.
        assert ("small-transformer/last?size=300000" in found["answers"]) == (most > whole)


@pytest.mark.parametrize("most", [0, -1, 1_000, 50_000])
def test_static_page__no_room__is_an_error_that_says_how_much(made_small: Report, tmp_path: Path, most: int) -> None:
    with pytest.raises(InvalidOptionError, match="has no room for a report") as found:
        static_page(made_small, tmp_path / "page.html", most)
    assert "B or more" in str(found.value.remedy)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("most", [float("nan"), float("inf"), float("-inf")])
def test_static_page__size_that_is_no_number__is_an_error(made_small: Report, most: float) -> None:
    with pytest.raises(InvalidOptionError, match="a page of"):
        static_html(made_small, most)


def test_static_page__of_four_reports__shares_the_room(made_small: Report) -> None:
    html = static_html([made_small] * 4, 750_000)
    assert len(html.encode()) <= 750_000
    found = known(html)
    keys = ["small-transformer", *(f"small-transformer-{number}" for number in range(2, 5))]
    assert [entry["key"] for entry in found["reports"]] == keys
    assert {place.split("/")[0] for place in found["answers"]} == set(keys)
    answers = found["answers"]
    for number in range(2, 5):
        assert f"small-transformer-{number}/facts" in answers


def test_static_page__that_fails__leaves_what_was_there(
    made_small: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    path.write_text("before")
    monkeypatch.setattr(Path, "write_bytes", _full_disk)
    with pytest.raises(FileFormatError, match=r"page.html: cannot be written: No space left"):
        static_page(made_small, path)
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["page.html"]


def _full_disk(path: Path, content: bytes) -> int:
    raise OSError(28, "No space left on device")


def test_static_page__place_that_cannot_be_written__is_told(
    made_small: Report, html: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abele.viewer.static.static_html", lambda *_: html)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "page.html", tmp_path, Path("/proc/page.html")):
        with pytest.raises(FileFormatError, match="cannot be written"):
            static_page(made_small, path)


def test_static_page__names_of_strangers__end_no_script_and_open_no_tag(made_small: Report) -> None:
    nasty = "</script><!--<script>{{start}}{{frozen}}&amp;\u2028\ud800"
    report = replace(made_small, meta={**made_small.meta, "name": nasty, "programs": [nasty] * 2})
    html = static_html(report)
    html.encode("ascii", "strict") if html.isascii() else html.encode()
    assert html.count("</script>") == len(re.findall(r"<script\b", html)) == 3
    assert nasty not in html
    assert known(html)["reports"][0]["title"].startswith("</script><!--<script>{{start}}")
    assert "<title>&lt;/script&gt;" in html


def test_static_page__policy__names_each_inline_part_by_its_hash(html: str) -> None:
    found = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)">', html)
    assert found is not None
    policy = found[1]
    script = re.search(r"<script>(.*?)</script>", html, re.S)
    assert script is not None
    assert hashed(script[1]) in policy
    style = re.search(r"<style>(.*?)</style>", html, re.S)
    assert style is not None
    assert hashed(style[1]) in policy
    assert not re.search(r'(src|href)="(?!data:)', html)


def test_static_page__damaged_column__is_told_in_its_place(
    made_small: Report, tmp_path: Path, damage: Callable[[Path, str], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_file, "SMALL_BYTES", 0)
    path = tmp_path / "run.abele-report"
    made_small.save(path)
    assert damage(path, "ops/flops")
    answers = answers_of(static_html(path))
    told = answers[address("run", "table", {"of": "ops", "sort": "-cycles", "count": "2000"})].head["refused"]
    assert (told["kind"], "ops/flops" in told["at"]) == ("file", True)
    assert answers["run/facts"].head["cycles"] == made_small.total_cycles


@pytest.mark.slow
def test_static_page__of_a_pod__is_below_8_mb(pod64: Report, tmp_path: Path) -> None:
    size = static_page(pod64, tmp_path / "pod.html")
    assert size == (tmp_path / "pod.html").stat().st_size <= 8_000_000
