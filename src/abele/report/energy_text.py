"""The energy of a step as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from abele.machine import CONFIDENCE
from abele.report.text import percent_text, seconds_text
from abele.words import counted

if TYPE_CHECKING:
    from abele.report.energy import Range, StepEnergy

_PREFIXES = (
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
    (1e-12, "p"),
)


def amount_text(amount: float, unit: str) -> str:
    """An amount with three digits and a prefix of its unit: ``1.25 mJ``."""
    if not amount:
        return f"0 {unit}"
    size, prefix = next((p for p in _PREFIXES if abs(amount) >= p[0] * 0.9995), _PREFIXES[-1])
    return f"{amount / size:.3g} {prefix}{unit}"


def range_text(joules: Range, unit: str = "J") -> str:
    """A likely amount with its bounds: ``1.25 mJ (0.9 mJ to 3.1 mJ)``."""
    least, likely, most = (amount_text(each, unit) for each in joules)
    return f"{likely} ({least} to {most})"


def energy_line(energy: StepEnergy) -> str:
    """The energy of a step in a line, for summaries."""
    each = energy.joules_per_sample
    per_sample = "" if each is None else f" · {amount_text(each.likely, 'J')} for each sample"
    return f"{range_text(energy.joules)} dynamic{per_sample}"


def energy_text(energy: StepEnergy) -> str:
    """Energy of a step, term by term, with bounds, sources and unknowns."""
    rows = [("joules", "share", "least", "most", "amount", "each", "", "of", "source")]
    total = energy.joules.likely
    for term in sorted(energy.terms, key=lambda term: -term.joules.likely):
        least, likely, most = (amount_text(each, "J") for each in term.joules)
        share = percent_text(term.joules.likely / total if total else 0.0)
        amount, each = amount_text(term.amount, term.unit), amount_text(term.joules_each.likely, f"J/{term.unit}")
        rows.append((likely, share, least, most, amount, each, term.source.confidence, term.name, term.source.text))
    least, likely, most = (amount_text(each, "J") for each in energy.joules)
    rows.append((likely, "", least, most, "", "", "", "dynamic energy of one step", ""))
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ">>>>>>><<"
    lines = ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, width, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_beside(energy)])


def _beside(energy: StepEnergy) -> list[str]:
    marks = dict.fromkeys([*(term.source.confidence for term in energy.terms), energy.rated_source.confidence])
    each = energy.joules_per_sample
    ipus, watts = counted(energy.num_ipus, "IPU"), amount_text(energy.rated_watts, "W")
    lines = [] if each is None else [f"for each sample: {range_text(each)}"]
    if energy.seconds:
        lines.append(f"mean power: {range_text(energy.watts, 'W')} over {seconds_text(energy.seconds)} on {ipus}")
        lines.append(
            f"at rated power: {amount_text(energy.rated_joules, 'J')}, {ipus} of {watts} with what is around them "
            f"({energy.rated_source.confidence}: {energy.rated_source.text})"
        )
    if energy.watts.most > energy.rated_watts * energy.num_ipus:
        lines.append("the most is more than the rated power: synthetic data at full rate, or guessed energies too high")
    if energy.touched_bytes:
        others = " · ".join(f"{name} {amount_text(joules, 'J')}" for name, joules in energy.joules_from.items())
        moved = amount_text(energy.touched_bytes, "B")
        lines.append(f"the {moved} of variables read and written, from other memories: {others}")
    if energy.uncounted_proportion:
        lines.append(
            f"not in it: arithmetic of operations that nobody counts, {percent_text(energy.uncounted_proportion)} of "
            "the compute cycles"
        )
    lines.append("not in it: leakage, clocks, instructions, fans, power supplies and the host's processors")
    lines.append(" · ".join(f"{mark}: {CONFIDENCE[mark]}" for mark in sorted(marks)))
    return lines
