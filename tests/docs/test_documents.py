"""Code in the documents runs, and their links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from abele.machine import systems
from support.pages import ROOT, blocks, run_page


def test_machines__page__runs(tmp_path: Path) -> None:
    page = ROOT / "docs/machine.md"
    assert run_page(page, tmp_path).quick.ipu.clock_hz == 2.5e9
    path = tmp_path / "small.toml"
    path.write_text(next(b.code for b in blocks(page) if b.language == "toml"), encoding="utf-8")
    assert systems.load(path).num_tiles == 256


def test_reports__kinds_of_picture__are_those_of_the_page() -> None:
    from abele.report.plot import KINDS

    text = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    assert [f"| `{kind}` | {what} |" for kind, what in KINDS.items()] == re.findall(
        r"\| `\w+` \| .* \|", text[text.index("| kind | shows |") : text.index("Where several tiles")]
    )


def test_reports__tables_of_the_page__are_the_columns_that_there_are() -> None:
    spec = importlib.util.spec_from_file_location("make_report_tables", ROOT / "docs/make_report_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    assert module.page(text) == text, "python docs/make_report_tables.py writes the columns anew"


def test_native_plans__passes_of_the_page__are_those_of_the_pipeline() -> None:
    from abele.kernels.plan.passes import PIPELINE

    text = (ROOT / "docs/native_plans.md").read_text(encoding="utf-8")
    table = text[text.index("| pass | what it does |") : text.index("## Looking at them")]
    assert re.findall(r"\| `(\w+)` \| (.*) \|", table) == [(step.name, step.about) for step in PIPELINE]


def test_networks__passes_of_the_page__are_those_there_are() -> None:
    from abele.network.passes import Pass

    def below(kind: type[Pass]) -> set[str]:
        # Tests and other rooms have passes of their own.
        own = {kind.name} if hasattr(kind, "name") and kind.__module__.startswith("abele.network.passes.") else set()
        return own.union(*map(below, kind.__subclasses__()))

    named = below(Pass)
    text = (ROOT / "docs/networks.md").read_text(encoding="utf-8")
    table = text[text.index("| pass | what it does |") : text.index("Products, convolutions and recurrent")]
    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.M)) == named


def test_links__documents__lead_somewhere() -> None:
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name}: {target}"
