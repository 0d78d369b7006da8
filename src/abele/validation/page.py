"""The validation page: comparisons as Markdown, with a picture each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from abele.errors import MissingPackageError
from abele.validation.figures import Comparison, ErrorSpread, Figure, calibrated_constants, figure_text, spread
from abele.writing import writing

# Pictures of comparisons: predicted against reference, both axes logarithmic. Needs the ``plot`` extra.

_LINES = ((0.1, "#888888", "±10 %"), (0.3, "#cccccc", "±30 %"))


def can_plot() -> bool:
    """True if matplotlib is installed."""
    return find_spec("matplotlib") is not None


def plot(comparison: Comparison, path: str | Path) -> Path:
    """Write a PNG picture: one colour a kind, the diagonal, and lines at ±10 % and ±30 %.

    Figures without a reference, or of zero, are left out.

    Raises:
        MissingPackageError: matplotlib is not installed.
    """
    if not can_plot():
        raise MissingPackageError("plots need matplotlib, which is not installed", remedy="pip install 'abele[plot]'")
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    shown = [f for f in comparison.figures if f.reference > 0 and f.predicted > 0]
    kinds: dict[str, list[Figure]] = {}
    for figure in shown:
        kinds.setdefault(figure.kind, []).append(figure)
    picture = Picture(figsize=(8, 5.5), dpi=110, layout="constrained")
    FigureCanvasAgg(picture)
    axes = picture.add_subplot()
    axes.set(xscale="log", yscale="log")
    values = [n for f in shown for n in (f.reference, f.predicted)] or [1.0]
    ends = [min(values) * 0.7, max(values) * 1.4]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for share, colour, label in _LINES:
        for i, factor in enumerate((1 + share, 1 - share)):
            scaled = [n * factor for n in ends]
            axes.plot(ends, scaled, color=colour, linewidth=0.8, linestyle="--", label=label if i == 0 else None)
    palette = colormaps["tab20" if len(kinds) > 10 else "tab10"]
    for i, (kind, figures) in enumerate(kinds.items()):
        at = [f.reference for f in figures], [f.predicted for f in figures]
        axes.scatter(*at, s=14, color=[palette(i % palette.N)], label=kind.replace("_", " "), zorder=3)
    unit = shown[0].unit if shown else ""
    axes.set(xlim=ends, ylim=ends, title=comparison.title, xlabel=f"reference, {unit}", ylabel=f"predicted, {unit}")
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    axes.grid(visible=True, which="major", linewidth=0.3)
    picture.savefig(path, metadata={"Software": None})
    return Path(path)


# Disagreements of model and references by more than a few per cent, and the likely reasons.

REASONS = {
    "cholesky": """Vertices cost PopLibs' published polynomials; the inverse of a lower block is calibrated. Published
        memory is mostly compiled code, some 16 KB on each tile that runs a vertex.""",
    "matrix solver": """Vertices cost PopLibs' published polynomials. Single rows for many right-hand sides, and a
        program shared by blocks, are inferred. Published memory counts tiles that hold code, and products
        between blocks are on more tiles here.""",
    "oct conv": """The four convolutions of a layer run at the same time here; published cycles fit nothing slower.
        How backward pass and weight update are grouped is not known. Ours are most too many where the stride is 2 on a
        large field, where layouts of sums and pooling are not public.""",
    "pooling": """Slots of the loop over channel vectors were calibrated on layers with stride 1. The layer of 768
        channels likely took 4 at a time.""",
    "reduction": """Memory of eight figures in twelve agrees within 6 %, so their steps are likely the published ones.
        Maxima are likely shared by fewer workers. In cycles the published first step along inner dimensions is some 620
        shorter, and short sums of rows are some 75 a step longer, for unknown reasons.""",
    "conv": """Depthwise convolutions differ most in cycles: estimates of their vertices lie close together, so planners
        likely choose differently. Memory is 4 % too little at the median, of which the end of operands in the first
        half of a step is 3 %, as for octave convolutions; for layers of products and pools that end leaves less of an
        error. It is 20 to 30 % too little for weight updates of few channels on large fields, whose plans differ.""",
    "fc": """Layers of 1,000 outputs and four f16 samples are too fast: what is missing fits copies of weights in pieces
        of two bytes. Layers of five outputs hold less than the published bytes, which are spread over nearly all tiles:
        operands and partial sums have their real channels here, there whole groups. Layers of 1,000 outputs and one
        sample leave nothing in interleaved memory: matrix units have no part in them, as they have here. Where a plan
        for all passes and one for each cost about the same, the other one was likely taken.""",
    "gemm": """Wide products on GC2 differ most, where memory is short; serial parts are likely cut otherwise.""",
    "ctc loss": """The published program is spread otherwise: likely one label on a tile and half of the steps each way,
        with gradients summed afterwards. Here workers share a tile, and a sweep covers all steps.""",
    "lstm": """In training a step's gradient of f16 weights is there in f16 alone: published totals have no room for
        more. That the matrix units write it so, where one pass sums all samples, is a guess.""",
    "gru": """As LSTMs.""",
    "blur": """Vertices and copies of the measured program are not ours, as said above.""",
    "dense products": """The largest products reach a plateau, somewhat higher on the machine: in the model every serial
        part waits for its exchange.""",
}
"""Sentences by name of the kind, as tables show it. Likely causes have not been verified."""


def notes_text(comparisons: Iterable[Comparison]) -> str:
    """Markdown: the reasons for what ``comparisons`` contain."""
    shown = [kind for kind in _kinds_shown(comparisons) if kind in REASONS]
    lines = [f"- **{kind}.** {' '.join(REASONS[kind].split())}" for kind in shown]
    return "\n".join([f"## {_REASONS_HEADING}\n", *lines, ""]) if lines else ""


def _kinds_shown(comparisons: Iterable[Comparison]) -> list[str]:
    """Names of kinds, as lines of reasons begin."""
    found: dict[str, None] = {}
    for comparison in comparisons:
        found |= {"dense products" if comparison.key == "gemm" else comparison.key: None}
        found |= {f.kind.replace("_", " "): None for f in comparison.figures}
    return list(found)


_OVERVIEW = ("comparison", "figures", "median", "90 %", "worst", "asked for", "")
_REASONS_HEADING, _FAILURES_HEADING = "Where they disagree, and why", "Not compared"
_SECTIONS = re.compile(r"^(?=## )", re.MULTILINE)
_REASON_LINES = re.compile(r"^- \*\*(?P<kind>[^*]+)\.\*\* .*$", re.MULTILINE)
_MOST_ROWS = 40
"""Comparisons of more figures are shown by kind, with the figures that are furthest off."""
_FURTHEST = 5

_INTRODUCTION = """# Validation

Abele's predictions beside what others measured or modelled. This page is made by

```
abele validate --operators OPERATORS.csv --silicon SILICON.csv --training --packing LENGTHS.csv \\
    --sparse SPARSE.csv --out docs
```

What a command leaves out stays as the page has it.

The first file has published operator benchmarks: columns `name`, `tool`, `params`, and for `mk1` and `mk2` `cycles`,
`total_mem_bytes` and `max_tile_mem_bytes`. The second has small products: `N`, `cycles_measured`. The third, which may
be left out, has histograms of lengths ([packed BERT](packed_bert.md)): `length`, and counts for each set. The fourth
has sparse products ([where sparsity pays](sparsity.md)): `m`, `k`, `n`, `density`, `block`, `dtype`, `mode`, `metric`,
`value`. Other references stand in the package, with their sources.

No kind of operator has a factor of its own; every parameter has a source ([constants](constants.md)). Figures that
constants were calibrated on are marked and count nowhere. An error is predicted over reference, less one; medians, 90th
percentiles and worst errors are without signs.
"""


def write_page(comparisons: Sequence[Comparison], folder: str | Path, *, failures: Sequence[str] = ()) -> list[Path]:
    """Write ``validation.md`` and, where matplotlib is installed, a picture per comparison; the files written.

    Comparisons that a page in the folder has beside ``comparisons`` stay as they are.

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
    old = page.read_text(encoding="utf-8") if page.is_file() else ""
    page.write_text(page_text(comparisons, pictures, failures, old), encoding="utf-8")
    return [page, *written]


def page_text(
    comparisons: Sequence[Comparison], pictures: dict[str, str], failures: Sequence[str] = (), old: str = ""
) -> str:
    """The page as Markdown.

    Args:
        comparisons: Comparisons to show, in order.
        pictures: Paths of pictures, by key of the comparison.
        failures: Failed comparisons, a line each.
        old: The page before, whose other comparisons and reasons stay, each at its place.
    """
    _, *before = _SECTIONS.split(old)
    sections = {part.split("\n", 1)[0][3:]: part.rstrip("\n") + "\n" for part in before}
    for last in (_REASONS_HEADING, _FAILURES_HEADING):
        sections.pop(last, None)
    sections |= {_heading(c): _section(c, pictures.get(c.key)) for c in comparisons}
    parts = [_INTRODUCTION, _overview(comparisons, old), _calibrations(), *sections.values()]
    reasons = notes_text(comparisons)
    shown = _kinds_shown(comparisons)
    more = [line[0] for line in _REASON_LINES.finditer(old) if line["kind"] not in shown]
    if reasons or more:
        parts.append("\n".join([reasons.rstrip("\n") or f"## {_REASONS_HEADING}\n", *more, ""]))
    if failures:
        parts.append(
            f"## {_FAILURES_HEADING}\n\n" + "\n".join(f"- {_one_line(failure)}" for failure in failures) + "\n"
        )
    return "\n".join(parts)


def _overview(comparisons: Sequence[Comparison], old: str) -> str:
    """The table of all comparisons, with the others of the page before."""
    rows: dict[str, Sequence[str]] = {}
    for line in _SECTIONS.split(old)[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == len(_OVERVIEW) and cells[0] != _OVERVIEW[0] and "--" not in cells[0]:
            rows[cells[0]] = cells
    rows |= {c.title: (c.title, *_shares(c.spread), _bars_text(c), _verdict(c)) for c in comparisons}
    return _table(_OVERVIEW, rows.values())


def _calibrations() -> str:
    """The constants that were calibrated, and on what."""
    rows = [
        (f"`{c.path}`", c.text, "; ".join(on.partition(": ")[2] for on in c.source.calibrated_on))
        for c in calibrated_constants()
    ]
    return "Calibrated constants:\n\n" + _table(("constant", "value", "calibrated on"), rows, numbers=2)


def _heading(comparison: Comparison) -> str:
    title, is_word = comparison.title, comparison.title.split()[0].rstrip(":").isalpha()
    return title[0].upper() + title[1:] if is_word else title


def _section(comparison: Comparison, picture: str | None) -> str:
    parts = [f"## {_heading(comparison)}\n\n{comparison.about}\n"]
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
    if comparison.details:
        parts.append(comparison.details)
    return "\n".join(parts)


def _figures(comparison: Comparison, figures: Sequence[Figure]) -> str:
    units = {f.unit for f in figures}
    unit = f", {units.pop()}" if len(units) == 1 and "" not in units else ""
    rows = [
        (
            f.name.replace("_", r"\_"),
            figure_text(f.predicted) + ("" if unit or not f.unit else f" {f.unit}"),
            figure_text(f.reference),
            "calibrated" if comparison.calibrated(f) else _error(f),
        )
        for f in figures
    ]
    return _table(("", f"predicted{unit}", "reference", "error"), rows)


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
    return "–" if comparison.bars is None else str(comparison.bars)


def _verdict(comparison: Comparison) -> str:
    return "" if comparison.bars is None else "holds" if comparison.holds else "**does not hold**"


def _error(figure: Figure) -> str:
    return "–" if figure.error is None else f"{figure.error:+.1%}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
