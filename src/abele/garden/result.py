"""Result of a demo: its own figures, what running took, and the report of the modelled machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from abele.report import Report


@dataclass(kw_only=True)
class DemoResult:
    """Outcome of a demo.

    Attributes:
        name: Name of the demo.
        note: What one must know to read the figures.
        figures: Its own figures by name: accuracy, errors, weights digest.
        seconds: Real time of each part on the host.
        report: What the training program costs on the modelled machine.
        comparisons: Rows that set modelled beside measured figures.
        comparison_note: Assumptions behind them.
    """

    name: str
    note: str
    figures: dict[str, float | int | str]
    seconds: dict[str, float]
    report: Report
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    comparison_note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "demo": self.name,
            "note": self.note,
            "figures": self.figures,
            "seconds": self.seconds,
            "comparisons": self.comparisons,
            "comparison_note": self.comparison_note,
            "report": self.report.to_json(),
        }


class Stopwatch:
    """Real time of named parts, added up."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        """Add the time that the block takes to ``part``."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + perf_counter() - start


def weights_digest(model: Any) -> str:
    """SHA-256 of all parameters of a PyTorch module, to see that two runs agree to the last bit."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
