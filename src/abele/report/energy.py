"""Energy of one step: of arithmetic and of traffic, each with its range, its source and its confidence.

Amounts come from the report: operations as library calls count them (padding left out), bytes as exchanges, streams
and links move them, and distinct bytes that supersteps read and write of variables. Energies of one of each are those
of the chip (:class:`abele.machine.Energy`), of which the least and the most that they may be are given too. What nobody
published is marked as guessed, and what cannot be told is left out: leakage, clocks, fans, power supplies, hosts. The
rated power of the machine over the time of the step stands beside the sum, as a bound that a step on silicon keeps to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from abele.errors import FileFormatError, MachineError
from abele.machine import CONFIDENCE, MEMORY_KINDS, Energy, Source
from abele.report.relations import sums_of
from abele.report.schema import ARITHMETIC
from abele.report.text import percent_text, seconds_text
from abele.words import counted

if TYPE_CHECKING:
    from abele.report.report import Report


# The energy of a step as text.

_PREFIXES = (
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
    (1.0, ""),
    (1e-3, "m"),
    (1e-6, "µ"),
    (1e-9, "n"),
    (1e-12, "p"),
)


def amount_text(amount: float, unit: str) -> str:
    """An amount with three digits and a prefix of its unit: ``1.25 mJ``."""
    if not amount:
        return f"0 {unit}"
    size, prefix = next((p for p in _PREFIXES if abs(amount) >= p[0] * 0.9995), _PREFIXES[-1])
    return f"{amount / size:.3g} {prefix}{unit}"


def range_text(joules: Range, unit: str = "J") -> str:
    """A likely amount with its bounds: ``1.25 mJ (0.9 mJ to 3.1 mJ)``."""
    least, likely, most = (amount_text(each, unit) for each in joules)
    return f"{likely} ({least} to {most})"


def energy_line(energy: StepEnergy) -> str:
    """The energy of a step in a line, for summaries."""
    each = energy.joules_per_sample
    per_sample = "" if each is None else f" · {amount_text(each.likely, 'J')} for each sample"
    return f"{range_text(energy.joules)} dynamic{per_sample}"


def energy_text(energy: StepEnergy) -> str:
    """Energy of a step, term by term, with bounds, sources and unknowns."""
    rows = [("joules", "share", "least", "most", "amount", "each", "", "of", "source")]
    total = energy.joules.likely
    for term in sorted(energy.terms, key=lambda term: -term.joules.likely):
        least, likely, most = (amount_text(each, "J") for each in term.joules)
        share = percent_text(term.joules.likely / total if total else 0.0)
        amount, each = amount_text(term.amount, term.unit), amount_text(term.joules_each.likely, f"J/{term.unit}")
        rows.append((likely, share, least, most, amount, each, term.source.confidence, term.name, term.source.text))
    least, likely, most = (amount_text(each, "J") for each in energy.joules)
    rows.append((likely, "", least, most, "", "", "", "dynamic energy of one step", ""))
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = ">>>>>>><<"
    lines = ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(row, sides, width, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", *_beside(energy)])


def _beside(energy: StepEnergy) -> list[str]:
    marks = dict.fromkeys([*(term.source.confidence for term in energy.terms), energy.rated_source.confidence])
    each = energy.joules_per_sample
    ipus, watts = counted(energy.num_ipus, "IPU"), amount_text(energy.rated_watts, "W")
    lines = [] if each is None else [f"for each sample: {range_text(each)}"]
    if energy.seconds:
        lines.append(f"mean power: {range_text(energy.watts, 'W')} over {seconds_text(energy.seconds)} on {ipus}")
        lines.append(
            f"at rated power: {amount_text(energy.rated_joules, 'J')}, {ipus} of {watts} with what is around them "
            f"({energy.rated_source.confidence}: {energy.rated_source.text})"
        )
    if energy.watts.most > energy.rated_watts * energy.num_ipus:
        lines.append("the most is more than the rated power: synthetic data at full rate, or guessed energies too high")
    if energy.touched_bytes:
        others = " · ".join(f"{name} {amount_text(joules, 'J')}" for name, joules in energy.joules_from.items())
        moved = amount_text(energy.touched_bytes, "B")
        lines.append(f"the {moved} of variables read and written, from other memories: {others}")
    if energy.uncounted_proportion:
        lines.append(
            f"not in it: arithmetic of operations that nobody counts, {percent_text(energy.uncounted_proportion)} of "
            "the compute cycles"
        )
    lines.append("not in it: leakage, clocks, instructions, fans, power supplies and the host's processors")
    lines.append(" · ".join(f"{mark}: {CONFIDENCE[mark]}" for mark in sorted(marks)))
    return lines


_PRODUCTS = {
    "f8": "f8_joules_per_flop",
    "f16": "f16_joules_per_flop",
    "f16 to f32": "f16_f32_joules_per_flop",
    "f32": "f32_joules_per_flop",
}
"""Constant of products, by their names in the ops table."""
_DATA = ("least_data_proportion", "most_data_proportion")
_WAY = ("wire_joules_per_byte_millimetre", "exchange_millimetres")
_LESS_SURE = "SDMCGU"
"""Confidences, each less sure than the one before."""


class Range(NamedTuple):
    """An energy in joules that is not known better than between two bounds."""

    least: float
    likely: float
    most: float

    def __mul__(self, amount: float) -> Range:  # type: ignore[override]
        return Range(*(amount * each for each in self[:]))


@dataclass(frozen=True)
class EnergyTerm:
    """Energy of one kind of work in one step, on all replicas.

    Attributes:
        name: Kind of work.
        amount: Amount of work.
        unit: ``flop`` or ``B``.
        joules_each: Energy of one, in J.
        source: Source of the likely energy; its confidence is one of :data:`abele.machine.CONFIDENCE`.
    """

    name: str
    amount: float
    unit: str
    joules_each: Range
    source: Source

    @property
    def joules(self) -> Range:
        """Energy of all of it, in J."""
        return self.joules_each * self.amount


@dataclass(frozen=True)
class StepEnergy:
    """Dynamic energy of one step of program 0, on all replicas.

    Attributes:
        terms: Energy by kind of work.
        seconds: Modelled time of a step.
        samples: Samples of a step; None when they are not known.
        num_ipus: IPUs of all replicas.
        rated_watts: Rated power of an IPU with its share of the machine.
        rated_source: Source of that power.
        uncounted_proportion: Part of the compute cycles in operations whose arithmetic nobody counted.
        touched_bytes: Bytes that supersteps read and write of variables in a step.
    """

    terms: tuple[EnergyTerm, ...]
    seconds: float
    samples: float | None
    num_ipus: int
    rated_watts: float
    rated_source: Source
    uncounted_proportion: float
    touched_bytes: float

    @property
    def joules(self) -> Range:
        """Dynamic energy of a step, in J."""
        sums = [sum(term.joules[k] for term in self.terms) for k in range(3)]
        return Range(*sums)

    @property
    def joules_per_sample(self) -> Range | None:
        """The same for each sample, or None when samples are not known."""
        return self.joules * (1 / self.samples) if self.samples else None

    @property
    def watts(self) -> Range:
        """Mean dynamic power of all IPUs."""
        return self.joules * (1 / self.seconds) if self.seconds else Range(0.0, 0.0, 0.0)

    @property
    def rated_joules(self) -> float:
        """Energy of the machine at its rated power in the time of a step."""
        return self.rated_watts * self.num_ipus * self.seconds

    @property
    def joules_from(self) -> dict[str, float]:
        """Energy that the tile memory traffic of a step would take in other memories, by name."""
        return {kind.name: kind.joules_per_byte * self.touched_bytes for kind in MEMORY_KINDS if kind.name != "SRAM"}

    def to_json(self) -> dict[str, Any]:
        """All as plain data; energies in J as ``{least, likely, most}``."""
        each = self.joules_per_sample
        return {
            "terms": [
                {
                    "name": term.name,
                    "amount": term.amount,
                    "unit": term.unit,
                    "joules_each": term.joules_each._asdict(),
                    "joules": term.joules._asdict(),
                    "source": asdict(term.source) | {"calibrated_on": list(term.source.calibrated_on)},
                }
                for term in self.terms
            ],
            "joules": self.joules._asdict(),
            "joules_per_sample": None if each is None else each._asdict(),
            "watts": self.watts._asdict(),
            "seconds": self.seconds,
            "samples": self.samples,
            "num_ipus": self.num_ipus,
            "rated_watts": self.rated_watts,
            "rated_source": self.rated_source.written(),
            "rated_joules": self.rated_joules,
            "uncounted_proportion": self.uncounted_proportion,
            "touched_bytes": self.touched_bytes,
            "joules_from": self.joules_from,
        }

    def text(self) -> str:
        """Table of a step's energy, and the source of each figure."""
        return energy_text(self)

    def __str__(self) -> str:
        return self.text()


def energy_of(report: Report) -> StepEnergy | None:
    """The energy of one step of program 0; None where the report does not know the energies of its machine.

    Raises:
        FileFormatError: They are damaged.
    """
    table = report.meta.get("energy")
    if table is None:
        return None
    energy = _energies(table)
    amounts, target = _Amounts(report), report.target
    steps, replicas = report.steps_per_run, int(target.get("num_replicas", 1) or 1)
    samples = report.meta.get("samples_per_run")
    return StepEnergy(
        terms=tuple(_terms(amounts, energy, replicas / steps)),
        seconds=report.seconds(report.step_cycles.total),
        samples=float(samples) / steps if samples else None,
        num_ipus=int(target.get("num_ipus", 1)) * replicas,
        rated_watts=energy.rated_watts,
        rated_source=energy.source_of("rated_watts"),
        uncounted_proportion=amounts.uncounted_proportion,
        touched_bytes=float(amounts.touched.sum()) * replicas / steps,
    )


def _energies(table: object) -> Energy:
    try:
        if isinstance(table, Mapping):
            return Energy.of(table)
    except MachineError as error:
        raise FileFormatError(f"the report's energies are damaged: {error.message}") from error
    raise FileFormatError("the report's energies are damaged: no table")


def _terms(amounts: _Amounts, energy: Energy, times: float) -> Iterator[EnergyTerm]:
    """Terms of a step's energy; ``times`` turns a run of one replica into a step of all."""
    low, high = energy.least_data_proportion, energy.most_data_proportion

    def term(name: str, amount: float, unit: str, each: Range, *constants: str) -> Iterator[EnergyTerm]:
        if amount:
            yield EnergyTerm(name, amount, unit, each, _combined([energy.source_of(c) for c in constants]))

    for word in ARITHMETIC[1:]:
        flops = amounts.flops(word) * times
        if word in _PRODUCTS:
            synthetic = float(getattr(energy, _PRODUCTS[word]))
            each = Range(low * synthetic, (low + high) / 2 * synthetic, synthetic)
            yield from term(f"products of {word}", flops, "flop", each, _PRODUCTS[word], *_DATA)
        else:
            least, most = energy.least_vector_joules_per_flop, energy.most_vector_joules_per_flop
            each = Range(least, energy.vector_joules_per_flop, most)
            yield from term(f"arithmetic on {word}", flops, "flop", each, "vector_joules_per_flop")
    sram = Range(0.0, energy.sram_joules_per_byte, energy.most_sram_joules_per_byte)
    yield from term("tile memory", amounts.tile_bytes * times, "B", sram, "sram_joules_per_byte")
    wire = energy.wire_joules_per_byte_millimetre * energy.exchange_millimetres
    exchange = Range(0.0, wire, energy.most_exchange_joules_per_byte)
    yield from term("exchange", amounts.crossing_bytes * times, "B", exchange, *_WAY)
    link = Range(energy.least_link_joules_per_byte, energy.link_joules_per_byte, energy.most_link_joules_per_byte)
    yield from term("links between IPUs", amounts.link_bytes(times), "B", link, "link_joules_per_byte")
    away = Range(*(part + energy.dram_joules_per_byte for part in link))
    for partner in ("streaming memory", "host"):
        moved = amounts.bytes_with(partner) * times
        yield from term(f"{partner}, with its link", moved, "B", away, "dram_joules_per_byte", "link_joules_per_byte")


def _combined(found: list[Source]) -> Source:
    """The source of a figure that several constants make: no surer than the least sure of them."""
    texts = dict.fromkeys(source.text for source in found)
    unsure = max((source.confidence for source in found), key=_LESS_SURE.index)
    return Source(" · ".join(texts), unsure if len(found) == 1 else max(unsure, "D", key=_LESS_SURE.index))


class _Amounts:
    """Amounts of work in a run of program 0 on one replica."""

    def __init__(self, report: Report) -> None:
        steps = report.steps
        self._report = report
        self._mine = np.asarray(steps["program"] == 0)
        self._times = steps["executions"].astype(np.float64) * self._mine
        self._op = steps["op"].astype(np.int64)
        self._partner = np.asarray(steps["partner"])

    @property
    def _is_run(self) -> np.ndarray:
        """True for the operations that program 0 runs, bool[ops]."""
        found = np.zeros(len(self._report.ops), dtype=bool)
        found[self._op[self._mine & (self._op >= 0)]] = True
        return found

    def flops(self, arithmetic: str) -> float:
        """Operations of a kind."""
        ops = self._report.ops
        return float(ops["flops"][self._is_run & np.asarray(ops["arithmetic"] == arithmetic)].sum())

    @property
    def uncounted_proportion(self) -> float:
        """Part of the compute cycles of steps whose operation has vertices of floats and no count of operations."""
        cycles = self._report.steps["compute_cycles"] * self._times
        ops = self._report.ops
        unknown = np.append(np.asarray((ops["flops"] == 0) & (ops["arithmetic"] != "")), False)
        return float(cycles[unknown[self._op]].sum() / max(cycles.sum(), 1.0))

    @property
    def touched(self) -> np.ndarray:
        """Bytes that supersteps read and write of variables, by step, float64[steps]."""
        report, superstep = self._report, self._report.steps["superstep"].astype(np.int64)
        found = np.zeros(len(superstep))
        table = report.superstep_variables
        if not len(superstep) or not len(table):
            return found
        moved = table["read_bytes"].astype(np.float64) + table["written_bytes"]
        # Rows of the exchange, the copies and the vertices of one superstep follow each other: the first counts.
        first = np.ones(len(superstep), dtype=bool)
        first[1:] = (superstep[1:] != superstep[:-1]) | (self._op[1:] != self._op[:-1])
        rows = first & (superstep >= 0)
        found[rows] = sums_of(table, "superstep", moved, superstep[rows]) * self._times[rows]
        return found

    @property
    def tile_bytes(self) -> float:
        """Bytes read and written in tile memory, but for products, whose figure has them, and with exchanges."""
        product = np.append(np.isin(self._report.ops["arithmetic"], tuple(_PRODUCTS)), False)
        return float(self.touched[~product[self._op]].sum()) + self.crossing_bytes + self.exchanged_bytes

    @property
    def exchanged_bytes(self) -> float:
        """Bytes that tiles receive from tiles, or exchange with memory off the chip."""
        return float(np.dot(self._report.steps["exchanged_bytes"], self._times))

    @property
    def crossing_bytes(self) -> float:
        """Bytes that cross a die: those that several tiles receive leave once."""
        tiles = self._report.program_tiles.where("program", 0)
        sent = float(np.dot(tiles["sent_bytes"].astype(np.float64), tiles["num_tiles"]))
        return sent + self.bytes_with("host") + self.bytes_with("streaming memory")

    def bytes_with(self, partner: str) -> float:
        """Bytes between tiles and other parts of the system."""
        moved = self._report.steps["exchanged_bytes"] * self._times
        return float(moved[self._partner == partner].sum())

    def link_bytes(self, times: float) -> float:
        """Bytes over links in one step of all replicas, each link on a byte's way counted.

        What replicas exchange is known of the whole machine at once; the rest of one replica.

        Args:
            times: Factor from a run of one replica to a step of all.
        """
        report, links = self._report, self._report.phase_links
        if not len(links):
            return 0.0
        moved = sums_of(links, "phase", links["bytes"], report.steps["phase"]) * self._times
        whole = self._partner == "replicas"
        return float(moved[~whole].sum()) * times + float(moved[whole].sum()) / report.steps_per_run
