"""``abele plan sparse-matmul``: the plan of a sparse product, by mode, and why."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from abele.cli.option_types import SystemOption
from abele.cli.output import console, print_json
from abele.errors import InvalidOptionError, nearest
from abele.machine import System, systems
from abele.numerics import as_element_type

if TYPE_CHECKING:
    from abele.poplibs.popsparse.explanation import SparseExplanation

SPARSE_MODES = {
    "static": "abele.poplibs.popsparse.static_.explain:explain_static",
    "dynamic": "abele.poplibs.popsparse.dynamic.explain:explain_dynamic",
    "block": "abele.poplibs.popsparse.experimental.explain:explain_block",
}
"""Function that explains the plan of each mode: (graph, problem, options=…) to a SparseExplanation."""


def sparse_matmul(
    sizes: Annotated[list[int], typer.Argument(help="Rows, inner dimension, columns: sparse [M, K] by dense [K, N].")],
    density: Annotated[float, typer.Option(help="Share of the elements that is held.")],
    block: Annotated[int, typer.Option(help="Side of a block.")] = 1,
    mode: Annotated[str, typer.Option(help="static, dynamic or block.")] = "static",
    type: Annotated[
        str, typer.Option("--type", help="Element type of the operands: half, float, F143 or F152.")
    ] = "half",
    system: SystemOption = "bow",
    proportion: Annotated[
        float | None, typer.Option("--proportion", help="Share of a tile's memory for what is there for a time.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Plan the product of a sparse M x K by a dense K x N matrix."""
    if len(sizes) != 3 or min(sizes) < 1:
        raise InvalidOptionError(
            f"a sparse product has three sizes of at least 1, got {' '.join(map(str, sizes))}",
            remedy="abele plan sparse-matmul ROWS INNER COLUMNS, such as abele plan sparse-matmul 4096 4096 1024",
        )
    if not 0 < density <= 1:
        raise InvalidOptionError(f"--density is above 0 and at most 1, got {density:g}")
    machine = systems.resolve(system)
    explained = explain(machine, *sizes, density=density, block=block, mode=mode, type=type, proportion=proportion)
    if json:
        print_json({"mode": mode, "system": machine.name, **explained.to_json()})
    else:
        show(explained, mode, machine, console())


def explain(
    machine: System,
    m: int,
    k: int,
    n: int,
    *,
    density: float,
    block: int,
    mode: str,
    type: str,
    proportion: float | None = None,
) -> SparseExplanation:
    """The plan of a mode.

    Raises:
        InvalidOptionError: An unknown mode, a block below 1, or sizes that it does not divide.
    """
    from abele.graph import Graph
    from abele.poplibs.popsparse.explanation import SparseProblem

    if mode not in SPARSE_MODES:
        guess = nearest(mode, SPARSE_MODES)
        raise InvalidOptionError(
            f"--mode takes {', '.join(SPARSE_MODES)}, got {mode!r}",
            remedy=f"did you mean {guess!r}?" if guess else None,
        )
    if block < 1 or m % block or k % block:
        raise InvalidOptionError(f"--block {block} does not divide {m:,} x {k:,}", remedy="a side that divides both")
    where, function = SPARSE_MODES[mode].split(":")
    if importlib.util.find_spec(where) is None:
        raise InvalidOptionError(f"plans of mode {mode!r} are not explained yet", remedy="--mode static")
    problem = SparseProblem(m, k, n, density, block, as_element_type(type))
    options = {} if proportion is None else {"availableMemoryProportion": proportion}
    found: SparseExplanation = getattr(importlib.import_module(where), function)(
        Graph(machine), problem, options=options
    )
    return found


def show(explained: SparseExplanation, mode: str, machine: System, out: Console) -> None:
    """Print a plan for people."""
    problem = explained.problem
    title = f"{mode} sparse [{problem.m:,} x {problem.k:,}] by [{problem.k:,} x {problem.n:,}], density "
    title += f"{problem.density:g} in blocks of {problem.block}: {problem.dtype}; {machine.title}"
    out.print(Text(title, style="bold"))
    out.print(_column("split", "", [(name, f"{value:,}") for name, value in explained.split]))
    out.print()
    seconds = explained.cycles / machine.ipu.clock_hz
    rate = f"{problem.flops / seconds / 1e12:.3g} TFLOP/s of what is held" if seconds else ""
    terms = [(name, f"{cycles:,}") for name, cycles in explained.terms]
    out.print(_column("expected cycles", rate, [*terms, ("sum", f"{explained.cycles:,}")]))
    out.print()
    memory = [(name, f"{size:,} B") for name, size in explained.memory]
    out.print(
        _column("temporary memory of the busiest tile", "", [*memory, ("allowed", f"{explained.available_bytes:,} B")])
    )
    for note in explained.notes:
        out.print(Text(note, style="dim"))


def _column(title: str, remark: str, rows: list[tuple[str, str]]) -> Table:
    heading = f"{title} ({remark})" if remark else title
    table = Table(title=heading, title_justify="left", box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("", justify="right")
    for row in rows:
        table.add_row(*row)
    return table
