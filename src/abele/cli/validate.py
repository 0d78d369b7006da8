"""``abele validate``: what the model predicts beside published figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from rich.text import Text

from abele.cli.output import console, print_json
from abele.errors import InvalidOptionError

if TYPE_CHECKING:
    from abele.validation.figures import Comparison


def validate(
    operators: Annotated[
        Path | None, typer.Option(help="CSV of operator benchmarks: name, tool, params, cycles and bytes.")
    ] = None,
    silicon: Annotated[
        Path | None, typer.Option(help="CSV of small f16 products on every tile of a Bow: N, cycles_measured.")
    ] = None,
    training: Annotated[
        bool, typer.Option("--training", help="Published training runs; alone, these and nothing else.")
    ] = False,
    packing: Annotated[
        Path | None,
        typer.Option(
            help="CSV of histograms: length, wikipedia_512, squad11_384, glue_…; alone, these and nothing else."
        ),
    ] = None,
    sparse: Annotated[
        Path | None,
        typer.Option(help="CSV of sparse products: m, k, n, density, block, mode, …; alone, these and nothing else."),
    ] = None,
    llm: Annotated[
        Path | None,
        typer.Option(
            help="CSV of language models' rates: source, chip, workload, setting, …; alone, these and nothing else."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the page and its pictures into this folder.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes: one per core by default, but for training runs, one by default."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; progress goes to standard error.")] = False,
) -> None:
    """Compare predictions with published figures: silicon, Graphcore's own model, training runs, and packing.

    Training runs are compiled one after the other, which takes some minutes and up to some gigabytes. So is BERT on
    packs of Wikipedia's lengths, a process per core, with 2.5 GB each.

    Exit status 1 when a comparison does not keep to what is asked of it, or an operator cannot be built.
    """
    for file in (operators, silicon, packing, sparse, llm):
        if file is not None and not file.is_file():
            raise InvalidOptionError(f"there is no file {file}")
    progress = console(progress_only=True)
    alone = (
        (training or any(file is not None for file in (packing, sparse, llm)))
        and operators is None
        and silicon is None
        and out is None
    )
    found = [] if alone else list(_comparisons(silicon, progress))
    failures: tuple[str, ...] = ()
    if operators is not None:
        more, failures = _operators(operators, jobs, progress)
        found += more
    runs: list[dict[str, object]] = []
    if training:
        from abele.validation.training.comparing import comparisons, details_table, predict_all

        predicted = predict_all(jobs=jobs or 1, console=progress)
        found += comparisons(predicted)
        failures += predicted.failures
        runs = predicted.rows
        if not json:
            console().print(details_table(predicted.predictions))
    if packing is not None:
        from abele.validation.packed.comparing import compare

        compared, left_out = compare(packing, jobs=jobs or os.cpu_count() or 1, console=progress)
        found += compared
        failures += left_out
    if sparse is not None:
        from abele.validation.sparse import compare as compare_sparse

        compared, left_out = compare_sparse(sparse, jobs=jobs or os.cpu_count() or 1, console=progress)
        found += compared
        failures += left_out
    remarks: tuple[str, ...] = ()
    if llm is not None:
        from abele.validation.llm import compare as compare_llm

        with progress.status("") as status:
            compared, left_out, remarks = compare_llm(llm, progress=status.update)
        found += compared
        failures += left_out
    if out is not None:
        from abele.validation.page import write_page

        files = write_page(found, out, failures=failures)
        progress.print(f"written: {', '.join(str(file) for file in files)}", style="dim")
    if json:
        data = {"comparisons": [c.to_json() for c in found], "failures": list(failures), "runs": runs}
        print_json(data | ({"remarks": list(remarks)} if remarks else {}))
    else:
        show(found, failures, console())
        for remark in remarks:
            console().print(Text(remark, style="dim"))
    if failures or not all(c.holds for c in found):
        raise typer.Exit(1)


def _comparisons(silicon: Path | None, progress: Console) -> Iterator[Comparison]:
    """All comparisons but those of operators."""
    from abele.validation import amp, blur, dense, elementwise, matvec

    calls: list[Callable[[], Comparison]] = [] if silicon is None else [lambda: amp.compare(silicon)]
    calls += [dense.compare, elementwise.compare, matvec.compare, blur.compare]
    for call in track(calls, "programs", console=progress):
        yield call()


def _operators(path: Path, jobs: int | None, progress: Console) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
    from abele.validation import categories
    from abele.validation.measure import read_rows
    from abele.validation.operators import compare_rows, comparisons

    found = compare_rows(read_rows(path), jobs=jobs, console=progress)
    for remark in found.remarks:
        progress.print(Text(remark, style="yellow"))
    return (*(c for c in comparisons(found) if c.figures), *categories.compare()), found.failures


def show(found: list[Comparison], failures: tuple[str, ...], out: Console) -> None:
    """Print comparisons for people: errors, and every figure of the small ones."""
    for comparison in found:
        if len(comparison.figures) <= 24:
            out.print(_figures(comparison))
            out.print()
    table = Table(title="relative errors", title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("figures", "median", "90 %", "worst"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for c in found:
        errors, verdict = c.spread, "" if c.bars is None else "holds" if c.holds else "does not hold"
        shares = (f"{share:.1%}" for share in (errors.median, errors.high, errors.worst))
        table.add_row(c.title, str(errors.count), *shares, Text(verdict, style="" if c.holds else "red"))
    out.print(table)
    for failure in failures:
        out.print(Text(f"not compared: {failure}", style="red"))


def _figures(comparison: Comparison) -> Table:
    from abele.validation.figures import figure_text

    table = Table(title=comparison.title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("predicted", "reference", "unit", "error"):
        table.add_column(heading, justify="right")
    for f in comparison.figures:
        error = "calibrated on" if comparison.calibrated(f) else "–" if f.error is None else f"{f.error:+.1%}"
        table.add_row(f.name, figure_text(f.predicted), figure_text(f.reference), f.unit, error)
    return table
