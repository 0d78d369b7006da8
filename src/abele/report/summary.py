"""Summary of a report: the first figures for a performance engineer, as labelled lines and a table of operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from abele.report.cycles import PARTS
from abele.report.energy import energy_line
from abele.report.limits import LIMITS
from abele.report.loading import Epoch, Loading
from abele.report.report import Report
from abele.report.text import (
    bytes_text,
    category_text,
    count_text,
    full_name,
    percent_text,
    seconds_text,
    source_text,
)
from abele.terminal import shown_text
from abele.words import counted, plural, visible

NUM_OPS = 5
"""Operations that the summary shows."""
NUM_GROUPS = 8
"""Sync groups that the summary shows."""
_ONE_OF = {plural(noun): noun for noun in ("vertex", "entry")}
"""Singulars that are more than their plural without its ``s``."""


@dataclass(frozen=True)
class OpLine:
    """One of the most expensive operations.

    Attributes:
        share: Part of the run's cycles.
        cycles: Cycles of one step.
        mostly: Kind of most of its cycles.
        name: Operation with its path.
        source: The user's line.
    """

    share: str
    cycles: str
    mostly: str
    name: str
    source: str


def facts(report: Report) -> Iterator[tuple[str, str]]:
    """Label and text of each line of the summary, in characters that a terminal shows."""
    for label, text in _facts(report):
        yield visible(label), visible(text)


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    target = report.target
    yield "target", _target(report)
    yield "graph", " · ".join(_count(key, value) for key, value in report.graph.items() if value)
    step, per_step = report.meta.get("step_name", "step"), report.step_cycles
    yield f"one {step}", f"{count_text(per_step.total)} cycles = {seconds_text(report.seconds(per_step.total))}"
    if data_dependent := sorted(set(report.steps.where("program", 0)["basis"].tolist()) - {"", "static"}):
        yield "figures of", _figures_of(report, data_dependent)
    yield "spent on", " · ".join(f"{category_text(k)} {percent_text(v)}" for k, v in per_step.shares().items())
    if per_step.hidden:
        busy = per_step.total + per_step.hidden
        yield "overlap hides", f"{count_text(per_step.hidden)} of {count_text(busy)} cycles"
    yield "tile balance", f"{percent_text(report.tile_balance)} (mean tile / slowest tile while computing)"
    if (rate := report.samples_per_second) is not None:
        things, ipus = report.meta.get("sample_name", "samples"), _ipus(target, of_all_replicas=True)
        yield "throughput", f"{count_text(rate)} {things}/s on {ipus}"
        yield from _limits(report)
    if (energy := report.energy) is not None and energy.terms:
        yield "energy", energy_line(energy)
    yield from report.sparse.facts()
    yield "memory", _fullest(report)
    yield "which holds", _categories(report)
    yield from _runs(report)


def _limits(report: Report) -> Iterator[tuple[str, str]]:
    """Limits of the rate, and times of an epoch where the loader is known."""
    limits = report.limits
    if limits is None:
        return
    rates = ((name, getattr(limits, name)) for name in LIMITS)
    texts = [f"{name} {count_text(rate)}" for name, rate in rates if rate is not None]
    unit = f"{report.meta.get('sample_name', 'samples')}/s"
    loader = "" if limits.loader is not None else " · loader not known"
    yield "limited by", f"the {limits.name}: {' · '.join(texts)} {unit}{loader}"
    if limits.epoch is not None and limits.loading is not None:
        yield "with loading", f"{count_text(limits.samples_per_second)} {unit}; {epoch_text(limits.epoch)}"
        yield "loaded by", loading_text(limits.loading)


def epoch_text(epoch: Epoch) -> str:
    """Times of an epoch, in words."""
    parts = {
        "device": epoch.device,
        "waiting for batches": epoch.waiting,
        "taking them": epoch.taking,
        "calls": epoch.calling,
        "starting": epoch.starting,
    }
    shown = " · ".join(f"{name} {seconds_text(seconds)}" for name, seconds in parts.items() if seconds > 0)
    return f"an epoch takes {seconds_text(epoch.total)}: {shown}"


def loading_text(loading: Loading) -> str:
    """Parameters of loading, in words."""
    workers = counted(loading.num_workers, "worker") if loading.num_workers else "the calling process"
    batches = counted(loading.batches_per_epoch, "batch")
    samples = counted(loading.samples_per_batch, "sample")
    measured = f" (measured on {loading.measured_on})" if loading.measured_on else ""
    ahead = f", {loading.ring_batches} batches ready" if loading.ring_batches else ""
    each = f"{seconds_text(loading.sample_seconds)} for each sample{measured}"
    return f"{workers} on {loading.host.name}{ahead}: {batches} of {samples} an epoch, {each}"


def _figures_of(report: Report, bases: list[str]) -> str:
    """Run that the figures of program 0 are of, where data decides some of them."""
    of = next(iter(report.meta.get("figures_of", ())), "")
    run = f"{of}, the last whole one" if str(of).startswith("run ") else str(of)
    rest = "some vertices and decisions assumed" if "assumed" in bases and run != "assumptions" else ""
    return " · ".join(filter(None, (run, rest))) or "assumptions"


def _target(report: Report) -> str:
    target = report.target
    tiles = f"{counted(int(target['num_tiles']), 'tile')} at {target['clock_hz'] / 1e9:g} GHz"
    replicas = int(target.get("num_replicas", 1) or 1)
    each = f", for each of {replicas} replicas" if replicas > 1 else ""
    return f"{target['name']} ({target['title']}): {_ipus(target)}, {tiles}{each}"


def _count(key: str, value: int) -> str:
    things = key.removeprefix("num_").replace("_", " ")
    return counted(value, _ONE_OF.get(things, things.removesuffix("s")))


def _ipus(target: dict[str, object], *, of_all_replicas: bool = False) -> str:
    count = int(str(target["num_ipus"]))
    if of_all_replicas:
        count *= int(str(target.get("num_replicas", 1) or 1))
    return counted(count, f"{target['ipu']} IPU")


def _fullest(report: Report) -> str:
    memory = report.memory
    tile = memory.fullest_tile
    held, room = int(memory.by_tile[tile]), memory.available_bytes
    full = int((memory.by_tile > room).sum())
    verdict = f"DOES NOT FIT on {counted(full, 'tile')}" if full else "fits"
    return (
        f"{verdict}; fullest tile {tile} holds {bytes_text(held)} of {bytes_text(room)} ({percent_text(held / room)})"
    )


def _categories(report: Report) -> str:
    memory = report.memory
    held = memory.of_tile(memory.fullest_tile)
    largest = sorted(held.items(), key=lambda item: -item[1])
    return " · ".join(f"{category_text(name)} {bytes_text(value)}" for name, value in largest if value)


def _runs(report: Report) -> Iterator[tuple[str, str]]:
    if "compile_seconds" in report.meta:
        yield "compiler took", seconds_text(report.meta["compile_seconds"])
    if len(report.runs):
        seconds = float(report.runs["wall_seconds"].sum())
        modes = "/".join(sorted(set(report.runs["mode"].tolist())))
        threads = int(report.runs["threads"].max())
        how = f"{modes}, {counted(threads, 'thread')}"
        yield "ran here", f"{counted(len(report.runs), 'run')} in {seconds_text(seconds)} ({how})"
        if sum(report.host_seconds.values()) > seconds:
            yield "host", host_text(report)


def host_text(report: Report) -> str:
    """Times of all runs on the host, in words."""
    taken = report.host_seconds
    words = {"waiting": "waiting for data", "sending": "sending inputs", "running": "device", "reading": "results"}
    return " · ".join(f"{words[name]} {seconds_text(taken[name])}" for name in words)


@dataclass(frozen=True)
class GroupLine:
    """One sync group in one step.

    Attributes:
        busy: Part of the step's cycles in which it works.
        cycles: These cycles.
        idle: The others.
        tiles: Its tiles.
        mostly: Kind of most of its cycles.
        name: Its name.
    """

    busy: str
    cycles: str
    idle: str
    tiles: str
    mostly: str
    name: str


def group_lines(report: Report, count: int = NUM_GROUPS) -> list[GroupLine]:
    """The ``count`` busiest sync groups of program 0, where there are several."""
    groups = report.groups.where("program", 0)
    total = max(report.total_cycles, 1)
    if len(groups) < 2:
        return []
    return [_group_line(row, total, report.steps_per_run) for row in groups.top(count, "busy_cycles").rows()]


def _group_line(row: dict[str, object], total: int, steps_per_run: int) -> GroupLine:
    busy, idle = int(str(row["busy_cycles"])), int(str(row["idle_cycles"]))
    return GroupLine(
        busy=percent_text(busy / total),
        cycles=count_text(busy / steps_per_run),
        idle=count_text(idle / steps_per_run),
        tiles=f"{row['tiles']:,}",
        mostly=_mostly(row),
        name=visible(str(row["name"])),
    )


def _mostly(row: dict[str, object]) -> str:
    """The part that most cycles of an operation or group go to."""
    parts = {part: int(str(row[f"{part}_cycles"])) for part in PARTS}
    return category_text(max(parts, key=lambda part: parts[part]))


def op_lines(report: Report, count: int = NUM_OPS) -> list[OpLine]:
    """The ``count`` operations with most cycles."""
    return [_op_line(row, report.steps_per_run) for row in report.ops.top(count, "cycles").rows()]


def _op_line(row: dict[str, object], steps_per_run: int) -> OpLine:
    path, name = str(row["path"]), str(row["name"])
    return OpLine(
        share=percent_text(float(str(row["share"]))),
        cycles=count_text(int(str(row["cycles"])) / steps_per_run),
        mostly=_mostly(row),
        name=visible(full_name(path, name)),
        source=visible(source_text(str(row["file"]), int(str(row["line"])))),
    )


def summary_text(report: Report) -> str:
    """The summary as plain text, in characters that standard output has."""
    labelled = list(facts(report))
    width = max(len(label) for label, _ in labelled)
    lines = [f"{label:<{width}}  {text}" for label, text in labelled]
    groups = group_lines(report)
    parts = [*lines, *(["", *_groups_text(groups)] if groups else []), "", *_ops_text(op_lines(report))]
    return shown_text("\n".join(parts))


def _ops_text(ops: list[OpLine]) -> list[str]:
    header = OpLine("share", "cycles", "mostly", "operation", "source")
    return _aligned([(op.share, op.cycles, op.mostly, op.name, op.source) for op in (header, *ops)], ">><<<")


def _groups_text(groups: list[GroupLine]) -> list[str]:
    header = GroupLine("busy", "cycles", "idle", "tiles", "mostly", "sync group")
    return _aligned([(g.busy, g.cycles, g.idle, g.tiles, g.mostly, g.name) for g in (header, *groups)], ">>>><<")


def _aligned(rows: list[tuple[str, ...]], sides: str) -> list[str]:
    """Rows with each column as wide as it needs, to the left (``<``) or right (``>``)."""
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, width, strict=True)).rstrip() for row in rows]
