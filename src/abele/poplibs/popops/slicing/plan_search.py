"""Search of the splits of a table: cycles and bytes of each, for all of them at once.

Cycles are those of the vertices with indices spread evenly over the entries, and of exchange at 4 bytes per cycle and
tile, double where neighbouring tiles want the same. Bytes are those of the fullest tile.

Every combination of splits is a candidate, costed as columns of one array: groups, entries, columns and indices are cut
independently, and only cuts that leave no part empty and use no more tiles than there are come up, so the list stays
short enough to be complete. Two quantities are traded against each other by ``Wish.aim``: splitting the entries spares
memory and needs a second step that picks the right partial result; splitting the indices spares time and needs the
table, or partial sums of it, on several tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from abele.arrays import Array
from abele.errors import InvalidOptionError
from abele.machine import System
from abele.numerics import ElementType
from abele.poplibs.popops.slicing.multi_cost import add_cycles, slice_cycles
from abele.poplibs.popops.slicing.plan import SlicePlan
from abele.words import counted

Aim = Literal["memory", "cycles", "cyclesWithTable", "storage"]
INDEX_BYTES = 4
REDUCE_START_SLOTS, REDUCE_OUTPUT_SLOTS = 16, 3 + 5
"""Worker slots of a reduction of partial sums, and of a vector of outputs; each partial takes another slot.
Source: machine reference §4.7 (strided)."""


@dataclass(frozen=True)
class Wish:
    """Purpose and constraints of a plan.

    Attributes:
        for_slice: True if rows are sliced.
        for_update: Operation by which rows are updated; None where they are not.
        proportion: Share of a tile's memory that temporary data may take.
        aim: Figure that the chosen plan minimises.
        splits: Splits that are given, by attribute of :class:`SlicePlan`.
        spread: True if indices are spread evenly over the entries; otherwise all may be the same.
    """

    for_slice: bool = True
    for_update: str | None = "add"
    proportion: float = 0.6
    aim: Aim = "memory"
    splits: tuple[tuple[str, int], ...] = ()
    spread: bool = True


@dataclass(frozen=True)
class Candidates:
    """Splits, one of each for a candidate, int64[n]."""

    group_split: Array
    entry_split: Array
    column_split: Array
    lookup_split: Array

    def where(self, keep: Array) -> Candidates:
        """Some of the candidates."""
        return Candidates(*(getattr(self, f.name)[keep] for f in fields(self)))


def search(system: System, table: SlicePlan, wish: Wish) -> SlicePlan:
    """``table`` with the splits that serve ``wish`` best.

    Raises:
        InvalidOptionError: No split agrees with the given ones.
    """
    found = candidates(table, system.num_tiles)
    given = dict(wish.splits)
    keep = np.ones(len(found.group_split), np.bool_)
    for name, value in given.items():
        keep &= getattr(found, name) == value
    if not keep.any():
        raise InvalidOptionError(
            f"no plan for {table.num_entries} x {table.output_size} on {counted(system.num_tiles, 'tile')} has "
            + ", ".join(f"{name} {value}" for name, value in given.items()),
            because="columns are cut evenly into pieces of whole words, and no part may be empty",
        )
    found = found.where(keep)
    costs = _Model(system, table, found, spread=wish.spread).costs(wish)
    best = _best(costs, wish, system)
    splits: dict[str, Any] = {f.name: int(getattr(found, f.name)[best]) for f in fields(found)}
    return replace(table, **splits, costs={name: float(value[best]) for name, value in costs.items()})


def _best(costs: dict[str, Array], wish: Wish, system: System) -> int:
    """Candidate of least cost whose temporary data fit, or the one of least memory."""
    memory, cycles = costs["bytes on the fullest tile"], costs["cycles"]
    # Cycles decide among those that fit; where none fits, memory does.
    room = system.ipu.tile.total_bytes
    fits = (costs["temporary bytes"] <= wish.proportion * room) & (memory <= room)
    first, second = memory, cycles
    if wish.aim in ("cycles", "cyclesWithTable") and fits.any():
        first, second = cycles, memory
    elif wish.aim == "storage" and fits.any():
        first = costs["table bytes"] + costs["exchange code bytes"]
    allowed = fits if fits.any() and wish.aim != "memory" else np.ones_like(fits)
    order = np.lexsort((second, first, ~allowed))
    return int(order[0])


def candidates(table: SlicePlan, num_tiles: int) -> Candidates:
    """Splits that leave no part empty and need no more tiles than there are."""
    columns = column_splits(table.output_size, table.dtype)
    rows = []
    for groups in _even_splits(table.num_groups, num_tiles):
        each = num_tiles // int(groups)
        for column in columns[columns <= each]:
            entry = _even_splits(table.num_entries, each // int(column))
            lookup = [_even_splits(max(table.num_lookups, 1), each // int(column * e)) for e in entry]
            counts = [len(found) for found in lookup]
            flat = np.concatenate(lookup)
            ones = np.ones_like(flat)
            rows.append(np.stack([ones * groups, np.repeat(entry, counts), ones * column, flat]))
    return Candidates(*np.concatenate(rows, axis=1))


def column_splits(columns: int, dtype: ElementType) -> Array:
    """Numbers of equal parts of ``columns``; parts are whole words of 4 bytes if a row is."""
    parts = np.arange(1, columns + 1, dtype=np.int64)
    parts = parts[columns % parts == 0]
    if columns * dtype.bytes % 4 == 0:
        parts = parts[columns // parts * dtype.bytes % 4 == 0]
    return np.asarray(parts)


def _even_splits(total: int, limit: int) -> Array:
    """Numbers of parts up to ``limit`` that ⌈total / parts⌉ elements each really fill."""
    parts = np.arange(1, min(total, limit) + 1, dtype=np.int64)
    # A number of parts counts if parts of ⌈total / parts⌉ need all of them: 4 parts of 9 are 3, 3, 3 and nothing.
    return np.asarray(parts[-(-total // -(-total // parts)) == parts])


class _Model:
    """Cycles and bytes of every candidate."""

    def __init__(self, system: System, table: SlicePlan, found: Candidates, *, spread: bool) -> None:
        self.ipu, self.exchange = system.ipu, system.ipu.exchange
        self.table, self.found = table, found
        self.bytes, self.spread = table.dtype.bytes, spread
        self.partial = table.partial_type or table.dtype
        self.groups = -(-table.num_groups // found.group_split)
        self.rows = -(-table.num_entries // found.entry_split)
        self.width = table.output_size // found.column_split
        self.num = -(-table.num_lookups // found.lookup_split)
        self.share = self.rows / table.num_entries if spread else np.ones(len(self.rows))
        # Workers share out entries, not indices: all indices of a row go to one.
        self.busiest = self.share / np.minimum(self.ipu.num_workers, self.rows) if spread else self.share
        self.per_tile = np.maximum(-(-table.num_lookups * table.num_groups // system.num_tiles), 32)

    def costs(self, wish: Wish) -> dict[str, Array]:
        found, part = self.found, self.rows * self.width
        costs: dict[str, Array] = {}
        zero = np.zeros_like(part)
        temporary, code = zero, zero
        if wish.for_slice:
            costs["slice cycles"], held, sent = self._slice()
            # Slicing and updating happen at different times, so they share room; code is there for both.
            temporary, code = np.maximum(temporary, held), code + sent
        if wish.for_update:
            costs["update cycles"], held, sent = self._update(wish.for_update)
            temporary, code = np.maximum(temporary, held), code + sent
        if wish.aim == "cyclesWithTable":
            costs["table cycles"] = self._received(
                part / found.lookup_split * self.bytes, np.zeros_like(part, np.bool_)
            )
        costs["cycles"] = sum(costs.values(), start=zero)
        costs["table bytes"] = self.groups * -(-self.rows // found.lookup_split) * self.width * self.bytes
        costs["temporary bytes"] = self.groups * temporary
        costs["exchange code bytes"] = self.groups * code * self.exchange.instruction_bytes
        costs["bytes on the fullest tile"] = sum(
            (costs[n] for n in ("table bytes", "temporary bytes", "exchange code bytes")), start=zero
        )
        return costs

    def _received(self, size: Array, is_paired: Array) -> Array:
        rate = np.where(is_paired, self.exchange.pair_bytes_per_cycle, self.exchange.bytes_per_cycle)
        return np.asarray(self.groups * size / rate)

    def _step(self, happens: Array) -> Array:
        """A superstep: synchronisation, way of the first word, launch."""
        start = self.exchange.phase_overhead_cycles + self.exchange.route_mean_cycles + self.ipu.sync.on_chip_cycles
        return np.asarray(happens * (start + self.ipu.launch.compute_set_cycles + self.ipu.launch.run_all_cycles))

    def _gathered(self) -> tuple[Array, Array, Array]:
        """Cycles, bytes and fragments of receiving the part of the table that is spread over its sharers."""
        split = self.found.lookup_split
        several = split > 1
        size = np.where(several, self.rows * self.width * self.bytes, 0)
        return self._received(size * (split - 1) / split, split % 2 == 0), size, np.where(several, split, 0)

    def _indices(self, num: Array) -> tuple[Array, Array]:
        """Receiving ``num`` indices: cycles and fragments."""
        same = np.broadcast_to(np.asarray(self.found.lookup_split == 1), np.shape(self.rows))
        return self._received(num * INDEX_BYTES, same), -(-num // self.per_tile)

    def _slice(self) -> tuple[Array, Array, Array]:
        """Cycles, bytes and fragments of slicing: each tile its own part, then one choice among all parts."""
        split, row = self.found.entry_split, self.width * self.bytes
        cycles, fragments = self._indices(self.num)
        table_cycles, table, table_fragments = self._gathered()
        dtype = self.table.dtype
        cycles = cycles + table_cycles + self._step(np.ones_like(self.rows))
        cycles = cycles + self.groups * slice_cycles(self.num, self.width, dtype, share=self.share)
        several = split > 1
        kept = -(-self.num // split)
        partial = np.where(several, self.num * row, 0)
        chosen = self._received(kept * (split * row + INDEX_BYTES), np.zeros_like(several))
        chosen = chosen + self.groups * slice_cycles(kept, self.width, dtype)
        cycles = cycles + np.where(several, chosen, 0) + self._step(several)
        first = self.num * INDEX_BYTES + table + partial
        second = np.where(several, partial + kept * (split * row + INDEX_BYTES), 0)
        own = kept * row
        return cycles, np.maximum(first, second) + own, fragments + table_fragments + np.where(several, split, 0)

    def _update(self, operation: str) -> tuple[Array, Array, Array]:
        """Cycles, bytes and fragments of an update."""
        split = self.found.lookup_split
        if operation == "none":
            num = np.full_like(self.rows, self.table.num_lookups)
            share = self.share / split if self.spread else self.share
            cycles, fragments = self._indices(num)
            size = num * self.width * self.bytes
            cycles = cycles + self._received(size, split % 2 == 0) + self._step(np.ones_like(num))
            cycles = cycles + self.groups * slice_cycles(num, self.width, self.table.dtype, share=share, update=True)
            return cycles, num * INDEX_BYTES + size, fragments + self.found.entry_split * split
        return self._accumulate()

    def _accumulate(self) -> tuple[Array, Array, Array]:
        split, several = self.found.lookup_split, self.found.lookup_split > 1
        cycles, fragments = self._indices(self.num)
        size = self.num * self.width * self.bytes
        dtype = self.table.dtype
        workers = self.ipu.num_workers
        direct = add_cycles(self.num, self.width, dtype, scaled=True, share=self.busiest)
        parted = add_cycles(self.num, self.width, self.partial, scaled=True, share=self.busiest)
        cycles = cycles + self._received(size, np.zeros_like(several)) + self._step(np.ones_like(split))
        cycles = cycles + self.groups * np.where(several, parted, direct)
        part = self.rows * self.width
        vectors = -(-part // (split * self.ipu.vector_width(self.partial)))
        sums = workers * (REDUCE_START_SLOTS + -(-vectors // workers) * (REDUCE_OUTPUT_SLOTS + split))
        fill = -(-part // self.ipu.vector_width(self.partial))
        joined = self._received(part * self.partial.bytes, np.zeros_like(several)) + self.groups * (sums + fill)
        cycles = cycles + np.where(several, joined, 0) + 2 * self._step(several)
        partials = np.where(several, part * self.partial.bytes, 0)
        held = np.maximum(self.num * INDEX_BYTES + size + partials, 2 * partials)
        return cycles, held, fragments + self.found.entry_split + np.where(several, split, 0)
