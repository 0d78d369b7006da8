"""Cycles of a decode step by what they go to, read off the report of its program.

Compute of a step of the program belongs to what its name says: products with weights, the rest of attention, the rest
of the model. What lies outside of the model chooses the token and counts. What moves and waits is counted apart:
exchange between tiles, sync, streams of the host and streaming memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from abele.report import Report

_KINDS = (
    ("products", ("/linear/", "quantised_linear")),
    ("attention", ("/attention/", "cached_attention")),
    ("elementwise", ("/model/",)),
)
"""Words in names of steps by what they are for; the first kind with one of them has the step."""
TITLES = {
    "attention": "attention over the cache",
    "products": "products with weights",
    "sampling": "choice of the token, bookkeeping",
    "elementwise": "norms, rotary and other compute",
    "exchange": "exchange between tiles",
    "sync": "sync",
    "host": "streams of the host",
    "streaming": "streaming memory",
}


@dataclass(frozen=True, kw_only=True)
class StepAccount:
    """Cycles of one decode step of all slots.

    Attributes:
        cycles: Cycles by what they go to, in the order of ``TITLES``.
        clock_hz: Cycles per second.
        machine: The machine, in words.
        fits: True if the program fits the tiles.
        fullest_bytes: Bytes on the fullest tile.
        room_bytes: Bytes that each tile has.
    """

    cycles: dict[str, int]
    clock_hz: float
    machine: str
    fits: bool
    fullest_bytes: int
    room_bytes: int

    @property
    def total(self) -> int:
        """Cycles of the step."""
        return sum(self.cycles.values())

    @property
    def seconds(self) -> float:
        """Time of the step."""
        return self.total / self.clock_hz

    def to_json(self) -> dict[str, Any]:
        """It as an object of JSON."""
        parts = [{"name": name, "title": TITLES[name], "cycles": count} for name, count in self.cycles.items()]
        return {
            "parts": parts,
            "cycles": self.total,
            "seconds": self.seconds,
            "machine": self.machine,
            "fits": self.fits,
            "fullest_bytes": self.fullest_bytes,
            "room_bytes": self.room_bytes,
        }


def step_account(report: Report, program: int = 0, steps_per_run: int = 1) -> StepAccount:
    """The account of a program's run.

    Args:
        report: Report of the compiled programs.
        program: Index of the decode program.
        steps_per_run: Decode steps in one run of it.
    """
    steps = report.steps.where("program", program)
    times = np.asarray(steps["executions"], np.int64)
    spent = {
        part: np.asarray(steps[f"{part}_cycles"], np.int64) * times for part in ("compute", "exchange", "sync", "host")
    }
    names, partners = (np.asarray([str(word) for word in steps[column]], str) for column in ("name", "partner"))
    is_remote = partners == "streaming memory"
    left, compute = ~is_remote, dict[str, int]()
    for kind, words in _KINDS:
        mine = left & _has_word(names, words)
        compute[kind] = int(spent["compute"][mine].sum())
        left &= ~mine
    cycles = {
        **compute,
        "sampling": int(spent["compute"][left].sum()),
        "exchange": int(spent["exchange"][~is_remote].sum()),
        "sync": int(spent["sync"][~is_remote].sum()),
        "host": int(spent["host"][~is_remote].sum()),
        "streaming": sum(int(part[is_remote].sum()) for part in spent.values()),
    }
    target, memory = report.target, report.memory
    return StepAccount(
        cycles={name: cycles[name] // steps_per_run for name in TITLES},
        clock_hz=float(target["clock_hz"]),
        machine=str(target["title"]),
        fits=bool((memory.by_tile <= memory.available_bytes).all()),
        fullest_bytes=int(memory.by_tile.max()),
        room_bytes=int(memory.available_bytes),
    )


def _has_word(names: np.ndarray[Any, np.dtype[np.str_]], words: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True for names with one of the words in them, bool[names]."""
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.zeros(len(names), bool)
    for word in words:
        found |= np.char.find(names, word) >= 0
    return found
