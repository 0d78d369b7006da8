"""Options of collectives."""

from __future__ import annotations

from typing import Any

from abele.errors import InvalidOptionError, UnsupportedOpError
from abele.poplibs.poputil.options import Options, choice, flag, integer, read_options
from abele.words import counted

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
"""Options of collectives, by GCL's names. ``method`` says which rings data takes. ``link``, ``topology`` and
``useSynclessCollectives`` may say what follows from the system in any case; another choice is refused. The others are
accepted."""

RING_OF_IPUS = {"peripheral-ring": 1, "rung-ring-2": 2, "rung-ring-4": 4, "rung-ring-8": 8}
"""IPUs of a replica by what GCL calls the rings of such replicas. Source: GCL's option ``topology``."""

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
        UnsupportedOpError: The method is ``meet_in_middle_ring``, or collectives without syncs are asked for.

    Copies between replicas follow one another, so two directions take as long as one; ``auto`` is one ring.
    """
    values: dict[str, Any] = read_options(function, given, COLLECTIVE_OPTIONS)
    if values["useSynclessCollectives"] in ("true", "hybrid"):
        raise UnsupportedOpError(
            f"{function}: collectives without syncs are not offered",
            because="every exchange begins with a barrier of the IPUs that take part",
            remedy="useSynclessCollectives auto or false",
        )
    method = values["method"]
    if method not in _DIRECTIONS:
        raise UnsupportedOpError(
            f"{function}: method {method} is not offered",
            because="a copy between replicas goes one way at a time, so meeting in the middle saves no step",
            remedy="method clockwise_ring or bidirectional_ring_pair",
        )
    return _DIRECTIONS[method]


def check_links(function: str, given: Options, num_ipus: int, *, between_racks: bool) -> None:
    """Refuse options that name other links or rings than those that the data takes.

    Args:
        function: What an error calls the collective.
        given: The options.
        num_ipus: IPUs of a replica.
        between_racks: True if a group has replicas in several racks.

    Raises:
        InvalidOptionError: ``link`` or ``topology`` does not fit the replicas.
    """
    values: dict[str, Any] = read_options(function, given, COLLECTIVE_OPTIONS)
    link, topology = values["link"], values["topology"]
    if link != "auto-link" and (link == "gw-link") != between_racks:
        raise InvalidOptionError(
            f"{function}: link {link}, but groups "
            + ("go over several racks, which gateway links join" if between_racks else "stay in a rack"),
            remedy="link auto-link, or other groups",
        )
    if topology != "auto" and RING_OF_IPUS[topology] != num_ipus:
        fitting = [name for name, ipus in RING_OF_IPUS.items() if ipus == num_ipus]
        raise InvalidOptionError(
            f"{function}: topology {topology} is for replicas of {counted(RING_OF_IPUS[topology], 'IPU')}, "
            f"these have {num_ipus}",
            remedy=" or ".join(["topology auto", *fitting]),
        )
