"""``abele hosts``: the host computers known, every constant of one, or what this one does with matrix products."""

from __future__ import annotations

import importlib.util
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from abele.cli.constants import show_constants
from abele.cli.output import console, print_json
from abele.errors import InvalidOptionError
from abele.machine import HostComputer, cited_works, described, sources
from abele.machine import hosts as presets

if TYPE_CHECKING:
    from abele.kernels.plan.product_table import TableRow


def hosts(
    name: Annotated[str | None, typer.Argument(help="A preset, or a TOML or JSON file: show every constant.")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this computer's rates of matrix products anew, and show them.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the host computers that programs can be fed by, or every constant of one with its source.

    With --measure: measure which way of multiplying matrices is fastest on this computer, for each class of products.
    """
    if measure and name is not None:
        raise InvalidOptionError("--measure is of this computer", remedy=f"leave out {name!r}, or --measure")
    if measure:
        _measure(json)
    elif name is None:
        _list(json)
    else:
        _show(presets.resolve(name), json)


def _list(json: bool) -> None:
    found = [presets.get(name) for name in presets.names()]
    if json:
        print_json({"hosts": [described(host) for host in found]})
        return
    table = Table(title="hosts", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for heading in ("name", "cores", "memory", "what"):
        table.add_column(heading, justify="right" if heading in ("cores", "memory") else "left")
    for host in found:
        table.add_row(host.name, f"{host.num_cores:,}", f"{host.memory_bytes_per_second / 1e9:.3g} GB/s", host.title)
    console().print(table)


def _show(host: HostComputer, json: bool) -> None:
    constants = sources(host)
    works = cited_works(item.source.text for item in constants)
    if json:
        print_json({"name": host.name, "constants": [asdict(item) for item in constants], "works": works})
    else:
        show_constants(f"{host.name}: {host.title}", constants, works)


def _measure(json: bool) -> None:
    """Measure the rates of all classes of products, and print them with the way that plans take."""
    if importlib.util.find_spec("torch") is not None:
        # Its library is one of the ways, and only looked for where it is loaded.
        import torch  # noqa: F401
    from abele.host_facts import host_name, machine_rates
    from abele.kernels.plan.product_table import measured_classes, measured_host

    start = time.process_time()
    target, rates = measured_host(), machine_rates(anew=True)
    assert target.products is not None
    library = target.products.library
    classes = {}
    with console(progress_only=True).status("measuring") as status:
        for of, measured in measured_classes(target):
            status.update(f"measuring {of}")
            classes[of] = list(measured)
    taken = time.process_time() - start
    if json:
        print_json(
            {
                "host": host_name(),
                "rates": asdict(rates),
                "libraries": [{"name": library.name, "version": library.version}] if library is not None else [],
                "processor_seconds": taken,
                "classes": [
                    {"name": of.name, "points": [_described(row) for row in rows]} for of, rows in classes.items()
                ],
            }
        )
        return
    out = console()
    out.print(host_name(), style="bold")
    one, every, bytes_ = (
        f"{n / 1e9:,.0f} G" for n in (rates.flops_per_second, rates.all_flops_per_second, rates.all_bytes_per_second)
    )
    out.print(f"arithmetic {one}FLOP/s on one thread, {every}FLOP/s on {rates.threads}; memory {bytes_}B/s")
    out.print(f"library {library.name}: {library.version}" if library is not None else "no library is loaded")
    out.print(f"measured in {taken:.1f} s of processor time; `abele cache clear` forgets it")
    for of, rows in classes.items():
        out.print()
        out.print(_class_table(f"{of}, GFLOP/s of one thread", rows))


def _described(row: TableRow) -> dict[str, object]:
    return {"shape": row.shape, "flops_per_second": row.flops_per_second, "chosen": row.way}


def _class_table(title: str, rows: list[TableRow]) -> Table:
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    ways = dict.fromkeys(way for row in rows for way in row.flops_per_second)
    for heading in ("rows", "columns", "summed", *ways):
        table.add_column(heading, justify="right")
    table.add_column("chosen")
    for row in rows:
        rates = [f"{row.flops_per_second[way] / 1e9:,.1f}" if way in row.flops_per_second else "" for way in ways]
        table.add_row(*map(str, row.shape), *rates, row.way)
    return table
