"""Remedies for a program that does not fit, found by compiling it with each.

Some remedies leave the results and the user's program as they are: repeated layers whose code the machine holds once,
and products and convolutions planned with a smaller share of a tile's memory, which run in several parts after each
other (serial splits). These are taken without asking, the second beside the first where that came closer. Others are
the user's to choose: where the state of optimisers lies, recomputing activations, partial sums in f16, smaller
micro-batches, half precision, another machine. Of these the first that fits leads the error. Each try is a compilation,
so what the error itself shows to be hopeless is not tried: if all but the temporaries of the fullest tile are too much
for it already, no batch is small enough. A tile that has 638,976 B and needs 702,464 B, 512,000 B of them temporaries,
may fit with smaller micro-batches; one with 60,000 B of temporaries cannot, since 642,464 B remain.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from abele.compiler import Executable
from abele.distribution.shared_functions import SharedFunctions
from abele.errors import AbeleError, OutOfMemoryError
from abele.network import Group, Network, Schedule, TensorLocation
from abele.network.locations import ON_CHIP
from abele.network.passes.outline import Outline
from abele.numerics import f16
from abele.session.advice import DEFAULT_PROPORTION, Advice, advice, temporaries_matter
from abele.session.host_interface import Ends
from abele.session.settings import Settings

LOG = logging.getLogger("abele")

SHARES = (0.5, 0.25, 0.125)
"""Parts of the usual share of a tile's memory that products are planned with, most first."""
PARTS = (2, 4, 8)
"""Micro-batches that one is cut into."""
_OF_CODE = ("vertex_state", "exchange_code", "control_code")
"""Parts of a tile's memory that a layer's code takes, and not its data."""
MARGIN = 1.1
"""Ratio to the room up to which an estimate for a smaller micro-batch is still tried: estimates err."""


@dataclass(frozen=True)
class NetworkCase:
    """A network to compile, with its schedule and settings.

    Attributes:
        net: The network.
        schedule: Schedule of one run over its micro-batches.
        groups: Optimisers and the parameters that they update; None for inference.
        settings: The machine, and how programs run on the host.
    """

    net: Network
    schedule: Schedule
    groups: tuple[Group, ...] | None
    settings: Settings


Smaller = Callable[[int], NetworkCase | None]
"""Function that gives the case with micro-batches cut into so many parts; None where they cannot be."""
Halved = Callable[[], NetworkCase]
"""Function that gives the case with weights and inputs in half precision."""
Build = Callable[[NetworkCase], tuple[Ends, Executable]]
"""Compiles; raises :class:`OutOfMemoryError` where it does not fit."""


@dataclass(frozen=True)
class Attempt:
    """Result of compiling a network in one way.

    Attributes:
        case: The network that was compiled.
        made: The program; None where it does not fit.
        error: Distance from fitting; None where it fits.
    """

    case: NetworkCase
    made: tuple[Ends, Executable] | None
    error: OutOfMemoryError | None


def layers_shared(case: NetworkCase, error: OutOfMemoryError, build: Build) -> Attempt:
    """``case`` with one copy of the code of repeated layers; as it was, where that is no option or brings nothing."""
    before = Attempt(case, None, error)
    if case.settings.shared_functions or not _code_matters(error) or not repeated_layers(case.net):
        return before
    changed = replace(case, settings=replace(case.settings, shared_functions=True))
    try:
        made = build(changed)
    except OutOfMemoryError as other:
        return Attempt(changed, None, other) if _needed(other) < _needed(error) else before
    LOG.info("%s: repeated layers are functions of which the machine has one copy, so that it fits", case.settings.name)
    return Attempt(changed, made, None)


def repeated_layers(net: Network) -> bool:
    """True if a network has stretches that may be functions."""
    return bool(SharedFunctions.of(Outline().run(net).ops).common)


def fitted(case: NetworkCase, error: OutOfMemoryError, build: Build) -> tuple[NetworkCase, Ends, Executable]:
    """``case`` compiled with plans that need less memory.

    Raises:
        OutOfMemoryError: The first error, where none of them fits, or the user has chosen how much they may take.
    """
    if _may_plan_smaller(case, error):
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


@dataclass(frozen=True)
class Remedy:
    """Something that may help.

    Attributes:
        field: The field of the advice that is about it.
        said: Fields of the advice where it helps.
        in_vain: Fields of the advice where it does not.
        make: The network so changed; None where it cannot be changed so.
    """

    field: str
    said: Mapping[str, Any]
    in_vain: Mapping[str, Any]
    make: Callable[[], NetworkCase | None]


def found_advice(
    case: NetworkCase,
    error: OutOfMemoryError,
    build: Build,
    smaller: Smaller | None = None,
    halved: Halved | None = None,
) -> Advice:
    """Advice for a program that does not fit; the first remedy that was tried and fits leads.

    What was tried in vain is in :attr:`Advice.in_vain` alone.
    """
    known = replace(_worth_saying(case, error), in_vain=_tried_before(case, error))
    if known.halve:
        known = replace(known, why_not_halved="the front end makes no network of f16" if halved is None else "")
    for remedy in _remedies(case, error, known, smaller=smaller, halved=halved):
        try:
            changed = remedy.make()
        except AbeleError as failed:
            # A model may say its batch or its types in its code, and not be recorded with others.
            fails = {"why_not_halved": failed.message} if remedy.field == "halve" else remedy.in_vain
            known = replace(known, **fails)
            continue
        if changed is None:
            known = replace(known, **remedy.in_vain)
            continue
        if _fits_somehow(changed, build):
            untried = known.halve and not known.why_not_halved and remedy.field not in ("halve", "machine")
            why = "what is said first fits" if untried else known.why_not_halved
            return replace(known, tried=remedy.field, why_not_halved=why, **remedy.said)
        in_vain = dict.fromkeys((*known.in_vain, IN_VAIN[remedy.field].format(**remedy.said)))
        known = replace(known, **remedy.in_vain, in_vain=tuple(in_vain))
    return known


IN_VAIN = {
    "share_state": "replicas that share the state of optimisers",
    "state_off_chip": "the state of optimisers in streaming memory",
    "recompute": "cheap activations computed again",
    "partials": "partial sums in f16",
    "batch": "smaller micro-batches",
    "proportion": "less memory for products",
    "halve": "half precision",
    "machine": "a machine with more memory",
}
"""Names of remedies in errors, by field."""


def _tried_before(case: NetworkCase, error: OutOfMemoryError) -> tuple[str, ...]:
    """Remedies that were tried without asking."""
    shared = ["the code of repeated layers held once"] if case.settings.shared_functions else []
    return (*shared, *([IN_VAIN["proportion"]] if _may_plan_smaller(case, error) else []))


def _may_plan_smaller(case: NetworkCase, error: OutOfMemoryError) -> bool:
    """True if products planned with less memory may help, and nobody has chosen how much they take."""
    return case.settings.memory_proportion is None and temporaries_matter(error) and _has_room(error)


def _worth_saying(case: NetworkCase, error: OutOfMemoryError) -> Advice:
    """Advice before any trial, without remedies that the error shows to be hopeless."""
    known = advice(error, case.net, case.schedule, case.settings)
    if not (_has_room(error, margin=1) or any(_has_room(error, parts) for parts in PARTS)):
        known = replace(known, batch=None)  # Neither to be tried nor known to help.
    if case.settings.memory_proportion is None or not _has_room(error):
        known = replace(known, proportion=None)
    return replace(known, halve=known.halve and _has_room_for_half(error))


def _remedies(
    case: NetworkCase, error: OutOfMemoryError, known: Advice, *, smaller: Smaller | None, halved: Halved | None
) -> Iterator[Remedy]:
    """Remedies to try, the least change first: to results, then to the machine."""
    # Smaller plans change no result but by rounding.
    settings = case.settings
    if known.proportion is not None:
        for changed in _shares(case):
            said = {"proportion": changed.settings.memory_proportion}
            yield Remedy("proportion", said, {"proportion": None}, partial(_as_it_is, changed))
    # State shared by replicas, and activations computed again: the same results for more cycles.
    if case.schedule.replicas > 1 and case.schedule.ranks == 1 and _state_matters(case, error):
        yield Remedy("share_state", {"share_state": True}, {}, partial(_as_it_is, state_at(case, sharded=True)))
    if case.groups is not None and not settings.recompute and temporaries_matter(error) and _has_room(error):
        again = replace(case, settings=replace(settings, recompute=True))
        yield Remedy("recompute", {"recompute": True}, {}, partial(_as_it_is, again))
    if settings.target().dram is not None and _state_matters(case, error):
        yield Remedy("state_off_chip", {"state_off_chip": True}, {}, partial(_as_it_is, state_at(case, on_chip=False)))
    # From here on results change: partials in f16, then smaller micro-batches, then half precision.
    halves = any(v.dtype == f16 for v in (*case.net.parameters, *case.net.inputs))
    if halves and settings.partials != "f16" and temporaries_matter(error) and _has_room(error):
        narrow = replace(case, settings=replace(settings, partials="f16"))
        yield Remedy("partials", {"partials": True}, {}, partial(_as_it_is, narrow))
    for parts in PARTS if smaller is not None and known.batch is not None else ():
        if smaller is not None and _has_room(error, parts):
            said = {"batch": known.batch, "micro_batches": parts * case.schedule.micro_batches}
            yield Remedy("batch", said, {"batch": None}, partial(smaller, parts))
    if known.halve and halved is not None:
        yield Remedy("halve", {}, {"halve": False}, halved)
    # Another machine changes no result, but is not the user's.
    if known.machine is not None:
        larger = replace(case, settings=replace(settings, system=known.machine))
        yield Remedy("machine", {}, {"machine": None}, partial(_as_it_is, larger))


def _state_matters(case: NetworkCase, error: OutOfMemoryError) -> bool:
    """True if the state of optimisers takes about as much of a tile as the fullest one lacks, and lies as usual."""
    if case.groups is None or case.schedule.locations.optimiser != ON_CHIP:
        return False
    state = sum(
        math.prod(value.shape) * slot.dtype.bytes
        for group in case.groups
        for slot in group.optimiser.slots().values()
        for value in group.parameters
    )
    worst = error.tiles[0] if error.tiles else {}
    tiles = case.settings.target().ipu.num_tiles * case.net.num_ipus
    return MARGIN * state / tiles >= _needed(error) - worst.get("available_bytes", 0)


def state_at(case: NetworkCase, **where: bool) -> NetworkCase:
    """Case with the state of optimisers elsewhere."""
    locations = replace(case.schedule.locations, optimiser=TensorLocation(**where))
    return replace(case, schedule=replace(case.schedule, locations=locations))


def _as_it_is(case: NetworkCase) -> NetworkCase:
    return case


def _fits_somehow(case: NetworkCase, build: Build) -> bool:
    """True if ``case`` fits as it would once the advice is taken: plans that need less memory are tried then, too."""
    chosen = case.settings.memory_proportion is not None
    return any(_fits(c, build) for c in ((case,) if chosen else (case, *_shares(case))))


def _shares(case: NetworkCase) -> list[NetworkCase]:
    usual = case.settings.memory_proportion or DEFAULT_PROPORTION
    return [replace(case, settings=replace(case.settings, memory_proportion=usual * part)) for part in SHARES]


def _has_room(error: OutOfMemoryError, parts: int = 0, margin: float = MARGIN) -> bool:
    """True if the fullest tile might have room for a part of its temporaries; with 0 parts, for none of them."""
    if not error.tiles:
        return True
    worst = error.tiles[0]
    temporaries = worst.get("temporaries", 0)
    rest = _needed(error) - temporaries
    return rest + (temporaries / parts if parts else 0) <= margin * worst.get("available_bytes", 0)


def _needed(error: OutOfMemoryError) -> int:
    """Bytes that the fullest tile needs."""
    worst = error.tiles[0] if error.tiles else {}
    return worst.get("needed_bytes", worst.get("temporaries", 0))


def _code_matters(error: OutOfMemoryError) -> bool:
    """True if the fullest tile has more in code, and what goes with it, than it lacks."""
    worst = error.tiles[0] if error.tiles else {}
    return sum(worst.get(name, 0) for name in _OF_CODE) > _needed(error) - worst.get("available_bytes", 0)


def _has_room_for_half(error: OutOfMemoryError) -> bool:
    """True if the fullest tile might have room for its data in half precision: all else stays as it is."""
    if not error.tiles:
        return True
    worst = error.tiles[0]
    data = worst.get("variables", 0) + worst.get("temporaries", 0)
    return worst.get("needed_bytes", data) - data / 2 <= MARGIN * worst.get("available_bytes", 0)


def _fits(case: NetworkCase, build: Build) -> bool:
    try:
        build(case)
    except AbeleError:  # Too large as well, or not to be built so.
        return False
    return True
