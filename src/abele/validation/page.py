"""The validation page: comparisons as Markdown, with a picture each."""

from __future__ import annotations

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
    "cholesky": """Cycles of the vertices are PopLibs' published polynomials. One is not published, the inverse of a
        lower block, and is calibrated. The published memory is mostly compiled code, some 16 KB on each tile that runs
        a vertex, so it counts tiles.""",
    "matrix solver": """Cycles of the vertices are PopLibs' published polynomials. That systems with many right-hand
        sides are cut down to single rows, and that blocks share a program, is inferred from the published cycles and
        memory; how operands are spread is not known. The published memory counts tiles, as for Cholesky: products
        between blocks of 256 rows take a thousand tiles here and at most two hundred there.""",
    "oct conv": """The four convolutions of a layer run at the same time here, as a multi-convolution. That is inferred
        from the published cycles. Those of 1×1 convolutions with stride 1 are a constant and a part that grows with
        the products, to 2 % at the median; by that law four in a row would take 1.4 to 1.6 times the published layer,
        which pools and sums besides, and all at once 0.7 to 0.8 times. In our model, too, the convolutions in a row
        alone take longer than the layer in 25 of 26 rows. How backward pass and weight update are grouped is not known.
        Ours are most too many where the stride is 2 on a large field: likely sums, pooling and its gradient, whose
        layouts are not public.""",
    "pooling": """Channels of a group are chosen as PopLibs does. The slots of the vertices' loop over channel
        vectors, which the public formula does not tell, were calibrated on the layers with stride 1. The layer of 768
        channels likely took 4 at a time, at least on GC2: the costs of the two plans are within a tenth of where
        the preference for more changes.""",
    "reduction": """Memory of eight figures in twelve agrees within 6 %, so their steps, and how workers share them, are
        likely the published ones. Maxima are likely shared by fewer workers, and the row of 4 × 12,544 × 8 likely lies
        so that no tile begins with a whole row of eight. In cycles the published first step along inner dimensions is
        some 620 shorter, and short sums of rows are some 75 a step longer; which terms of the vertices' formulas that
        is, is not known. It is not what steps cost beside their vertices: those of solvers agree within 5 cycles a
        step over 541 steps.""",
    "conv": """In cycles depthwise convolutions differ most. The estimates of the vertices that can do them lie close to
        each other, so the two planners likely take different ones. In memory kernels of 7 x 1 do: their weight update
        is expanded whole here, while the published program needs two thirds of that for them and not for 1 x 7. First
        layers are too small, as the published backward pass pads three or four out-channels to eight.""",
    "fc": """Layers of 1,000 outputs and few samples in f16 are too fast: what is missing fits copies of a slice of
        weights in pieces of two bytes, of which side is not known. Layers of five outputs hold half of the published
        bytes, as the published program spreads them over nearly all tiles.""",
    "gemm": """Wide products on GC2 differ most, where memory is short and the product runs in serial parts. The
        published planner likely cuts them otherwise.""",
    "ctc loss": """The published program is spread otherwise. With one sequence, its fullest tile is all but 0.9 kB
        explained by one label on a tile and half of the steps, with data and gradients of all classes and two numbers
        a step (both sizes, both chips). So likely half of the tiles sweep each half of the time, gradients are made on
        the way, and those of all labels are summed afterwards, as logarithms. Here workers share a tile and a sweep
        covers all steps; steps cost about the same, but what comes before and after them grows with the labels, and
        there likely with the classes.""",
    "lstm": """Memory of training in f16. In ours a step's gradient of the weights is there in f32, as partial sums, and
        in f16; the published program has room for no more than the latter, and f32 layers agree. Without the cast to
        f16, cycles of training would agree as well, to 3 %.""",
    "gru": """Memory of training in f16, as that of LSTMs.""",
    "blur": """Vertices and copies of the measured program are not ours, as said above.""",
    "dense products": """The largest products reach a plateau, which lies somewhat higher on the machine. In the model
        every serial part waits for its exchange.""",
}
"""Sentences by name of the kind, as tables show it. Likely causes have not been verified."""


def notes_text(comparisons: Iterable[Comparison]) -> str:
    """Markdown: the reasons for what ``comparisons`` contain."""
    found: dict[str, None] = {}
    for comparison in comparisons:
        found |= {"dense products" if comparison.key == "gemm" else comparison.key: None}
        found |= {f.kind.replace("_", " "): None for f in comparison.figures}
    lines = [f"- **{kind}.** {' '.join(REASONS[kind].split())}" for kind in found if kind in REASONS]
    return "\n".join(["## Where they disagree, and why\n", *lines, ""]) if lines else ""


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
