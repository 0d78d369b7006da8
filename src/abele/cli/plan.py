"""``abele plan``: how a matrix product or a convolution would be cut over the tiles, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from abele.cli.option_types import SystemOption
from abele.cli.output import console, print_json
from abele.errors import InvalidOptionError
from abele.machine import System, systems
from abele.words import counted

if TYPE_CHECKING:
    from abele.poplibs.poplin.conv_params.params import ConvParams
    from abele.poplibs.poplin.explain import Explanation
    from abele.poplibs.poplin.planner.plan import ContractionPlan

plan_app = typer.Typer(help="Plan how a product or convolution is cut over the tiles, and why.", no_args_is_help=True)

TypeOption = Annotated[str, typer.Option("--type", help="Element type of the operands: half or float.")]
PartialsOption = Annotated[str | None, typer.Option("--partials", help="Type of partial sums: half or float.")]
ProportionOption = Annotated[
    float | None, typer.Option("--proportion", help="Share of a tile's memory for slices and partials; 0.6 by default.")
]
PassOption = Annotated[str | None, typer.Option("--pass", help="What it is part of, such as INFERENCE_FWD.")]
ConstraintsOption = Annotated[
    str | None, typer.Option("--constraints", help="planConstraints that pin the plan, JSON.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@plan_app.command()
def matmul(
    sizes: Annotated[list[int], typer.Argument(help="Rows, inner dimension and columns: [M, K] by [K, N].")],
    system: SystemOption = "bow",
    groups: Annotated[int, typer.Option(help="Products that are computed together.")] = 1,
    type: TypeOption = "half",
    partials: PartialsOption = None,
    proportion: ProportionOption = None,
    way: PassOption = None,
    constraints: ConstraintsOption = None,
    json: JsonOption = False,
) -> None:
    """Plan the product of an M x K by a K x N matrix."""
    if len(sizes) != 3:
        raise InvalidOptionError(
            f"a product has three sizes, got {len(sizes)}: {' '.join(map(str, sizes))}",
            remedy="abele plan matmul ROWS INNER COLUMNS, such as abele plan matmul 1024 4096 512",
        )
    if min(*sizes, groups) < 1:
        raise InvalidOptionError(f"sizes and groups are at least 1, got {sizes[0]} x {sizes[1]} x {sizes[2]}, {groups}")
    machine = systems.resolve(system)
    from abele.graph import Graph
    from abele.poplibs.poplin.explain import explain_matmul

    rows, inner, columns = sizes
    lead = (groups,) if groups > 1 else ()
    explained = explain_matmul(
        Graph(machine),
        (*lead, rows, inner),
        (*lead, inner, columns),
        type,
        options=_options(partials, proportion, constraints, {"fullyConnectedPass": way}),
    )
    title = f"matmul [{rows:,} x {inner:,}] by [{inner:,} x {columns:,}]" + (f", {groups:,} groups" * (groups > 1))
    _print(explained, title, machine, json)


@plan_app.command()
def conv(
    field: Annotated[str, typer.Option(help="Extents of the input field, such as 56,56.")],
    kernel: Annotated[str, typer.Option(help="Extents of the kernel, such as 3,3.")],
    channels: Annotated[str, typer.Option(help="In- and out-channels, such as 64,64.")],
    batch: Annotated[int, typer.Option(help="Samples.")] = 1,
    stride: Annotated[
        str, typer.Option(help="Steps by which the kernel moves: one number, or one per dimension.")
    ] = "1",
    padding: Annotated[str, typer.Option(help="Zeros on both sides: one number, or one per dimension.")] = "0",
    dilation: Annotated[str, typer.Option(help="Distance of kernel elements: one number, or one per dimension.")] = "1",
    groups: Annotated[int, typer.Option(help="Groups of channels that do not mix.")] = 1,
    system: SystemOption = "bow",
    type: TypeOption = "half",
    partials: PartialsOption = None,
    proportion: ProportionOption = None,
    way: PassOption = None,
    constraints: ConstraintsOption = None,
    json: JsonOption = False,
) -> None:
    """Plan a convolution."""
    machine = systems.resolve(system)
    from abele.graph import Graph
    from abele.poplibs.poplin.explain import explain_convolution

    params = _conv_params(
        batch, field, kernel, channels=channels, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    options = _options(partials, proportion, constraints, {"pass": way})
    explained = explain_convolution(Graph(machine), params, type, options=options)
    shapes = " by ".join("x".join(map(str, extents)) for extents in (params.field, params.kernel))
    title = (
        f"convolution of {params.batch} x {params.in_channels} channels, {shapes}, to {params.out_channels} channels"
    )
    _print(explained, title, machine, json)


def _conv_params(
    batch: int, field: str, kernel: str, channels: str, stride: str, padding: str, dilation: str, groups: int
) -> ConvParams:
    from abele.poplibs.poplin.conv_params.params import ConvParams

    extents, ends = _numbers("field", field), _numbers("channels", channels)
    if len(ends) != 2:
        raise InvalidOptionError(
            f"--channels takes two numbers, in and out, got {channels!r}", remedy="--channels 64,64"
        )
    rank = len(extents)
    window = _numbers("kernel", kernel, rank)
    pads = _numbers("padding", padding, rank)
    return ConvParams(
        batch,
        *ends,
        extents,
        window,
        stride=_numbers("stride", stride, rank),
        dilation=_numbers("dilation", dilation, rank),
        padding_lower=pads,
        padding_upper=pads,
        groups=groups,
    )


def _numbers(name: str, given: str, count: int | None = None) -> tuple[int, ...]:
    """Numbers separated by commas; a single one stands for ``count`` of them."""
    try:
        numbers = tuple(int(word) for word in given.split(","))
    except ValueError:
        raise InvalidOptionError(f"--{name} takes whole numbers separated by commas, got {given!r}") from None
    if count is not None and len(numbers) == 1:
        return numbers * count
    if count is not None and len(numbers) != count:
        raise InvalidOptionError(
            f"--{name} takes one number, or one for each of {counted(count, 'dimension')}, got {given!r}"
        )
    return numbers


def _options(
    partials: str | None, proportion: float | None, constraints: str | None, way: dict[str, str | None]
) -> dict[str, Any]:
    """PopLibs' options, those that were not given left out."""
    given = {
        "partialsType": partials,
        "availableMemoryProportion": proportion,
        "planConstraints": constraints,
        **way,
    }
    return {name: value for name, value in given.items() if value is not None}


def _print(explained: Explanation, title: str, machine: System, json: bool) -> None:
    if json:
        print_json({"title": title, "system": machine.name, **explained.to_json()})
    else:
        show(explained, title, machine, console())


def show(explained: Explanation, title: str, machine: System, out: Console) -> None:
    """Print a plan for people."""
    plan, schedule = explained.plan, explained.schedule
    kinds = f"{plan.problem.dtype}, partials {plan.problem.partials}, result {plan.problem.output}"
    where = machine.title if machine.num_ipus == 1 else f"one IPU of {machine.title}"
    out.print(Text(f"{title}: {kinds}; {where}", style="bold"))
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_column(overflow="fold")
    if len(schedule.plans) > 1:
        name = {"co": "out-channels", "b": "the batch", "ci": "in-channels"}[schedule.dim]
        grid.add_row("serially", f"{len(schedule.plans)} plans over parts of {name}; what follows is the first")
    for label, lines in _words(explained):
        for i, line in enumerate(lines):
            grid.add_row("" if i else label, Text(line))
    out.print(grid)
    out.print()
    out.print(_terms(explained))
    out.print("\nThe same again: --constraints, or the option planConstraints, with", style="dim")
    out.print(Text(explained.constraints), soft_wrap=True)


def _words(explained: Explanation) -> list[tuple[str, tuple[str, ...]]]:
    plan = explained.plan
    share = plan.temporary_bytes / plan.available_bytes
    return [
        ("vertices", (explained.vertex,)),
        ("split", explained.split),
        ("tiles", (f"{plan.tiles:,}",)),
        ("before", explained.before or ("nothing moves: operands are stored as the vertices read them",)),
        ("after", explained.after or ("nothing: the vertices write the result",)),
        ("memory", (f"{plan.temporary_bytes:,} B temporary, {share:.0%} of {plan.available_bytes:,} B allowed",)),
        ("cycles", (f"{explained.cycles:,} expected",)),
    ]


def _terms(explained: Explanation) -> Table:
    """Expected cycles term by term: the plan, the next best split, and the best with other vertices."""
    plans: list[tuple[str, ContractionPlan]] = [("chosen", explained.plan)]
    plans += [("next best", explained.runner_up)] if explained.runner_up is not None else []
    plans += [(f"best {plan.method.kind}", plan) for plan in explained.others]
    table = Table(title="expected cycles", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for heading, _ in plans:
        table.add_column(heading, justify="right")
    names = list(dict.fromkeys(name for _, plan in plans for name, _ in plan.terms))
    for name in names:
        table.add_row(name, *(f"{dict(plan.terms).get(name, 0):,}" for _, plan in plans))
    table.add_row("sum", *(f"{plan.cycles:,}" for _, plan in plans), style="bold")
    rows: list[tuple[str, Callable[[ContractionPlan], str]]] = [
        ("split", _split_text),
        ("tiles", lambda plan: f"{plan.tiles:,}"),
        ("temporary B", lambda plan: f"{plan.temporary_bytes:,}"),
    ]
    for name, text in rows:
        table.add_row(name, *(text(plan) for _, plan in plans), style="dim")
    if explained.rearranging_cycles:
        table.add_row("rearranging, besides", f"{explained.rearranging_cycles:,}")
    return table


def _split_text(plan: ContractionPlan) -> str:
    return " ".join(f"{dim}/{parts}" for dim, parts in plan.split.items() if parts > 1) or "none"
