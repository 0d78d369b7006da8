"""The published tables of packing: deck 004, arXiv 2107.02027 and its public scripts (packing.md §2 and §5)."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "arXiv 2107.02027, table 1"
WIKIPEDIA, SQUAD = "wikipedia_512", "squad11_384"
"""Columns of the file of histograms."""
_METHODS = {"columns": "column generation"}


@dataclass(frozen=True)
class PublishedPacking:
    """A row of a published table.

    Attributes:
        column: The histogram, by its column.
        capacity: Tokens of a pack.
        depth: Most sequences of a pack; None for no limit.
        method: As :data:`abele.packing.METHODS` calls it.
        packs: Packs.
        factor: Sequences in a pack on average, as published; None where that was not.
        overhead: Share of cycles that packs take more than padded sequences.
        realised: Speed-up over padded sequences.
        source: Source of the publication.
    """

    column: str
    capacity: int
    depth: int | None
    method: str
    packs: int
    factor: float | None = None
    overhead: float | None = None
    realised: float | None = None
    source: str = SOURCE

    @property
    def title(self) -> str:
        """Method and depth."""
        limit = "no limit" if self.depth is None else f"depth {self.depth}"
        return f"{_METHODS.get(self.method, self.method.upper())}, {limit}"


def _wikipedia(depth: int | None, method: str, packs: int, *figures: float, source: str = SOURCE) -> PublishedPacking:
    factor, overhead, realised = figures or (None, None, None)
    share = None if overhead is None else overhead / 100
    return PublishedPacking(
        WIKIPEDIA, 512, depth, method, packs, factor, overhead=share, realised=realised, source=source
    )


WIKIPEDIA_ROWS = (
    _wikipedia(2, "spfhp", 10_101_683, 1.612, 4.283, 1.544),
    _wikipedia(3, "spfhp", 9_094_695, 1.790, 4.287, 1.716),
    _wikipedia(3, "nnlshp", 8_155_059, 1.996, 4.287, 1.913),
    _wikipedia(4, "spfhp", 8_658_996, 1.880, 4.294, 1.803),
    _wikipedia(8, "spfhp", 8_224_673, 1.979, 4.481, 1.895),
    _wikipedia(16, "spfhp", 8_166_708, 1.993, 4.477, 1.905),
    *(
        _wikipedia(depth, "lpfhp", packs, source="public scripts of arXiv 2107.02027, run once")
        for depth, packs in (
            (2, 10_099_081),
            (3, 9_090_154),
            (4, 8_657_119),
            (8, 8_207_569),
            (12, 8_149_619),
            (16, 8_140_006),
            (None, 8_138_483),
        )
    ),
)


def _squad(depth: int | None, method: str, packs: int, factor: float, source: str = SOURCE) -> PublishedPacking:
    return PublishedPacking(SQUAD, 384, depth, method, packs, factor, source=source)


SQUAD_ROWS = (
    _squad(2, "spfhp", 45_335, 1.955),
    _squad(3, "spfhp", 40_711, 2.177),
    _squad(3, "lpfhp", 40_631, 2.182),
    _squad(3, "nnlshp", 40_808, 2.172, "deck 004, packing SQuAD 1.1"),
)

GLUE_ROWS = tuple(
    PublishedPacking(f"glue_{name}_128", 128, None, "spfhp", packs, source="public scripts of arXiv 2107.02027")
    for name, packs in (("cola", 913), ("mrpc", 1606), ("stsb", 1367), ("rte", 1330), ("wnli", 192))
)

UNPADDING = {32: 1.5, 2048: 1.3}
"""Realised speed-up of un-padding by number of accelerators, read off a figure of the paper."""
