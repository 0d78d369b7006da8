"""Sessions of several processes: which they are, and that all of them begin alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import fields

import numpy as np

from abele.errors import RankDisagreementError
from abele.network import Optimiser, Schedule
from abele.runtime.ranks.group import Ranks
from abele.runtime.ranks.mpi import mpi_ranks
from abele.session.arrays import SharedArrays
from abele.session.compiled import Compiled


def joined_ranks(schedule: Schedule, ranks: Ranks | None) -> Ranks | None:
    """The processes that share the replicas of a schedule; None where it has one.

    Raises:
        RankDisagreementError: Another number of processes than the schedule says.
        MissingPackageError: There is no MPI.
    """
    if schedule.ranks == 1:
        return None
    found = ranks if ranks is not None else mpi_ranks()
    if found.size != schedule.ranks:
        raise RankDisagreementError(
            f"the schedule has {schedule.ranks} ranks, the job {found.size}",
            remedy=f"abele run --ranks {schedule.ranks} program.py",
        )
    return found


def check_alike(
    ranks: Ranks,
    compiled: Compiled,
    weights: SharedArrays,
    state: SharedArrays,
    optimisers: Sequence[Optimiser] | None,
) -> None:
    """Raise, in every process alike, unless all begin with the same program, numbers and weights. Collective.

    Raises:
        RankDisagreementError: One differs from the first; it and what differs are named.
    """
    mine = dict(_described(compiled, weights, state, optimisers))
    every = [json.loads(words) for words in ranks.gather(json.dumps(mine).encode(), "compare what ranks begin with")]
    for rank, theirs in enumerate(every):
        for what in dict.fromkeys((*every[0], *theirs)):
            first, other = every[0].get(what), theirs.get(what)
            if first != other:
                shown = f"rank 0 has {first or 'none'}, rank {rank} {other or 'none'}"
                raise RankDisagreementError(
                    f"rank {rank} disagrees with rank 0 about {what}",
                    because=shown,
                    remedy="give all ranks the same options, and the same seed or checkpoint",
                )


def _described(
    compiled: Compiled, weights: SharedArrays, state: SharedArrays, optimisers: Sequence[Optimiser] | None
) -> Iterator[tuple[str, str]]:
    """Properties that must be the same on all ranks: the name of each, and its value or digest."""
    schedule = compiled.schedule
    for field in fields(schedule):
        yield f"the option {field.name}", repr(getattr(schedule, field.name))
    settings = compiled.settings
    for name in ("mode", "partials", "memory_proportion", "exceptions", "stochastic_rounding", "synthetic_data"):
        yield f"the setting {name}", repr(getattr(settings, name))
    for end in compiled.ends.inputs:
        yield f"the input {end.name!r}", f"{end.dtype}{list(end.shape)}"
    for number, optimiser in enumerate(optimisers or ()):
        for field in fields(optimiser):
            value = getattr(optimiser, field.name)
            shown = repr(sorted(value)) if isinstance(value, frozenset) else repr(value)
            yield f"{field.name} of optimiser {number}", shown
    for kind, arrays, ends in (
        ("the parameter", weights, compiled.ends.weights),
        ("the optimiser state", state, compiled.ends.state),
    ):
        for name in sorted(ends):
            if name in arrays:
                values = np.ascontiguousarray(arrays[name])
                digest = hashlib.sha256(values.tobytes()).hexdigest()[:12]
                yield f"{kind} {name!r}", f"{values.dtype}{list(values.shape)} with digest {digest}"
    steps = compiled.executable.report.steps
    digest = hashlib.sha256(np.asarray(steps["cycles"]).tobytes()).hexdigest()[:12]
    yield "the program", f"{len(steps)} steps with digest {digest}"
