"""The validation page: comparisons as Markdown, with a picture each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from abele.validation.calibration import calibrated_constants
from abele.validation.figures import Comparison, ErrorSpread, Figure, figure_text, spread
from abele.validation.notes import notes_text
from abele.validation.plots import can_plot, plot
from abele.writing import writing

_MOST_ROWS = 40
"""Comparisons of more figures are shown by kind, with the figures that are furthest off."""
_FURTHEST = 12

_INTRODUCTION = """# Validation

What Abele predicts beside what others measured or modelled. This page is made by

```
abele validate --operators OPERATORS.csv --silicon SILICON.csv --training --packing LENGTHS.csv --out docs
```

The first file has published operator benchmarks: columns `name`, `tool`, `params`, and for `mk1` and `mk2` `cycles` and
`total_mem_bytes`. The second has measurements of small products: `N`, `cycles_measured`. The third, which may be left
out, has histograms of lengths: `length`, and counts for each set; what comes of them is also in
[packed BERT](packed_bert.md). All other references stand in the package, with their sources.

No kind of operator has a factor of its own. Each parameter of the machine has one physical meaning and a source
([constants](constants.md), `abele systems NAME`). A few were calibrated on measurements; the figures that they were
calibrated on are marked, and count in no median, percentile or worst error. So no constant is fitted to a figure that
counts. An error is predicted over reference, less one. Medians, 90th percentiles and worst errors are of sizes, without
signs.
"""


def write_page(comparisons: Sequence[Comparison], folder: str | Path, *, failures: Sequence[str] = ()) -> list[Path]:
    """Write ``validation.md`` and, where matplotlib is installed, a picture per comparison; the files written.

    Args:
        comparisons: Comparisons to show, in order.
        folder: Folder of the page; pictures go to ``pictures`` in it.
        failures: Failed comparisons, a line each.
    """
    folder = Path(folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, str] = {}
    written: list[Path] = []
    if can_plot():
        (folder / "pictures").mkdir(exist_ok=True)
        for comparison in comparisons:
            path = plot(comparison, folder / "pictures" / f"validation-{comparison.key}.png")
            pictures[comparison.key] = f"pictures/{path.name}"
            written.append(path)
    page = folder / "validation.md"
    page.write_text(page_text(comparisons, pictures, failures), encoding="utf-8")
    return [page, *written]


def page_text(comparisons: Sequence[Comparison], pictures: dict[str, str], failures: Sequence[str] = ()) -> str:
    """The page as Markdown; ``pictures`` has the paths of pictures by key of the comparison."""
    parts = [_INTRODUCTION, _overview(comparisons), _calibrations()]
    parts += [_section(comparison, pictures.get(comparison.key)) for comparison in comparisons]
    reasons = notes_text(comparisons)
    if reasons:
        parts.append(reasons)
    if failures:
        parts.append("## Not compared\n\n" + "\n".join(f"- {_one_line(failure)}" for failure in failures) + "\n")
    return "\n".join(parts)


def _overview(comparisons: Iterable[Comparison]) -> str:
    rows = [(c.title, *_shares(c.spread), _bars_text(c), _verdict(c)) for c in comparisons]
    return _table(("comparison", "figures", "median", "90 %", "worst", "asked for", ""), rows)


def _calibrations() -> str:
    """The constants that were calibrated, and on what."""
    rows = [
        (f"`{c.path}`", c.text, "; ".join(on.partition(": ")[2] for on in c.source.calibrated_on))
        for c in calibrated_constants()
    ]
    return "Calibrated constants:\n\n" + _table(("constant", "value", "calibrated on"), rows, numbers=2)


def _section(comparison: Comparison, picture: str | None) -> str:
    title, is_word = comparison.title, comparison.title.split()[0].rstrip(":").isalpha()
    title = title[0].upper() + title[1:] if is_word else title
    parts = [f"## {title}\n\n{comparison.about}\n"]
    if picture is not None:
        parts.append(f"![{comparison.title}: predicted against reference]({picture})\n")
    if len(comparison.figures) <= _MOST_ROWS:
        parts.append(_figures(comparison, comparison.figures))
    else:
        parts.append(_kinds(comparison))
        known = [f for f in comparison.tested if f.error is not None]
        furthest = sorted(known, key=lambda f: -abs(f.error or 0))[:_FURTHEST]
        parts.append(f"The {len(furthest)} that are furthest off:\n")
        parts.append(_figures(comparison, furthest))
        marked = [f for f in comparison.figures if comparison.calibrated(f)]
        if marked:
            parts += ["Not among them, since constants were calibrated on them:\n", _figures(comparison, marked)]
    if comparison.details:
        parts.append(comparison.details)
    return "\n".join(parts)


def _figures(comparison: Comparison, figures: Iterable[Figure]) -> str:
    rows = [
        (
            f.name.replace("_", r"\_"),
            figure_text(f.predicted),
            figure_text(f.reference),
            f.unit,
            "calibrated on" if comparison.calibrated(f) else _error(f),
        )
        for f in figures
    ]
    return _table(("", "predicted", "reference", "unit", "error"), rows)


def _kinds(comparison: Comparison) -> str:
    kinds: dict[str, list[float]] = {}
    for figure in comparison.tested:
        if figure.error is not None:
            kinds.setdefault(figure.kind, []).append(figure.error)
    rows = [(kind.replace("_", " "), *_shares(spread(errors))) for kind, errors in kinds.items()]
    return _table(("kind", "figures", "median", "90 %", "worst"), rows)


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: int | None = None) -> str:
    """A table whose columns after the first are numbers, up to column ``numbers`` if not all."""
    last = len(headings) if numbers is None else numbers
    lines = ["| " + " | ".join(headings) + " |", "|---" + "|--:" * (last - 1) + "|---" * (len(headings) - last) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _shares(found: ErrorSpread) -> tuple[str, ...]:
    return (str(found.count), *(f"{share:.1%}" for share in (found.median, found.high, found.worst)))


def _bars_text(comparison: Comparison) -> str:
    bars = comparison.bars
    if bars is None:
        return "–"
    worst = f"{bars.worst:.0%}"
    return f"every figure within {worst}" if bars.median is None else f"median {bars.median:.0%}, worst {worst}"


def _verdict(comparison: Comparison) -> str:
    return "" if comparison.bars is None else "holds" if comparison.holds else "**does not hold**"


def _error(figure: Figure) -> str:
    return "–" if figure.error is None else f"{figure.error:+.1%}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
