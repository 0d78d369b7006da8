"""``abele hosts``: the host computers known, or every constant of one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from abele.cli.constants import show_constants
from abele.cli.output import console, print_json
from abele.machine import HostComputer, cited_works, described, sources
from abele.machine import hosts as presets


def hosts(
    name: Annotated[str | None, typer.Argument(help="A preset, or a TOML or JSON file: show every constant.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the host computers that programs can be fed by, or every constant of one with its source."""
    if name is None:
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
