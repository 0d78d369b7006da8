"""Options of collectives."""

from __future__ import annotations

from typing import Any, Literal

from abele.errors import InvalidOptionError, UnsupportedOpError
from abele.poplibs.gcl.methods import METHODS, Method
from abele.poplibs.poputil.options import Options, choice, flag, integer, read_options
from abele.words import counted

COLLECTIVE_OPTIONS = {
    "method": choice("auto", *METHODS),
    "useReplicatedImplementation": flag(True),
    "maxBytesPerTile": integer(35000, 1),
    "topology": choice("auto", "rung-ring-2", "rung-ring-4", "rung-ring-8", "peripheral-ring"),
    "useSynclessCollectives": choice("auto", "true", "false", "hybrid"),
    "link": choice("auto-link", "ipu-link", "gw-link"),
}
"""Options of collectives, by GCL's names. ``method`` says which way round rings data goes; ``auto`` is
the one that is estimated to take least time. ``link``, ``topology`` and
``useSynclessCollectives`` may say what follows from the system in any case; another choice is refused. The others are
accepted."""

Wanted = Method | Literal["auto"]
"""A method, or the one that is estimated to take least time."""

RING_OF_IPUS = {"peripheral-ring": 1, "rung-ring-2": 2, "rung-ring-4": 4, "rung-ring-8": 8}
"""IPUs of a replica by GCL's name of its rings. Source: GCL's option ``topology``."""


def read_method(function: str, given: Options) -> Wanted:
    """The method that options name.

    Raises:
        InvalidOptionError: A misspelt option, or a value that it does not take.
        UnsupportedOpError: Collectives without syncs are asked for.
    """
    values: dict[str, Any] = read_options(function, given, COLLECTIVE_OPTIONS)
    if values["useSynclessCollectives"] in ("true", "hybrid"):
        raise UnsupportedOpError(
            f"{function}: collectives without syncs are not offered",
            because="every exchange begins with a barrier of the IPUs that take part",
            remedy="useSynclessCollectives auto or false",
        )
    method: Wanted = values["method"]
    return method


def check_links(function: str, given: Options, num_ipus: int, *, between_racks: bool) -> None:
    """Refuse options that name links or rings other than the data's own.

    Args:
        function: Name of the collective in errors.
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
