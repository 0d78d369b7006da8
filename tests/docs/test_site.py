"""The documentation as a site: every page is in it, and the pages that are made are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from support.pages import load_script

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)


def load(name: str) -> ModuleType:
    return load_script(DOCS / f"{name}.py", f"abele_docs_{name}")


def entries(page: Path) -> list[Path]:
    """The pages that a page puts into the site."""
    found = []
    for block in TOCTREE.findall(page.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if line.strip() and not line.startswith(":"):
                found += [*page.parent.glob(f"{line}.md"), *page.parent.glob(f"{line}.rst")]
    return found


def test_site__every_page__is_reached_from_the_first() -> None:
    reached, left = set[Path](), [DOCS / "index.md"]
    while left:
        page = left.pop()
        reached.add(page)
        left += [entry for entry in entries(page) if entry not in reached] if page.suffix == ".md" else []
    assert reached == {*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")}


def test_errors_page__kinds_and_examples__say_what_the_code_says() -> None:
    written = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert load("make_errors").page() == written, "python docs/make_errors.py writes the page anew"


def test_tables_of_options__in_pages__say_what_the_code_says() -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    made = load("make_options")
    for name in made.TABLES:
        written = (DOCS / name).read_text(encoding="utf-8")
        assert made.page(name, written) == written, "python docs/make_options.py writes the tables anew"


def test_names_of_popart__page__says_what_the_code_says() -> None:
    pytest.importorskip("onnx", reason="needs onnx")
    written = (DOCS / "popart_names.md").read_text(encoding="utf-8")
    assert load("make_popart").page() == written, "python docs/make_popart.py writes the page anew"


def test_rooms_picture__is_what_its_script_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("make_rooms_picture")
    (tmp_path / "pictures").mkdir()
    monkeypatch.setattr(module, "__file__", str(tmp_path / "x.py"))
    module.main()
    assert (tmp_path / "pictures/rooms.svg").read_text() == (DOCS / "pictures/rooms.svg").read_text()


def test_glossary__words_of_the_poplar_world__are_explained() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = [line for line in text.splitlines() if line and not line.startswith((" ", "#", "`"))][1:]
    for word in ("tile", "superstep", "vertex", "codelet", "compute set", "exchange", "tile mapping", "replica", "AMP"):
        assert word in terms
    assert [t.lower() for t in terms] == sorted(t.lower() for t in terms)


@pytest.mark.slow
@pytest.mark.torch
def test_site__built_strictly__has_no_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    for package in ("sphinx", "furo", "myst_parser", "sphinx_copybutton", "torch"):
        pytest.importorskip(package, reason="needs the docs extra")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", str(DOCS), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    loads = re.compile(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(https?:)?//")
    for page in tmp_path.rglob("*.html"):
        assert not loads.search(page.read_text(encoding="utf-8")), page.name
    search = (tmp_path / "searchindex.js").read_text(encoding="utf-8")
    for name in ("addVariable", "scaled_add_to", "trainingModel", "map_linear", "OutOfMemoryError"):
        assert name in search or name.lower() in search
