"""Parts of insights, and their JSON form: costs with reasons and levers, rooflines, figures of the first page.

``Insights.to_json()`` gives plain mappings, lists, strings, numbers, booleans and null:

``format``, ``version``
    ``"abele-insights"`` and 1.
``program``
    ``{index, name, step_name, steps_per_run}``; all cycles are those of **one run** of it unless a key says step.
``cycles``
    ``{run, step, step_seconds, parts: {compute, exchange, sync, host, loader, hidden}}``; parts are of one step.
    ``loader`` is null where nobody said how data is loaded. Hidden is what overlaps: the sum of the first four less
    the step.
``balance``
    ``{tile_balance, active_tiles, num_tiles}``: mean tile / slowest tile while computing, tiles that ever compute.
``memory``
    ``{fits, available_bytes, tile, bytes, headroom_bytes, mean_bytes, tiles_too_full, largest_excess_bytes,
    categories: {name: bytes}, holds: [{title, bytes}]}``: the fullest tile and what fills it, largest first.
``limit``
    One sentence: what limits the program.
``costs``, ``memory_costs``
    Lists of ``{kind, title, reason, where: {file, line}, op, step, cost: {cycles, share, bytes}, levers: [{title,
    gain_cycles, gain_bytes, assumption, at_most, changes_numbers}], links: {view, select}}``. ``kind`` is one of
    :data:`KINDS`; ``where`` is null, or ``line`` 0, where unknown; ``op`` and ``step`` are rows of the ops and steps
    tables or -1; ``share`` is of the run's cycles (the loader's: of these and its own; memory's: of what a tile has);
    ``gain_*`` are null where nothing can be computed, otherwise ``assumption`` says under what; ``at_most`` marks a
    bound; ``changes_numbers`` marks levers after which results are rounded otherwise. ``links.view`` is one of
    :data:`VIEWS`; ``links.select`` is a mapping of ``op``, ``step``, ``tile``, ``variable``, ``group`` to a row or
    tile.
``roofline``
    ``{f16_flops_per_second, f32_flops_per_second, exchange_bytes_per_second, ops: [{op, title, where, type, cycles,
    flops, exchanged_bytes, intensity, flops_per_second, peak_flops_per_second, exchange_bytes_per_second, bound,
    reached}], f8_flops_per_second}``; ``intensity`` is flops for each exchanged byte (null where nothing is exchanged),
    ``bound`` is ``compute`` or ``exchange``: the side whose roof is lower, ``reached`` the part of that roof that is
    reached.
``notes``
    Sentences about what the figures do not know.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

KINDS = (
    "memory",
    "pipeline",
    "balance",
    "compute",
    "exchange",
    "arrange",
    "replicas",
    "sync",
    "host",
    "streaming memory",
    "loader",
)
"""Kinds of cost: tiles too full; sync groups that wait; tiles that wait for the slowest; vertices at work; data between
tiles; data put in order on tiles; data between replicas; barriers; host streams; streaming memory; making batches.
"""

VIEWS = ("summary", "timeline", "memory", "liveness", "operations", "exchange", "tiles")
"""Pages that a cost may lead to."""


@dataclass(frozen=True)
class SourceLine:
    """A line of the user's source.

    Attributes:
        file: The file.
        line: The line, 0 when unknown.
    """

    file: str
    line: int = 0


@dataclass(frozen=True)
class Lever:
    """Something that would help.

    Attributes:
        title: Advice.
        gain_cycles: Cycles of a run that it saves, or None where nothing can be computed.
        gain_bytes: Bytes of the fullest tile that it saves, or None.
        assumption: Assumption of the estimate; without an estimate, the condition under which the lever applies.
        at_most: True if the gain is a bound: obstacles to reaching it are not in the report. It bounds what this cost
            can save; pulling the lever may make other costs smaller or larger too.
        changes_numbers: True if results are rounded otherwise afterwards.
    """

    title: str
    gain_cycles: int | None = None
    gain_bytes: int | None = None
    assumption: str = ""
    at_most: bool = False
    changes_numbers: bool = False


@dataclass(frozen=True)
class Cost:
    """Something that a program spends cycles or bytes on.

    Attributes:
        kind: One of ``KINDS``.
        title: Name of the cost, in a few words.
        reason: Reason of the cost, in a sentence.
        where: The user's line, or None.
        op: Row in the ops table, -1 for none.
        step: Row in the steps table of its most expensive step, -1 for none.
        cycles: Cycles of a run on its critical path; 0 for memory.
        bytes: Bytes that it moves in a run; for memory, bytes on the fullest tile.
        share: Part of the run's cycles; for the loader, of those and its own; for memory, of a tile's memory.
        levers: Levers, largest gain first.
        view: The page that shows it.
        select: Item to select there.
    """

    kind: str
    title: str
    reason: str
    where: SourceLine | None = None
    op: int = -1
    step: int = -1
    cycles: int = 0
    bytes: int = 0
    share: float = 0.0
    levers: tuple[Lever, ...] = ()
    view: str = "operations"
    select: dict[str, int] = field(default_factory=dict)

    @property
    def gain_cycles(self) -> int:
        """Largest gain of a lever that does not change numbers; 0 where none is known."""
        return max((lever.gain_cycles or 0 for lever in self.levers if not lever.changes_numbers), default=0)

    def to_json(self) -> dict[str, Any]:
        """The cost as plain data."""
        return {
            "kind": self.kind,
            "title": self.title,
            "reason": self.reason,
            "where": None if self.where is None else asdict(self.where),
            "op": self.op,
            "step": self.step,
            "cost": {"cycles": self.cycles, "share": self.share, "bytes": self.bytes},
            "levers": [asdict(lever) for lever in self.levers],
            "links": {"view": self.view, "select": dict(self.select)},
        }


@dataclass(frozen=True)
class Roof:
    """An operation below the roofs of the machine.

    Attributes:
        op: Row in the ops table.
        title: Its name with its path.
        where: The user's line, or None.
        type: Element type of its products, or empty where the report does not tell.
        cycles: Cycles of a run.
        flops: Floating-point operations of a run.
        exchanged_bytes: Bytes that it sends between tiles in a run.
        intensity: Floating-point operations for each of these bytes; None where it sends nothing.
        flops_per_second: Rate that it reaches, all of its cycles counted.
        peak_flops_per_second: Rate that the machine reaches with that type.
        exchange_bytes_per_second: Rate of its exchanges, its exchange phases alone counted; 0 where it has none.
        bound: ``compute`` or ``exchange``: the side whose roof is lower at its intensity.
        reached: ``flops_per_second`` as part of that roof.
    """

    op: int
    title: str
    where: SourceLine | None
    type: str
    cycles: int
    flops: int
    exchanged_bytes: int
    intensity: float | None
    flops_per_second: float
    peak_flops_per_second: float
    exchange_bytes_per_second: float
    bound: str
    reached: float


@dataclass(frozen=True)
class Roofline:
    """Roofs of the machine, and operations below them, most cycles first.

    Attributes:
        f16_flops_per_second: Peak of products of f16.
        f32_flops_per_second: Peak of products of f32.
        exchange_bytes_per_second: Peak of the exchange within IPUs, all tiles together.
        ops: Operations that compute something.
        f8_flops_per_second: Peak of products of 8-bit floats; 0 on chips without them.
    """

    f16_flops_per_second: float
    f32_flops_per_second: float
    exchange_bytes_per_second: float
    ops: tuple[Roof, ...] = ()
    f8_flops_per_second: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The roofline as plain data."""
        return asdict(self) | {"ops": [asdict(roof) for roof in self.ops]}


@dataclass(frozen=True)
class FullestTile:
    """Memory of the fullest tile, and how full the others are.

    Attributes:
        fits: True if every tile has room for what it holds.
        available_bytes: Bytes of a tile.
        tile: The fullest tile.
        bytes: Bytes on it.
        headroom_bytes: Bytes that are free, negative where it does not fit.
        mean_bytes: Mean bytes on a tile.
        tiles_too_full: Tiles that hold more than they have.
        largest_excess_bytes: Bytes too much on the fullest tile, 0 where it fits.
        categories: Bytes by category, largest first.
        holds: Variables and buffers on it when it is fullest, with bytes, largest first.
    """

    fits: bool
    available_bytes: int
    tile: int
    bytes: int
    headroom_bytes: int
    mean_bytes: int
    tiles_too_full: int
    largest_excess_bytes: int
    categories: dict[str, int]
    holds: tuple[tuple[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        """The memory as plain data."""
        holds = [{"title": title, "bytes": size} for title, size in self.holds]
        return asdict(self) | {"holds": holds}


@dataclass(frozen=True)
class Insights:
    """Limits of a program, its largest costs, and levers.

    Attributes:
        program: Index of the program.
        program_name: Its name.
        step_name: Name of a step.
        steps_per_run: Steps of one run.
        run_cycles: Cycles of one run.
        step_seconds: Time of one step.
        parts: Cycles of one step by ``compute``, ``exchange``, ``sync``, ``host``, ``loader`` (None where unknown) and
            ``hidden``.
        tile_balance: Mean tile / slowest tile while computing.
        active_tiles: Tiles that compute anything.
        num_tiles: Tiles of the machine, of one replica.
        memory: The fullest tile.
        limit: Limit of the program, as a sentence.
        costs: Costs that matter, the worst first.
        memory_costs: Costs of the fullest tile with levers, the largest first.
        roofline: Operations below the roofs of the machine.
        notes: Facts that the figures do not include.
    """

    program: int
    program_name: str
    step_name: str
    steps_per_run: int
    run_cycles: int
    step_seconds: float
    parts: dict[str, float | None]
    tile_balance: float
    active_tiles: int
    num_tiles: int
    memory: FullestTile
    limit: str
    costs: tuple[Cost, ...]
    memory_costs: tuple[Cost, ...]
    roofline: Roofline
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All as plain data; keys as the module says."""
        return {
            "format": "abele-insights",
            "version": 1,
            "program": {
                "index": self.program,
                "name": self.program_name,
                "step_name": self.step_name,
                "steps_per_run": self.steps_per_run,
            },
            "cycles": {
                "run": self.run_cycles,
                "step": self.run_cycles / self.steps_per_run,
                "step_seconds": self.step_seconds,
                "parts": dict(self.parts),
            },
            "balance": {
                "tile_balance": self.tile_balance,
                "active_tiles": self.active_tiles,
                "num_tiles": self.num_tiles,
            },
            "memory": self.memory.to_json(),
            "limit": self.limit,
            "costs": [cost.to_json() for cost in self.costs],
            "memory_costs": [cost.to_json() for cost in self.memory_costs],
            "roofline": self.roofline.to_json(),
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """Page of text: the limit of the program, the costs with their reasons, and levers."""
        from abele.report.insights.text import insights_text

        return insights_text(self)

    def __str__(self) -> str:
        return self.text()
