"""What makes a program fit that does not: found by compiling it so.

Some remedies leave the results and the user's program as they are: products and convolutions planned with a smaller
share of a tile's memory run in several parts after each other (serial splits). These are taken without asking. Others
are the user's to choose: recomputing activations, smaller micro-batches, another machine. Of these the first that fits
is named in the error. Each try is a compilation, so what the error itself shows to be hopeless is not tried: if all but
the temporaries of the fullest tile are too much for it already, no batch is small enough.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from abele.compiler import Executable
from abele.errors import AbeleError, OutOfMemoryError
from abele.parallel import Group, Network, Schedule
from abele.session.advice import DEFAULT_PROPORTION, Advice, advice, temporaries_matter
from abele.session.ends import Ends
from abele.session.settings import Settings

LOG = logging.getLogger("abele")

SHARES = (0.5, 0.25, 0.125)
"""Parts of the usual share of a tile's memory that products are planned with, most first."""
PARTS = (2, 4, 8)
"""Micro-batches that one is cut into."""
MARGIN = 1.1
"""How much too large the estimate for a smaller micro-batch may be for it to be tried: estimates err."""


@dataclass(frozen=True)
class NetworkCase:
    """What is compiled.

    Attributes:
        net: The network.
        schedule: How one run goes over its micro-batches.
        groups: Optimisers and the parameters that they update; None for inference.
        settings: The machine, and how programs run on the host.
    """

    net: Network
    schedule: Schedule
    groups: tuple[Group, ...] | None
    settings: Settings


Smaller = Callable[[int], NetworkCase | None]
"""The same with micro-batches cut into so many parts; None where they cannot be."""
Build = Callable[[NetworkCase], tuple[Ends, Executable]]
"""Compiles; raises :class:`OutOfMemoryError` where it does not fit."""


def fitted(case: NetworkCase, error: OutOfMemoryError, build: Build) -> tuple[NetworkCase, Ends, Executable]:
    """``case`` compiled with plans that need less memory.

    Raises:
        OutOfMemoryError: The first error, where none of them fits, or the user has chosen how much they may take.
    """
    if case.settings.memory_proportion is None and temporaries_matter(error) and _has_room(error):
        for changed in _shares(case):
            try:
                made = build(changed)
            except OutOfMemoryError:
                continue
            LOG.info(
                "%s: products and convolutions are planned with %g of a tile's memory instead of %g, so that it fits",
                case.settings.name,
                changed.settings.memory_proportion,
                DEFAULT_PROPORTION,
            )
            return (changed, *made)
    raise error


def found_advice(case: NetworkCase, error: OutOfMemoryError, build: Build, smaller: Smaller | None) -> Advice:
    """What the user can do about a program that does not fit; the first remedy that was tried and fits leads.

    What was tried in vain is not named.
    """
    known = advice(error, case.net, case.schedule, case.settings)
    if not _has_room(error):
        known = replace(known, batch=None)
    if case.settings.memory_proportion is None or not _has_room(error):
        known = replace(known, proportion=None)
    for said, changed in _remedies(case, error, known, smaller):
        # What happens once the advice is taken: plans that need less memory are tried then, too.
        chosen = changed.settings.memory_proportion is not None
        if any(_fits(c, build) for c in ((changed,) if chosen else (changed, *_shares(changed)))):
            return said
        known = _without(known, said.tried)
    return known


def _without(known: Advice, tried: str) -> Advice:
    """The advice without what was tried in vain; recomputing is named only where it helps."""
    match tried:
        case "proportion":
            return replace(known, proportion=None)
        case "batch":
            return replace(known, batch=None)
        case "machine":
            return replace(known, machine=None)
    return known


def _remedies(
    case: NetworkCase, error: OutOfMemoryError, known: Advice, smaller: Smaller | None
) -> Iterator[tuple[Advice, NetworkCase]]:
    """What may help, the least change first."""
    settings = case.settings
    if known.proportion is not None:
        for changed in _shares(case):
            share = changed.settings.memory_proportion
            yield replace(known, proportion=share, tried="proportion"), changed
    if case.groups is not None and not settings.recompute and temporaries_matter(error) and _has_room(error):
        again = replace(case, settings=replace(settings, recompute=True))
        yield replace(known, recompute=True, tried="recompute"), again
    for parts in PARTS if smaller is not None and known.batch is not None else ():
        if _has_room(error, parts) and (cut := smaller(parts) if smaller else None) is not None:
            micro_batches = parts * case.schedule.micro_batches
            yield replace(known, micro_batches=micro_batches, tried="batch"), cut
    if known.machine is not None:
        larger = replace(case, settings=replace(settings, system=known.machine))
        yield replace(known, tried="machine"), larger


def _shares(case: NetworkCase) -> list[NetworkCase]:
    usual = case.settings.memory_proportion or DEFAULT_PROPORTION
    return [replace(case, settings=replace(case.settings, memory_proportion=usual * part)) for part in SHARES]


def _has_room(error: OutOfMemoryError, parts: int = 0) -> bool:
    """True if the fullest tile might have room for a part of its temporaries; with 0 parts, for none of them."""
    if not error.tiles:
        return True
    worst = error.tiles[0]
    temporaries = worst.get("temporaries", 0)
    rest = worst.get("needed_bytes", temporaries) - temporaries
    return rest + (temporaries / parts if parts else 0) <= MARGIN * worst.get("available_bytes", 0)


def _fits(case: NetworkCase, build: Build) -> bool:
    try:
        build(case)
    except AbeleError:  # Too large as well, or not to be built so.
        return False
    return True
