"""Insights as a page of text."""

from __future__ import annotations

from collections.abc import Iterator

from abele.report.insights.model import Cost, Insights, Lever, Roofline
from abele.report.text import bytes_text, category_text, count_text, percent_text, seconds_text, source_text
from abele.terminal import shown_text
from abele.words import counted, shortened, visible

_ROOFS = 5


def insights_text(found: Insights) -> str:
    """Limit of the program, its cycles and bytes, the costs, memory and rooflines."""
    head = list(head_lines(found))
    width = max(len(label) for label, _ in head)
    parts = [[f"{label:<{width}}  {text}" for label, text in head]]
    parts += [list(_cost_lines(n + 1, cost)) for n, cost in enumerate(found.costs)]
    if found.memory_costs:
        parts.append([f"on tile {found.memory.tile:,}, the fullest", *memory_lines(found)])
    if found.roofline.ops:
        parts.append(list(roof_lines(found.roofline)))
    if found.notes:
        parts.append(list(found.notes))
    return shown_text("\n\n".join("\n".join(map(visible, part)) for part in parts))


def head_lines(found: Insights) -> Iterator[tuple[str, str]]:
    """Label and text of the first lines: limit of the program, its cycles, balance and memory."""
    step = found.run_cycles / found.steps_per_run
    yield "limited by", found.limit
    yield shortened(f"one {found.step_name}", 20), f"{count_text(step)} cycles = {seconds_text(found.step_seconds)}"
    busy = sum(found.parts[name] or 0.0 for name in ("compute", "exchange", "sync", "host")) or 1.0
    shares = [
        f"{category_text(name)} {percent_text((value or 0.0) / busy)}"
        for name, value in found.parts.items()
        if name not in ("loader", "hidden")
    ]
    if found.parts["hidden"]:
        shares.append(f"of which {percent_text(found.parts['hidden'] / busy)} hidden")
    if found.parts["loader"]:
        shares.append(f"and {count_text(found.parts['loader'])} cycles for the loader")
    yield "spent on", " · ".join(shares)
    tiles = f"{found.active_tiles:,} of {counted(found.num_tiles, 'tile')} compute"
    yield "tile balance", f"{percent_text(found.tile_balance)}, {tiles}"
    memory = found.memory
    if memory.tile < 0:
        return
    left = memory.headroom_bytes
    room = f"{bytes_text(left)} left" if memory.fits else f"{bytes_text(-left)} too much"
    held = f"tile {memory.tile:,} holds {bytes_text(memory.bytes)} of {bytes_text(memory.available_bytes)}"
    yield "memory", f"{held}, {room}; the mean tile {bytes_text(memory.mean_bytes)}"


def _cost_lines(number: int, cost: Cost) -> Iterator[str]:
    figures = bytes_text(cost.bytes) if cost.kind == "memory" else f"{count_text(cost.cycles)} cycles"
    source = f"  ({source_text(cost.where.file, cost.where.line)})" if cost.where else ""
    yield f"{number}. {cost.title}: {figures}, {percent_text(cost.share)}{source}"
    yield f"   {cost.reason}"
    for lever in cost.levers:
        yield f"   - {lever_text(lever)}"


def lever_text(lever: Lever) -> str:
    """Lever with its gain and assumption."""
    gains = []
    if lever.gain_cycles is not None:
        gains.append(f"{count_text(lever.gain_cycles)} cycles")
    if lever.gain_bytes is not None:
        gains.append(bytes_text(lever.gain_bytes))
    gain = f": saves {'at most ' if lever.at_most else ''}{' and '.join(gains)}" if gains else ""
    return f"{lever.title}{gain}" + (f", if {lever.assumption}" if lever.assumption and gains else "")


def memory_lines(found: Insights) -> Iterator[str]:
    """Lines for the contents of the fullest tile."""
    for cost in found.memory_costs:
        source = f"  ({source_text(cost.where.file, cost.where.line)})" if cost.where else ""
        yield f"{bytes_text(cost.bytes):>14}  {cost.title}: {cost.reason}{source}"


def roof_lines(found: Roofline) -> Iterator[str]:
    """A heading, and a line for each of the operations with most cycles."""
    yield "reached  roof      flops/B  Tflop/s  operation"
    # Equal layers are one line.
    distinct = {(roof.title, roof.where): roof for roof in reversed(found.ops)}
    for roof in list(reversed(distinct.values()))[:_ROOFS]:
        intensity = "-" if roof.intensity is None else count_text(roof.intensity)
        peak = f"{roof.bound} {roof.type if roof.bound == 'compute' else ''}".strip()
        rate = f"{roof.flops_per_second / 1e12:.3g}"
        yield f"{percent_text(roof.reached):>7}  {peak:<11} {intensity:>5}  {rate:>7}  {roof.title}"
