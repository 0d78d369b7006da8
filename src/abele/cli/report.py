"""``abele report``: print a report file, what limits its program, or how it differs from others, or draw it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abele.cli.output import console, print_json
from abele.cli.sql import print_answer
from abele.errors import InvalidOptionError, MachineError, ProfilingDisabledError
from abele.terminal import shown_text
from abele.words import counted
from abele.writing import writing

if TYPE_CHECKING:
    from abele.report import Report


def report(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="A report file, as abele demo --report writes it, or several."),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw it into this file: .png, .svg, .pdf.")] = None,
    host: Annotated[bool, typer.Option("--host", help="Print what measured runs took on the host.")] = False,
    against: Annotated[
        bool, typer.Option("--against", help="With --host: what the best library here does on the same products.")
    ] = False,
    rearrangements: Annotated[
        bool, typer.Option("--rearrangements", help="Print what data is moved or put in another order, and its cost.")
    ] = False,
    masks: Annotated[
        bool, typer.Option("--masks", help="Print what attention masks cost: making them, applying them.")
    ] = False,
    sparse: Annotated[
        bool, typer.Option("--sparse", help="Print what tiles hold of sparse operands, and what their patterns cost.")
    ] = False,
    memory: Annotated[
        bool,
        typer.Option("--memory", help="Print what the fullest tile holds: state and code by operation, and data."),
    ] = False,
    fit: Annotated[
        bool, typer.Option("--fit", help="Print which changes make the program fit, and the bytes that each saves.")
    ] = False,
    tile: Annotated[int | None, typer.Option("--tile", min=0, help="With --memory: this tile instead.")] = None,
    loading: Annotated[
        Path | None, typer.Option("--loading", help="A TOML or JSON file that says how data is loaded.")
    ] = None,
    timeline: Annotated[
        bool,
        typer.Option("--timeline", help="Print what each IPU does in a run, its bubbles, and what bounds the run."),
    ] = False,
    plot_timeline: Annotated[
        Path | None, typer.Option("--plot-timeline", help="Draw that into this file: .png, .svg, .pdf.")
    ] = None,
    insights: Annotated[
        bool, typer.Option("--insights", help="Print what limits the program, which costs matter, and what would help.")
    ] = False,
    energy: Annotated[
        bool, typer.Option("--energy", help="Print what a step takes in joules, with the source of each figure.")
    ] = False,
    exponents: Annotated[
        bool, typer.Option("--exponents", help="Print heat maps of the exponents that tensors had while it ran.")
    ] = False,
    tensor: Annotated[
        str | None, typer.Option("--tensor", help="With --exponents: octaves by steps of this tensor.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Print how two to eight reports differ, all against the first.")
    ] = False,
    program: Annotated[
        int, typer.Option("--program", min=0, help="With --insights or --compare: index of the program.")
    ] = 0,
    sql: Annotated[
        str | None, typer.Option("--sql", help="Print the answer to this query over the report's tables.")
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="With --sql: print comma-separated values.")] = False,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            min=1,
            help="With --host, --rearrangements, --masks, --memory, --sparse, --exponents, --sql: how many rows.",
        ),
    ] = 25,
    kind: Annotated[str, typer.Option("--kind", help="What to draw: overview, memory, timeline, …")] = "overview",
) -> None:
    """Print the report in FILE, or draw it; with --compare print how several differ."""
    from abele.report import Report

    if csv and sql is None:
        raise InvalidOptionError("--csv is for the answer to a query", remedy='--sql "select * from ops" --csv')
    if against and not host:
        raise InvalidOptionError("--against is for the profile of the host", remedy="--host --against")
    if tensor is not None and not exponents:
        raise InvalidOptionError("--tensor is for heat maps of exponents", remedy="--exponents --tensor NAME")
    if tile is not None and not memory:
        raise InvalidOptionError("--tile is for the memory of a tile", remedy=f"--memory --tile {tile}")
    if csv and json:
        raise InvalidOptionError("--csv and --json are two forms of one answer", remedy="one of them")
    if compare:
        print_comparison(files, program, as_json=json)
        return
    if len(files) > 1:
        raise InvalidOptionError(f"{counted(len(files), 'report')}", remedy="--compare prints how they differ")
    loaded = Report.load(files[0])
    if loading is not None:
        loaded = with_loading(loaded, loading)
    if plot is not None:
        draw(loaded, kind, plot)
        typer.echo(f"written: {plot}", err=True)
    if plot_timeline is not None:
        draw(loaded, "update", plot_timeline)
        typer.echo(f"written: {plot_timeline}", err=True)
    if sql is not None:
        print_answer(loaded, sql, top=top, as_json=json, as_csv=csv)
    elif insights:
        print_insights(loaded, program, as_json=json)
    elif energy:
        print_energy(loaded, as_json=json)
    elif exponents:
        found = loaded.exponents
        print_json(found.to_json()) if json else typer.echo(shown_text(found.text(tensor, top=top)))
    elif timeline:
        print_timeline(loaded, as_json=json)
    elif host:
        print_host(loaded, top, as_json=json, against=against)
    elif rearrangements:
        moves = loaded.rearrangements
        print_json(moves.to_json()) if json else typer.echo(moves.text(top))
    elif fit:
        tried = loaded.fit_changes
        print_json(tried.to_json()) if json else typer.echo(shown_text(tried.text()))
    elif memory:
        held = loaded.memory_use(tile)
        print_json(held.to_json()) if json else typer.echo(shown_text(held.text(top)))
    elif masks:
        met = loaded.masks
        print_json(met.to_json()) if json else typer.echo(met.text(top))
    elif sparse:
        held_sparse = loaded.sparse
        print_json(held_sparse.to_json()) if json else typer.echo(shown_text(held_sparse.text(top)))
    elif json:
        print_json(loaded.to_json())
    elif plot is None and plot_timeline is None:
        from abele.report.render import render

        console().print(render(loaded))


def print_insights(loaded: Report, program: int, *, as_json: bool) -> None:
    """Print what limits a program, which costs matter, and what would help.

    Raises:
        InvalidOptionError: The report has no such program.
    """
    found = loaded.insights(program)
    if as_json:
        print_json(found.to_json())
    else:
        from abele.report.insights.render import render_insights

        console().print(render_insights(found))


def print_energy(loaded: Report, *, as_json: bool) -> None:
    """Print what a step takes in joules.

    Raises:
        InvalidOptionError: The report does not know the energies of its machine.
        FileFormatError: The file's words about them are damaged.
    """
    found = loaded.energy
    if found is None:
        raise InvalidOptionError(
            "the report does not know the energies of its machine",
            because="it was written by an earlier version",
            remedy="write it again: the program that made it can, with Report.save",
        )
    if as_json:
        print_json(found.to_json())
    else:
        # Lines are as long as they are: a table folded into a narrow terminal cannot be read.
        typer.echo(shown_text(found.text()))


def print_comparison(files: list[Path], program: int, *, as_json: bool) -> None:
    """Print how reports differ from the first of them.

    Raises:
        InvalidOptionError: Too few or too many, or one has no such program.
        FileFormatError: One of them is no report.
    """
    from abele.report import Report
    from abele.report.compare import MOST, compare

    if not 2 <= len(files) <= MOST:
        raise InvalidOptionError(f"{counted(len(files), 'report')} to compare", remedy=f"two to {MOST} files")
    reports = [Report.load(file) for file in files]
    found = compare(reports, program=program, labels=[file.name.removesuffix(".abele-report") for file in files])
    if as_json:
        print_json(found.to_json())
    else:
        from abele.report.compare.render import render_comparison

        console().print(render_comparison(found))


def print_timeline(loaded: Report, *, as_json: bool) -> None:
    """Print the timeline of a run of program 0.

    Raises:
        InvalidOptionError: The report holds none.
    """
    found = loaded.timeline()
    if as_json:
        print_json(found.to_json())
    else:
        # As wide as the terminal, like a table.
        typer.echo(found.text(max(console().width, 60)))


def with_loading(loaded: Report, path: Path) -> Report:
    """The report with the loading that a file describes; a batch is by default what a run takes.

    Raises:
        MachineError: The file cannot be read, or does not describe a loading.
        InvalidOptionError: Batches are not those that the program takes.
    """
    from abele.machine.systems import read_overrides
    from abele.report import Loading

    table = read_overrides(path)
    if samples := loaded.meta.get("samples_per_run"):
        table.setdefault("samples_per_batch", int(samples))
    try:
        return loaded.with_loading(Loading.from_table(table))
    except MachineError as error:
        raise MachineError(error.message, at=str(path), because=error.because, remedy=error.remedy) from error


def print_host(loaded: Report, top: int, *, as_json: bool, against: bool = False) -> None:
    """Print what calls took on the host, and the profile of the host.

    Raises:
        ProfilingDisabledError: The report holds neither.
        InvalidOptionError: A library cannot be compared with, as the report is of another machine, or an old one.
    """
    from abele.report.summary import host_text

    times = loaded.host_seconds
    called = len(loaded.runs) > 0 and times["sending"] + times["reading"] > 0
    if called and not as_json:
        typer.echo(f"{counted(len(loaded.runs), 'call')}: {host_text(loaded)}")
    if not len(loaded.host_leaves):
        if called:
            if as_json:
                print_json({"seconds": times})
            return
        raise ProfilingDisabledError(
            "the report has no profile of the host: no run was measured",
            remedy="ABELE_ENGINE_OPTIONS='{\"profiler.host\": true}', or with engine.profiling(): engine.run()",
        )
    profile = loaded.host
    if against:
        from abele.host_facts.libraries import against_library

        profile = against_library(profile)
    if as_json:
        print_json(profile.to_json() | ({"seconds": times} if called else {}))
    else:
        # Lines are as long as they are: a table folded into a narrow terminal cannot be read.
        typer.echo(profile.text(top))


def draw(loaded: Report, kind: str, path: Path) -> None:
    """Draw a report into a file, whose ending says the format.

    Raises:
        InvalidOptionError: No such kind of plot, or no such format.
        FileFormatError: The file cannot be written.
        MissingPackageError: matplotlib is not installed.
    """
    figure = loaded.plot(kind)
    known = figure.canvas.get_supported_filetypes()
    ending = path.suffix.removeprefix(".").lower()
    if ending not in known:
        raise InvalidOptionError(
            f"{path}: the ending {path.suffix!r} is no format of pictures", remedy="one of " + ", ".join(sorted(known))
        )
    with writing(path):
        figure.savefig(path)
