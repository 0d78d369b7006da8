"""The question of what a step takes in joules."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from abele.errors import FileFormatError
from abele.machine import CONFIDENCE, described, systems
from abele.report import Report
from abele.viewer.answers import answer
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params


def asked(report: Report) -> dict[str, Any]:
    head: dict[str, Any] = json.loads(json.dumps(answer(Opened("x", "x", report), "energy", Params({})).head))
    return head


def with_energies(report: Report) -> Report:
    return report.with_meta(energy=described(systems.get("bow-2000").ipu.energy))


def test_energy__report_of_a_machine__is_what_the_report_says(made_small: Report) -> None:
    report = with_energies(made_small)
    head = asked(report)
    assert report.energy is not None
    assert head == {"energy": json.loads(json.dumps(report.energy.to_json())), "confidence": CONFIDENCE}
    assert {term["source"]["confidence"] for term in head["energy"]["terms"]} <= set(CONFIDENCE)


def test_energy__report_without_energies__has_none(made_small: Report) -> None:
    without = {name: value for name, value in made_small.meta.items() if name != "energy"}
    assert asked(replace(made_small, meta=without))["energy"] is None


@pytest.mark.parametrize("table", ["much", 7, {"rated_watts": "many"}])
def test_energy__damaged_energies__are_a_typed_error(made_small: Report, table: object) -> None:
    with pytest.raises(FileFormatError, match="energies are damaged"):
        asked(made_small.with_meta(energy=table))
