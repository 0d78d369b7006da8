"""The page of constants is that of the code, and every number of a cost has a source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from abele.machine import sources, systems
from abele.validation import audit
from support.pages import load_script

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "constants.md"


def test_page__tables__are_what_the_script_writes() -> None:
    assert load_script(DOCS / "make_constants.py").page() == PAGE.read_text(encoding="utf-8"), (
        "python docs/make_constants.py writes it anew"
    )


def test_page__constants_of_every_preset__are_on_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in systems.names():
        for constant in sources(systems.get(name)):
            assert f"`{constant.path}`" in text
            assert constant.meaning, f"{constant.path} is not among the attributes of its class"
            assert constant.source.confidence in "SDCG", f"{constant.path} of {name} has no source"
            assert (constant.source.confidence == "C") == bool(constant.source.calibrated_on)


def test_cost_rooms__every_number__has_a_source() -> None:
    assert len(audit.formula_constants()) > 100
    assert audit.unsourced() == ()


@pytest.mark.parametrize(
    ("code", "bad"),
    [
        ("SLOTS = 7", ["SLOTS"]),
        ('SLOTS = 7\n"""Slots of entering."""', ["SLOTS"]),
        ('A, B = 3, 4\nC = {16: 5}\n"""Slots. Source: §4.9."""', []),
        ('"""Costs. Source of all: §4.9."""\nSLOTS = 7\n"""Slots of entering."""', []),
        ('SLOTS = 7\n"""Slots of entering. Guessed."""', []),
        ("MAIN = Slots(main=7, source='§1.2 S: one')", []),
        ("MAIN = Slots(main=7)", ["MAIN"]),
        ("def work_cycles(n):\n    return 17 + n", ["work_cycles"]),
        ('def work_cycles(n):\n    """Source: §4.2."""\n    return 17 + n', []),
        ("def work_cycles(n):\n    return 2 * n + 1 + n[3 + n]", []),
        ("class Work:\n    def cycles(self):\n        return -(-self.n // 6)", ["Work.cycles"]),
        ("def names(n):\n    return 17 + n", []),
        ("def make():\n    def cycles(v):\n        return 3 * v\n    return cycles", ["make.cycles"]),
        ('def make():\n    """Source: §4.8."""\n    def cycles(v):\n        return 3 * v\n    return cycles', []),
    ],
)
def test_audit__code__finds_numbers_without_a_source(code: str, bad: list[str]) -> None:
    tree = ast.parse(code)
    named = [c.name for c in audit._named("cost.py", tree) if not c.has_source]
    assert named + list(audit._bare(tree, False)) == bad


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Slots. Source: §1.2 D.", "D"),
        ("Source: machine.md §1.3.", "S"),
        ("Bytes. Source: §1.1 S, set-up guessed.", "S"),
        ("Guessed.", "G"),
        ("Tried. Chosen.", "–"),
    ],
)
def test_formula_constant__text__tells_the_confidence(text: str, mark: str) -> None:
    assert audit.FormulaConstant("m.py", "N", "1", text).confidence == mark
