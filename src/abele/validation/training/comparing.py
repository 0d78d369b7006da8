"""Published training runs beside predictions: figures, how rates grow with machines, and what updates go to."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from rich.console import Console
from rich.progress import track
from rich.table import Table

from abele.errors import AbeleError
from abele.machine import sources, systems
from abele.validation.figures import Bars, Comparison, Figure
from abele.validation.training.run import PARTS, Prediction, TrainingRun
from abele.validation.training.runs import RUNS, SCALINGS

# Uncertainty of a predicted time from the constants that it rests on.

UNCERTAINTY = {"S": 0.02, "D": 0.05, "C": 0.05, "M": 0.05, "G": 0.5, "U": 0.0}
"""By how much of itself a constant may be off, by the confidence of its source. A guess may be off by half."""

_RESTS_ON = {
    "compute": ("ipu.launch.", "ipu.amp.", "ipu.rearrange."),
    "exchange": ("ipu.exchange.",),
    "sync": ("ipu.sync.", "ipu_links.", "gateway."),
    "host": ("host.",),
}
"""Constants by the part of a time that they decide."""
_LINKS = ("ipu_links.", "gateway.")
"""Prefixes of the constants of sums over replicas."""


def uncertainty(prediction: Prediction) -> float:
    """Share of its time by which a prediction may be off, as far as the constants of its system decide it.

    Of each part of the time the least certain constants count, by the confidence of their sources
    (:data:`UNCERTAINTY`), weighed alike. Parts are added up, as if they were all off the same way.
    """
    found = sources(systems.get(prediction.run.system))

    def spread(prefixes: tuple[str, ...]) -> float:
        each = [UNCERTAINTY[c.source.confidence] for c in found if c.path.startswith(prefixes)]
        return sum(each) / len(each) if each else 0.0

    parts = {name: prediction.parts[name] * spread(prefixes) for name, prefixes in _RESTS_ON.items()}
    links = prediction.phases["all_reduce"] * spread(_LINKS)
    return (sum(parts.values()) + links) / prediction.seconds


BARS = Bars(0.15, 0.10)
SCALING_BARS = Bars(0.10)


@dataclass(frozen=True)
class Predicted:
    """Predictions of training runs.

    Attributes:
        predictions: Of the runs that compile, in order.
        failures: Errors of the others, a line each.
    """

    predictions: tuple[Prediction, ...]
    failures: tuple[str, ...] = ()

    @property
    def rows(self) -> list[dict[str, object]]:
        """The predictions as plain data."""
        return [{**p.to_json(), "uncertainty": uncertainty(p)} for p in self.predictions]


def predict_all(runs: Sequence[TrainingRun] = RUNS, *, jobs: int = 1, console: Console | None = None) -> Predicted:
    """Compile runs, each in a process of its own, so that the memory of one is free for the next.

    Args:
        runs: The runs.
        jobs: Processes at a time: each takes a core, and up to some gigabytes.
        console: Console for progress, or None.
    """
    context = multiprocessing.get_context("spawn")
    found: list[Prediction] = []
    failures: list[str] = []
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        results: Iterable[Prediction | str] = pool.map(_attempt, runs)
        if console is not None:
            results = track(results, "training runs", total=len(runs), console=console)
        for result in results:
            if isinstance(result, Prediction):
                found.append(result)
            else:
                failures.append(result)
    return Predicted(tuple(found), tuple(failures))


def _attempt(run: TrainingRun) -> Prediction | str:
    try:
        return run.predict()
    except AbeleError as error:
        return f"{run.name} on {run.system}: {type(error).__name__}: {error.message}"


def comparisons(predicted: Predicted) -> list[Comparison]:
    """The runs that are to be within bounds, the others, and how rates grow; those that have figures."""
    held = [p for p in predicted.predictions if p.run.held]
    others = [p for p in predicted.predictions if not p.run.held]
    made = [
        Comparison("training", "training runs", _ABOUT, _figures(held), BARS, details_text(held)),
        Comparison(
            "training_others",
            "training runs of other models",
            _ABOUT_OTHERS,
            _figures(others),
            None,
            details_text(others),
        ),
        Comparison(
            "training_scaling",
            "training runs on four times as many IPUs",
            _ABOUT_SCALING,
            tuple(_scalings(predicted)),
            SCALING_BARS,
        ),
    ]
    return [c for c in made if c.figures]


_ABOUT = (
    "Each run is compiled as it was configured: stages, micro-batches, accumulation, replicas, recomputation, "
    "optimiser, memory proportions and packed sequences. The time of an update is that of the report. Below, what the "
    "busiest IPU of a replica spends an update on, which share of it the pipeline fills and empties, what the fullest "
    "tile needs, and how far off the time may be by the uncertainty of the constants that it rests on."
)
_ABOUT_OTHERS = "As above; nothing is asked of these."
_ABOUT_SCALING = "The rate on 64 IPUs over that on 16, at the published batches."


def _figures(predictions: Sequence[Prediction]) -> tuple[Figure, ...]:
    return tuple(
        Figure(
            f"{p.run.name}, {p.run.system}",
            type(p.run.model).__name__,
            1e3 * p.seconds,
            1e3 * p.run.published_seconds,
            "ms",
            p.run.source,
        )
        for p in predictions
    )


def _scalings(predicted: Predicted) -> Iterator[Figure]:
    by_key = {(p.run.name, p.run.system): p for p in predicted.predictions}
    for name, small, large in SCALINGS:
        a, b = by_key.get(small), by_key.get(large)
        if a is None or b is None:
            continue
        ours = (b.run.items / b.seconds) / (a.run.items / a.seconds)
        theirs = (b.run.items / b.run.published_seconds) / (a.run.items / a.run.published_seconds)
        yield Figure(name, "scaling", ours, theirs, "times", b.run.source)


_HEADINGS = (
    "run",
    "update",
    "±",
    *PARTS,
    "bubble",
    "sums over replicas",
    "streaming memory",
    "weights",
    "fullest tile",
    "compile",
)


def _cells(p: Prediction) -> tuple[str, ...]:
    parts = (f"{p.parts[name] / p.seconds:.0%}" for name in PARTS)
    memory = f"{p.needed_bytes / p.available_bytes:.0%}" + ("" if p.fits else f", {p.over:,} tiles too full")
    return (
        f"{p.run.name}, {p.run.system}",
        f"{1e3 * p.seconds:,.1f} ms",
        f"{uncertainty(p):.0%}",
        *parts,
        f"{p.bubble:.0%}",
        f"{1e3 * p.phases['all_reduce']:,.1f} ms",
        f"{1e3 * p.phases['streaming_memory']:,.1f} ms",
        f"{1e3 * p.phases['update']:,.1f} ms",
        memory,
        f"{p.compile_seconds:.0f} s",
    )


def details_text(predictions: Sequence[Prediction]) -> str:
    """Parts of the time of updates, as Markdown."""
    if not predictions:
        return ""
    lines = ["| " + " | ".join(_HEADINGS[:-1]) + " |", "|---" + "|--:" * (len(_HEADINGS) - 2) + "|"]
    lines += ["| " + " | ".join(_cells(p)[:-1]) + " |" for p in predictions]
    missing = [f"- {p.run.name}, {p.run.system}: {', '.join(p.run.lacks)}" for p in predictions if p.run.lacks]
    parts = ["\n".join(lines)]
    if missing:
        parts.append("Not modelled of what was configured:\n\n" + "\n".join(missing))
    return "\n\n".join(parts) + "\n"


def details_table(predictions: Sequence[Prediction]) -> Table:
    """Details of updates as a table for a terminal."""
    table = Table(
        title="what an update goes to", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0)
    )
    for number, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="right" if number else "left")
    for p in predictions:
        table.add_row(*_cells(p))
    return table
