"""Energy of a step in joules, by consumer."""

from __future__ import annotations

from typing import Any

from abele.machine import CONFIDENCE
from abele.viewer.answers.registry import once, question
from abele.viewer.open_reports import Opened
from abele.viewer.params import Params
from abele.viewer.wire import Answer


@question("energy", frozen=once, rank=1)
def energy(opened: Opened, params: Params) -> Answer:
    """``StepEnergy.to_json()`` under ``energy``, None where the report does not know the energies of its machine.

    ``confidence`` says what the marks of the sources mean. Figures are those of program 0.
    """
    return Answer(opened.once("energy", lambda: _told(opened)))


def _told(opened: Opened) -> dict[str, Any]:
    found = opened.report.energy
    return {"energy": None if found is None else found.to_json(), "confidence": CONFIDENCE}
