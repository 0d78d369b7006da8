"""``abele demo``: train a model for real, and see what the modelled machine would do."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from abele.cli.chat import ABOUT, chat
from abele.cli.option_types import SystemOption, ThreadsOption
from abele.cli.output import console, print_json
from abele.cli.view import serve
from abele.machine import System
from abele.report.text import count_text, seconds_text

if TYPE_CHECKING:
    from abele.garden.training import DemoResult
    from abele.report import Report

demo_app = typer.Typer(help="Train a model for real, and see what the modelled machine would do.", no_args_is_help=True)

ReportOption = Annotated[Path | None, typer.Option("--report", help="Write the report to this file.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of weights, dropout, order and simulated data.")]
EpochsOption = Annotated[int | None, typer.Option("--epochs", help="Passes over the training data.")]
DumpOption = Annotated[
    Path | None,
    typer.Option("--dump-passes", help="Write the networks after each pass to this folder."),
]
ViewOption = Annotated[bool, typer.Option("--view", help="Show the report in the browser until Ctrl-C.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to standard error.")]


_RATES = ("modelled", "measured", "low", "high", "device", "link", "loader")
"""Rates of a comparison."""


@dataclass(frozen=True)
class Demo:
    """Description of a demo, and the packages that it needs."""

    about: str
    needs: tuple[str, ...] = ("torch",)


DEMOS = {
    "digits": Demo("Classify handwritten digits with a small convolutional network.", ("torch", "sklearn")),
    "braggnn": Demo("Find the centres of simulated diffraction peaks with BraggNN."),
    "language": Demo("Write Python, character by character, with a small transformer trained on the standard library."),
    "segmentation": Demo(
        "Find handwritten digits over photographs, pixel by pixel, with a U-Net.", ("torch", "sklearn", "PIL")
    ),
    "graph": Demo("Tell from imports which package a module of the standard library belongs to, with a graph network."),
    "series": Demo("Forecast a week of a stock's trading volume with a GRU.", ("torch", "matplotlib")),
    "recommender": Demo("Recommend functions to files of the standard library, by those that they call already."),
    "packed-bert": Demo(
        "Train BERT on packs of sequences beside padded ones: the same loss in half the time.", ("torch", "scipy")
    ),
}
"""The demos by name; each is the module of the garden with that name, with underscores."""


def _command(name: str) -> Callable[..., None]:
    def command(
        system: SystemOption = "bow-2000",
        report: ReportOption = None,
        threads: ThreadsOption = None,
        seed: SeedOption = 0,
        epochs: EpochsOption = None,
        dump_passes: DumpOption = None,
        json: JsonOption = False,
        view: ViewOption = False,
    ) -> None:
        found = _run(
            name, system, report, threads=threads, seed=seed, epochs=epochs, dump_passes=dump_passes, json=json
        )
        if view:
            serve([found if report is None else report], quiet=json)

    return command


for _name, _demo in DEMOS.items():
    demo_app.command(_name, help=_demo.about)(_command(_name))

demo_app.command("chat", help=ABOUT)(chat)

LOW_PRECISION = Demo("Train a GPT and a small BERT in float32, float16 and 8-bit floats, and compare the curves.")


@demo_app.command("low-precision", help=LOW_PRECISION.about)
def low_precision(
    system: SystemOption = "c600",
    report: ReportOption = None,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    epochs: EpochsOption = None,
    network: Annotated[list[str] | None, typer.Option("--network", help="gpt or bert; both by default.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps of a pass over the data.")] = None,
    width: Annotated[int | None, typer.Option("--width", help="Elements per position; 256 is BERT-Mini's.")] = None,
    picture: Annotated[Path | None, typer.Option("--picture", help="Write a picture of the curves here.")] = None,
    json: JsonOption = False,
    view: ViewOption = False,
) -> None:
    """Train two networks in four precisions each."""
    from abele.garden.training import DemoSettings, require
    from abele.machine import systems

    settings = DemoSettings(system=systems.resolve(system), threads=threads, seed=seed, epochs=epochs)
    require(*LOW_PRECISION.needs)
    out = console(progress_only=json)
    out.print(f"abele demo low-precision on {settings.system.title}: loading PyTorch …", style="dim")
    from abele.garden import low_precision as demo

    size = demo.LowPrecisionSize()
    size = size if steps is None else replace(size, steps=steps)
    size = size if width is None else replace(size, width=width)
    result = demo.run(
        settings,
        out,
        size=size,
        networks=tuple(network or demo.NETWORKS),
        picture=picture,
    )
    _shown(result, settings.system, report, out, json=json)
    if picture is not None:
        out.print(Text(f"picture written: {picture}", style="dim"))
    if view:
        serve([result.report if report is None else report], quiet=json)


EXPERTS = Demo("Train a character model with experts beside the dense one of equal compute, and compare the curves.")


@demo_app.command("mixture-of-experts", help=EXPERTS.about)
def mixture_of_experts(
    system: SystemOption = "bow-2000",
    report: ReportOption = None,
    threads: ThreadsOption = None,
    seed: SeedOption = 0,
    epochs: EpochsOption = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Steps of a pass over the data.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Twice the width and twice the steps.")] = False,
    picture: Annotated[Path | None, typer.Option("--picture", help="Write a picture of the curves here.")] = None,
    json: JsonOption = False,
    view: ViewOption = False,
) -> None:
    """Train both networks."""
    from abele.garden.training import DemoSettings, require
    from abele.machine import systems

    settings = DemoSettings(system=systems.resolve(system), threads=threads, seed=seed, epochs=epochs)
    require(*EXPERTS.needs)
    out = console(progress_only=json)
    out.print(f"abele demo mixture-of-experts on {settings.system.title}: loading PyTorch …", style="dim")
    from abele.garden import mixture_of_experts as demo

    size = demo.FULL if full else demo.ExpertsSize()
    result = demo.run(settings, out, size=size if steps is None else replace(size, steps=steps), picture=picture)
    _shown(result, settings.system, report, out, json=json)
    if picture is not None:
        out.print(Text(f"picture written: {picture}", style="dim"))
    if view:
        serve([result.report if report is None else report], quiet=json)


def _run(
    name: str,
    system: str,
    report: Path | None,
    threads: int | None,
    seed: int,
    epochs: int | None,
    dump_passes: Path | None,
    json: bool,
) -> Report:
    from abele.garden.training import DemoSettings, require
    from abele.machine import systems

    folder = None if dump_passes is None else str(dump_passes)
    chosen = systems.resolve(system)
    settings = DemoSettings(system=chosen, threads=threads, seed=seed, epochs=epochs, dump_passes=folder)
    require(*DEMOS[name].needs)
    out = console(progress_only=json)
    out.print(f"abele demo {name} on {settings.system.title}: loading PyTorch …", style="dim")
    demo = importlib.import_module(f"abele.garden.{name.replace('-', '_')}")
    result: DemoResult = demo.run(settings, out)
    _shown(result, settings.system, report, out, json=json)
    return result.report


def _shown(result: DemoResult, system: System, report: Path | None, out: Console, *, json: bool) -> None:
    """Write the report where one is asked for, and print what a demo found."""
    if report is not None:
        result.report.save(report)
    if json:
        print_json(result.to_json())
        return
    show(result, system, out)
    if report is not None:
        out.print(Text(f"\nreport written: abele report {report}, abele view {report}", style="dim"))


def show(result: DemoResult, system: System, out: Console) -> None:
    """Print what a demo found."""
    from abele.report.render import render

    out.print()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    for label, text in _headlines(result, system):
        grid.add_row(label, Text(text))
    out.print(grid)
    if result.exhibit:
        out.print()
        out.print(Text(result.exhibit))
    out.print(render(result.report))
    if result.comparisons:
        out.print(_comparisons(result))
        out.print(result.comparison_note, style="dim")


def _headlines(result: DemoResult, system: System) -> list[tuple[str, str]]:
    figures, seconds = result.figures, result.seconds
    lines = []
    if "loss" in figures:
        lines.append(("loss", f"{float(figures['loss']):.4f}, mean of the last epoch"))
    for held_out in result.held_out:
        lines.append((held_out.measure, held_out.text()))
    if "held_out_accuracy" in figures and not result.held_out:
        accuracy = f"{float(figures['held_out_accuracy']):.2%} of {figures['held_out_samples']} held-out images"
        lines.append(("accuracy", accuracy))
    if "median_error_pixels" in figures:
        median, p95 = figures["median_error_pixels"], figures["p95_error_pixels"]
        lines.append(("position error", f"median {float(median):.3f} px, 95th percentile {float(p95):.3f} px"))
    parts = " · ".join(f"{part} {seconds_text(value)}" for part, value in seconds.items())
    lines.append(("real time", f"{seconds_text(sum(seconds.values()))} on this host ({parts})"))
    lines.append(("weights", f"SHA-256 {str(figures['weights_sha256'])[:16]}…"))
    return [*lines, ("machine", _machine(system)), ("note", result.note)]


def _machine(system: System) -> str:
    text = f"{system.title}: {system.num_ipus} x {system.ipu.num_tiles:,} tiles"
    return text if system.num_ipus == 1 else f"{text}; the program uses one of the IPUs, figures are for that one"


def _comparisons(result: DemoResult) -> Table:
    table = Table(
        title="modelled beside measured, 1,000 samples/s",
        title_justify="left",
        title_style="bold",
        box=None,
        padding=(0, 2, 0, 0),
    )
    for heading in ("batch", "modelled", "range", "measured", "ratio", "device", "link", "loader", "limit"):
        table.add_column(heading, justify="right")
    for row in result.comparisons:
        rates = (count_text(row[f"{name}_samples_per_second"] / 1000) for name in _RATES)
        modelled, measured, low, high, *limits = rates
        limit = row["limit"] if row["fits"] else "memory"
        ratio = f"{row['ratio']:.2f}x"
        cells = (str(row["batch"]), modelled, f"{low} to {high}", measured, ratio, *limits, limit)
        table.add_row(*cells)
    return table
