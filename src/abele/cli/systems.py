"""``abele systems``: the machines known, or every constant of one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from abele.cli.constants import show_constants
from abele.cli.output import console, print_json
from abele.machine import CONFIDENCE, System, cited_works, sources
from abele.machine import systems as presets


def systems(
    name: Annotated[str | None, typer.Argument(help="A preset, or a TOML or JSON file: show every constant.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the machine presets, or every constant of one with its source."""
    if name is None:
        _list(json)
    else:
        _show(presets.resolve(name), json)


def _list(json: bool) -> None:
    found = [presets.get(name) for name in presets.names()]
    if json:
        print_json({"systems": [{**system.figures(), "confidence": confidences(system)} for system in found]})
        return
    table = Table(title="machine presets", title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading in ("name", "chip", "IPUs", "tiles", "GHz", "SRAM", "f16", "f32", "exch.", "S/D/C/G"):
        table.add_column(heading, justify="left" if heading in ("name", "chip") else "right", no_wrap=True)
    for system in found:
        table.add_row(*_row(system))
    out = console()
    out.print(table)
    out.print(
        "\nf16, f32: peak FLOP/s. exch.: exchange in B/s. S/D/C/G: constants stated, derived, calibrated, guessed.",
        style="dim",
    )
    out.print("abele systems NAME lists every constant with its source.", style="dim")


def _row(system: System) -> tuple[str, ...]:
    return (
        system.name,
        system.ipu.name,
        f"{system.num_ipus:,}",
        f"{system.num_tiles:,}",
        f"{system.ipu.clock_hz / 1e9:g}",
        _scaled(system.memory_bytes) + "B",
        _scaled(system.peak_flops("f16", "f16")),
        _scaled(system.peak_flops("f32", "f32")),
        _scaled(system.num_ipus * system.ipu.exchange_bytes_per_second),
        "/".join(str(confidences(system).get(key, 0)) for key in "SDCG"),
    )


def _scaled(value: float) -> str:
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:g} "


def confidences(system: System) -> dict[str, int]:
    """Number of constants of a system by confidence: stated, derived, calibrated, guessed or the user's."""
    found = [item.source.confidence for item in sources(system)]
    return {key: found.count(key) for key in CONFIDENCE if key in found}


def _show(system: System, json: bool) -> None:
    constants = sources(system)
    works = cited_works(item.source.text for item in constants)
    if json:
        print_json({**system.figures(), "constants": [asdict(item) for item in constants], "works": works})
        return
    show_constants(f"{system.name}: {system.title}", constants, works)
