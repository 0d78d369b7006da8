"""The shortest list of changes that makes a network fit, found by compiling it with them.

Each change is tried by itself. If none is enough, those that save something are added up, the one that saves most
first, until the program fits; then each is left out again if it fits without. That takes at most three compilations for
each change. All that is said was compiled: bytes of two changes together are not those of each added up, since less
temporary data may move the fullest tile elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from abele.errors import AbeleError, OutOfMemoryError
from abele.numerics import f16, f32
from abele.report.fit_changes import FitChanges, TriedChange
from abele.session.advice import DEFAULT_PROPORTION, batch_of
from abele.session.remedies import PARTS, SHARES, Build, Halved, NetworkCase, Smaller, repeated_layers, state_at

if TYPE_CHECKING:
    from abele.compiler import Executable
    from abele.session.host_interface import Ends


class Trials:
    """What was compiled, and what it needed.

    Args:
        case: The network as it is.
        error: Its error.
    """

    def __init__(self, case: NetworkCase, error: OutOfMemoryError) -> None:
        self.case = case
        self.bytes, self.available_bytes = _needs(error)
        self.tried: list[TriedChange] = []

    def watching(self, build: Build) -> Build:
        """``build``, which leaves what it needed here."""

        def watched(case: NetworkCase) -> tuple[Ends, Executable]:
            changes = tuple(changes_of(self.case, case))
            try:
                made = build(case)
            except OutOfMemoryError as error:
                self.tried.append(TriedChange(changes, _needs(error)[0], fits=False))
                raise
            self.tried.append(TriedChange(changes, made[1].memory.total.max(), fits=True))
            return made

        return watched

    def result(self) -> FitChanges:
        """What was tried; the list that fits is the first that does, with what of it was tried before."""
        fits = next((t for t in self.tried if t.fits), None)
        found: tuple[TriedChange, ...] = ()
        if fits is not None:
            parts = [t for t in self.tried if not t.fits and set(t.changes) < set(fits.changes)]
            found = (*sorted(parts, key=lambda t: len(t.changes)), fits)
        return FitChanges(self.bytes, self.available_bytes, fits=False, tried=tuple(self.tried), found=found)


def _needs(error: OutOfMemoryError) -> tuple[int, int]:
    """Bytes that the fullest tile needs, and that it has."""
    worst = error.tiles[0] if error.tiles else {}
    return int(worst.get("needed_bytes", 0)), int(worst.get("available_bytes", 0))


def changes_of(first: NetworkCase, changed: NetworkCase) -> Iterator[str]:
    """Changes from one case to another, in the words of a session's settings."""
    old, new = first.settings, changed.settings
    if new.shared_functions and not old.shared_functions:
        yield "the code of repeated layers once (shared_functions)"
    if new.memory_proportion != old.memory_proportion:
        before = old.memory_proportion or DEFAULT_PROPORTION
        yield f"memory_proportion {before:g} → {new.memory_proportion or DEFAULT_PROPORTION:g}"
    here, there = first.schedule.locations.optimiser, changed.schedule.locations.optimiser
    if there.sharded and not here.sharded:
        yield "replicas share the state of optimisers"
    if new.recompute and not old.recompute:
        yield "cheap activations computed again (recompute)"
    if here.on_chip and not there.on_chip:
        yield "the state of optimisers in streaming memory"
    if new.partials != old.partials:
        yield f"partial sums in {new.partials}"
    if batch_of(changed.net) != batch_of(first.net):
        yield f"micro-batch {batch_of(first.net)} → {batch_of(changed.net)}"
    if _has_f32(first) and not _has_f32(changed):
        yield "weights and inputs in half precision"
    if new.system != old.system:
        yield f"the machine {new.target().name}"


def _has_f32(case: NetworkCase) -> bool:
    return any(v.dtype == f32 for v in (*case.net.parameters, *case.net.inputs))


@dataclass(frozen=True)
class _Change:
    """A change that may be tried.

    Attributes:
        kind: Changes of one kind exclude each other.
        make: The case so changed; None where that cannot be.
    """

    kind: str
    make: Callable[[NetworkCase], NetworkCase | None]


def _changes(case: NetworkCase, smaller: Smaller | None, halved: Halved | None) -> list[_Change]:
    """Changes that a network admits, the least to its results first."""

    def settings(**given: object) -> Callable[[NetworkCase], NetworkCase]:
        return lambda c: replace(c, settings=replace(c.settings, **given))  # type: ignore[arg-type]

    def instead(made: NetworkCase | None, current: NetworkCase) -> NetworkCase | None:
        """Another network with the changes of the current one."""
        if made is None:
            return None
        schedule = replace(made.schedule, locations=current.schedule.locations)
        return replace(made, schedule=schedule, settings=current.settings)

    trained = case.groups is not None
    found = []
    if not case.settings.shared_functions and repeated_layers(case.net):
        found.append(_Change("shared", settings(shared_functions=True)))
    if case.settings.memory_proportion is None:
        found += [_Change("proportion", settings(memory_proportion=DEFAULT_PROPORTION * part)) for part in SHARES]
    if trained and case.schedule.replicas > 1 and case.schedule.ranks == 1:
        found.append(_Change("state", lambda c: state_at(c, sharded=True)))
    if trained and not case.settings.recompute:
        found.append(_Change("recompute", settings(recompute=True)))
    if trained and case.settings.target().dram is not None:
        found.append(_Change("state", lambda c: state_at(c, on_chip=False)))
    if case.settings.partials != "f16" and any(v.dtype == f16 for v in (*case.net.parameters, *case.net.inputs)):
        found.append(_Change("partials", settings(partials="f16")))
    if smaller is not None:
        found += [_Change("model", lambda c, parts=parts: instead(smaller(parts), c)) for parts in PARTS]  # type: ignore[misc]
    if halved is not None and _has_f32(case):
        found.append(_Change("model", lambda c: instead(halved(), c)))
    return found


def search(
    case: NetworkCase, build: Build, *, smaller: Smaller | None = None, halved: Halved | None = None
) -> FitChanges:
    """The shortest list of changes that makes a network fit; see the module.

    Args:
        case: The network as it is.
        build: Compiles it; raises :class:`~abele.errors.OutOfMemoryError` where it does not fit.
        smaller: Makes it with smaller micro-batches; None where none can.
        halved: Makes it with weights and inputs in half precision.
    """
    try:
        (_, executable) = build(case)
    except OutOfMemoryError as error:
        trials = Trials(case, error)
    else:
        memory = executable.memory
        return FitChanges(memory.total.max(), memory.available_bytes, fits=True)
    watched = trials.watching(build)

    known: dict[tuple[int, ...], TriedChange | None] = {}

    def tried(changes: list[_Change]) -> TriedChange | None:
        """Result of the case with some changes; None where it cannot be made so, or is the case as it was."""
        key = tuple(map(id, changes))
        if key not in known:
            known[key] = _compiled(case, changes, watched, trials)
        return known[key]

    alone = [(change, result) for change in _changes(case, smaller, halved) if (result := tried([change])) is not None]
    fitting = next((result for _, result in alone if result.fits), None)
    if fitting is not None:
        return replace(trials.result(), found=(fitting,))
    chosen: list[_Change] = []
    last = TriedChange((), trials.bytes, fits=False)
    for change, result in sorted(alone, key=lambda pair: pair[1].bytes):
        if result.bytes >= trials.bytes or any(each.kind == change.kind for each in chosen):
            continue
        together = tried([*chosen, change]) if chosen else result
        if together is None or together.bytes >= last.bytes:
            continue
        chosen, last = [*chosen, change], together
        if last.fits:
            break
    if not last.fits:
        return replace(trials.result(), found=())
    # Those that save least first: one that the others make needless goes.
    for change in list(reversed(chosen[:-1])):
        rest = [each for each in chosen if each is not change]
        without = tried(rest)
        if without is not None and without.fits:
            chosen = rest
    steps = [tried(chosen[:count]) for count in range(1, len(chosen) + 1)]
    return replace(trials.result(), found=tuple(step for step in steps if step is not None))


def _compiled(case: NetworkCase, changes: list[_Change], build: Build, trials: Trials) -> TriedChange | None:
    changed: NetworkCase | None = case
    for change in changes:
        changed = None if changed is None else change.make(changed)
    if changed is None or changed == case:
        return None
    before = len(trials.tried)
    # Too large as well, or not to be built so.
    with suppress(AbeleError):
        build(changed)
    return trials.tried[-1] if len(trials.tried) > before else None
