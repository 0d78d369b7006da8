"""Requests of a compute set's fields on tiles that do not hold the data in one piece, sorted into domains.

Tiles are found to want the same domain by domain (``audiences``), so domains should be as small as they can be. Pieces
of two variables never overlap nor join, so each variable could be one; those that the same fields touch are taken
together, which leaves a few. It matters where an operand is padded: the zeros at its border are a variable that both
operands of a convolution may touch, and that lies far from either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from abele.arrays import Bool, Int32, Int64
from abele.compiler.layout import Layout
from abele.compiler.multicast_groups import WantedRegions, is_shared
from abele.compiler.region_tiles import Residence
from abele.graph.intervals import distinct


class FieldWish(NamedTuple):
    """Regions of a field, or of a part of it, that a tile lacks in one piece.

    Attributes:
        residence: Tiles and pieces of its regions, or of those pieces of them that are in the domain.
        tile: Tile of each pair of a tile and a region that is not in one piece there, int32[n].
        region: Its region, int64[n]; pairs are in order of tile and region.
        alone: True for the regions that are one piece, bool[regions].
        domain: Number of the domain.
    """

    residence: Residence
    tile: Int32
    region: Int64
    alone: Bool
    domain: int = 0

    @property
    def wanted(self) -> WantedRegions:
        """Request in the form in which tiles are compared."""
        return WantedRegions(self.tile, self.region, self.domain)


def in_domains(wishes: Sequence[FieldWish], layout: Layout) -> list[FieldWish]:
    """Requests of fields, split by domain; all are in one where no two tiles want a region."""
    if not any(is_shared(wish.region) for wish in wishes):
        return list(wishes)
    touched = [_variables(wish.residence, layout) for wish in wishes]
    # Which fields touch a variable, as the bits of a number: variables of one number are a domain.
    fields: dict[int, int] = {}
    for number, (variables, _) in enumerate(touched):
        for variable in variables.tolist():
            fields[variable] = fields.get(variable, 0) | 1 << number
    domains = {bits: number for number, bits in enumerate(dict.fromkeys(fields.values()))}
    found: list[FieldWish] = []
    for wish, (variables, which) in zip(wishes, touched, strict=True):
        domain_of = np.array([domains[fields[v]] for v in variables.tolist()], dtype=np.int64)
        found += _parts(wish, distinct(domain_of), domain_of[which])
    return found


def _variables(residence: Residence, layout: Layout) -> tuple[Int64, Int64]:
    """Variables of pieces, ascending, and the number of each piece's; or 0 for all where it is one."""
    ends = layout.variables_at(np.array([residence.begin.min(), residence.begin.max()]))
    if ends[0] == ends[1]:
        return ends[:1], np.zeros(1, dtype=np.int64)
    each = layout.variables_at(residence.begin)
    variables = distinct(each)
    return variables, np.searchsorted(variables, each)


def _parts(wish: FieldWish, domains: Int64, domain: Int64) -> Iterator[FieldWish]:
    """Request domain by domain; ``domain`` is that of each piece."""
    if len(domains) == 1:
        yield wish._replace(domain=int(domains[0]))
        return
    residence = wish.residence
    row = np.repeat(np.arange(len(residence.home)), residence.counts)
    for number in domains.tolist():
        kept = np.flatnonzero(domain == number)
        count = np.bincount(row[kept], minlength=len(residence.home))
        part = replace(
            residence,
            ptr=np.concatenate([[0], np.cumsum(count)]),
            begin=residence.begin[kept],
            length=residence.length[kept],
            tile=residence.tile[kept],
            share=residence.share[kept],
        )
        some = np.flatnonzero(count[wish.region])
        if len(some):
            yield FieldWish(part, wish.tile[some], wish.region[some], wish.alone, number)
