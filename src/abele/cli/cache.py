"""``abele cache``: the compiled code that is kept on disk: where, how much, and removing it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from abele.cli.output import console, print_json
from abele.errors import FileFormatError
from abele.llvm.cache import cache_directory
from abele.llvm.cache_limit import clear as clear_objects
from abele.llvm.cache_limit import limit_bytes, usage
from abele.words import counted

cache_app = typer.Typer(help="Show or clear the compiled code that is kept on disk.")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_OFF = "switched off by ABELE_CACHE_DIR=off"


@cache_app.callback(invoke_without_command=True)
def cache(context: typer.Context, json: JsonOption = False) -> None:
    """Say where compiled code is kept, how much room it takes, and how much it may take."""
    if context.invoked_subcommand is None:
        _show(json)


@cache_app.command()
def where() -> None:
    """Print the directory, or nothing where the cache is switched off."""
    directory = cache_directory()
    if directory is not None:
        typer.echo(str(directory.absolute()))


@cache_app.command()
def size(json: JsonOption = False) -> None:
    """Print objects, bytes and limit."""
    _show(json)


@cache_app.command()
def clear(json: JsonOption = False) -> None:
    """Remove all compiled code and measurements of this host; they are made again when needed."""
    directory = cache_directory()
    if directory is None:
        typer.echo(_OFF, err=True)
        return
    from abele.host_facts import forget

    removed, facts = clear_objects(directory), forget()
    if json:
        print_json(
            {
                "removed_objects": removed.objects,
                "removed_bytes": removed.bytes,
                "left_objects": removed.left,
                "removed_facts": facts,
            }
        )
    else:
        measured = f" and {counted(facts, 'measured fact')}" if facts else ""
        typer.echo(f"removed {counted(removed.objects, 'object')}, {removed.bytes:,} B,{measured} from {directory}")
    if removed.left:
        raise FileFormatError(
            f"{directory}: {counted(removed.left, 'object')} could not be removed: {removed.why}",
            remedy="remove the directory as the user who owns it",
        )


def _show(json: bool) -> None:
    directory, limit = cache_directory(), limit_bytes()
    facts = _facts(directory)
    if json:
        print_json({**facts, "limit_bytes": limit})
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    grid.add_row("where", Text(facts["directory"] or _OFF))
    grid.add_row("holds", f"{counted(facts['objects'], 'object')}, {facts['bytes']:,} B")
    used = "" if not limit else f"; {facts['bytes'] / limit:.0%} of it is used"
    grid.add_row("limit", "none" if limit is None else f"{limit:,} B{used}")
    if facts["oldest"]:
        days = (time.time() - facts["oldest"]) / 86_400
        grid.add_row("oldest", f"last used {counted(round(days), 'day')} ago")
    console().print(grid)


def _facts(directory: Path | None) -> dict[str, Any]:
    if directory is None:
        return {"directory": None, "objects": 0, "bytes": 0, "oldest": None}
    held = usage(directory)
    return {
        "directory": str(directory.absolute()),
        "objects": held.objects,
        "bytes": held.bytes,
        "oldest": held.oldest,
    }
