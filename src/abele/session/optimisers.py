"""The host's side of optimisers: which numbers of a compiled one may be replaced.

The border to :mod:`abele.network`: rules, their numbers and their lowering are there; a session holds their state by
name, writes the numbers that live on the device, and refuses the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from abele.errors import InvalidOptionError
from abele.network import Optimiser


def check_optimisers(compiled: Sequence[Optimiser], given: Sequence[Optimiser]) -> None:
    """Raise unless optimisers differ from the compiled ones only in variable numbers.

    Raises:
        InvalidOptionError: Another number of them, another rule, or a constant that changed.
    """
    if len(given) != len(compiled):
        raise InvalidOptionError(
            f"{len(given)} optimisers for a network that was compiled with {len(compiled)} groups of parameters",
            remedy="one for each group, in order",
        )
    for before, after in zip(compiled, given, strict=True):
        before.check_replacement(after)
