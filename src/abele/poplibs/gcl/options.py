"""Options of collectives."""

from __future__ import annotations

from typing import Any

from abele.errors import UnsupportedOpError
from abele.poplibs.poputil.options import Options, choice, flag, integer, read_options

COLLECTIVE_OPTIONS = {
    "method": choice(
        "auto",
        "clockwise_ring",
        "anticlockwise_ring",
        "bidirectional_ring_pair",
        "meet_in_middle_ring",
        "quad_directional_ring",
    ),
    "useReplicatedImplementation": flag(True),
    "maxBytesPerTile": integer(35000, 1),
    "topology": choice("auto", "rung-ring-2", "rung-ring-4", "rung-ring-8", "peripheral-ring"),
    "useSynclessCollectives": choice("auto", "true", "false", "hybrid"),
    "link": choice("auto-link", "ipu-link", "gw-link"),
}
"""Options of collectives, by GCL's names. ``method`` says which rings data takes. The others are accepted: the order of
a ring and its links follow from the system."""

_DIRECTIONS = {
    "auto": (True,),
    "clockwise_ring": (True,),
    "anticlockwise_ring": (False,),
    "bidirectional_ring_pair": (True, False),
    "quad_directional_ring": (True, False, True, False),
}


def read_directions(function: str, given: Options) -> tuple[bool, ...]:
    """True if the ring of each part of the data runs clockwise.

    Raises:
        InvalidOptionError: A misspelt option, or a value that it does not take.
        UnsupportedOpError: The method is ``meet_in_middle_ring``.

    Copies between replicas follow one another, so two directions take as long as one; ``auto`` is one ring.
    """
    values: dict[str, Any] = read_options(function, given, COLLECTIVE_OPTIONS)
    method = values["method"]
    if method not in _DIRECTIONS:
        raise UnsupportedOpError(
            f"{function}: method {method} is not offered",
            because="a copy between replicas goes one way at a time, so meeting in the middle saves no step",
            remedy="method clockwise_ring or bidirectional_ring_pair",
        )
    return _DIRECTIONS[method]
