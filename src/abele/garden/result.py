"""Result of a demo: its own figures, what running took, and the report of the modelled machine."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from abele.report import Report


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A figure on data that training never saw, beside what simpler means reach on the same data.

    Attributes:
        measure: Name of the measure: ``"accuracy"``.
        value: Value that the trained model reaches.
        beside: Values of simpler means, by name.
        on: Data of the measurement: ``"471 held-out modules"``.
        is_share: The figures are shares, said in per cent.
        higher_is_better: The larger figure is the better one.
    """

    measure: str
    value: float
    beside: dict[str, float]
    on: str
    is_share: bool = False
    higher_is_better: bool = False

    @property
    def beats_all(self) -> bool:
        """The model is better than every simpler means."""
        sign = 1 if self.higher_is_better else -1
        return all(sign * self.value > sign * other for other in self.beside.values())

    def text(self) -> str:
        """The figures in a line."""
        beside = ", ".join(f"{name} {self._figure(value)}" for name, value in self.beside.items())
        return f"{self._figure(self.value)} on {self.on} (beside it: {beside})"

    def _figure(self, value: float) -> str:
        return f"{value:.1%}" if self.is_share else f"{value:.3f}"


@dataclass(kw_only=True)
class DemoResult:
    """Outcome of a demo.

    Attributes:
        name: Name of the demo.
        note: Note for readers of the figures.
        figures: Its own figures by name: accuracy, errors, weights digest.
        seconds: Real time of each part on the host.
        report: Cost of the training program on the modelled machine.
        comparisons: Rows that set modelled beside measured figures.
        comparison_note: Assumptions behind them.
        held_out: Figures on held-out data beside simpler means.
        exhibit: Something that the trained model made, as text.
    """

    name: str
    note: str
    figures: dict[str, float | int | str]
    seconds: dict[str, float]
    report: Report
    comparisons: list[dict[str, Any]] = field(default_factory=list)
    comparison_note: str = ""
    held_out: tuple[HeldOut, ...] = ()
    exhibit: str = ""

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "demo": self.name,
            "note": self.note,
            "figures": self.figures,
            "held_out": [asdict(figure) for figure in self.held_out],
            "exhibit": self.exhibit,
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
