"""Environment variables of PopTorch that choose machines and files."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from abele.errors import InvalidOptionError
from abele.frontends.poptorch import logs
from abele.frontends.poptorch.errors import CheckError
from abele.machine import System, systems
from abele.session.settings import DEFAULT_SYSTEM, SYSTEM_VARIABLE

MODEL_VARIABLE = "POPTORCH_IPU_MODEL"
VERSION_VARIABLE = "POPTORCH_IPU_MODEL_VERSION"
SMALL_VARIABLE = "POPTORCH_SMALL_IPU_MODEL"
PROTO_VARIABLE = "POPTORCH_EXPORT_PROTO_FILE"
WAIT_VARIABLE = "POPTORCH_WAIT_FOR_IPU"
HARDWARE_VARIABLE = "ABELE_POPTORCH_HARDWARE"

SMALL_TILES = 4
"""Tiles of the small model."""
VERSIONS = {1: "c2", 2: DEFAULT_SYSTEM, 21: "c600"}
"""Versions of the IPU, and the systems that are modelled for them: 21 is the Mk2 that multiplies 8-bit floats."""


def _is_set(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


def model_version() -> int:
    """The version of the IPU that the environment asks for, 2 by default.

    Raises:
        InvalidOptionError: It names none.
    """
    name = os.environ.get(VERSION_VARIABLE, "") or "ipu2"
    known = {f"ipu{version}": version for version in VERSIONS}
    if name not in known:
        raise InvalidOptionError(
            f"{VERSION_VARIABLE} is {name!r}, which is no version of the IPU", remedy="one of " + ", ".join(known)
        )
    return known[name]


def default_system(version: int = 2) -> System | None:
    """The machine to model where a program chose none; None for the one that a session takes by itself.

    Args:
        version: Version of the IPU that offline targets, or the environment, have.
    """
    small = _is_set(SMALL_VARIABLE) and not _is_set(MODEL_VARIABLE)
    if os.environ.get(SYSTEM_VARIABLE) or (version == 2 and not small):
        return None
    system = systems.get(VERSIONS[version])
    return system.evolve(ipu={"num_tiles": SMALL_TILES}) if small else system


def _claimed_system() -> System | None:
    """The modelled machine where programs are to take it for hardware, else None."""
    if not _is_set(HARDWARE_VARIABLE):
        return None
    chosen = os.environ.get(SYSTEM_VARIABLE) or default_system(model_version()) or DEFAULT_SYSTEM
    return systems.resolve(chosen)


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:
    """False, as the machine is modelled; ``ABELE_POPTORCH_HARDWARE=1`` has programs take the model for hardware.

    Args:
        num_ipus: Number of IPUs that a program wants.

    Returns:
        True if the model counts as hardware and has so many IPUs.
    """
    system = _claimed_system()
    return system is not None and num_ipus <= system.num_ipus


def ipuHardwareVersion() -> int:
    """The version of the modelled IPU, where programs are to take it for hardware: 1, 2 or 21.

    Raises:
        CheckError: They are not.
    """
    system = _claimed_system()
    if system is None:
        raise CheckError(
            "No IPU hardware available on this system",
            remedy=f"{HARDWARE_VARIABLE}=1, or abele.poptorch.install(hardware=True): programs take the model for it",
        )
    return int(system.ipu.generation.removeprefix("ipu"))


def proto_file() -> Path | None:
    """The file that the text of each compiled model is written to, if the environment names one."""
    name = os.environ.get(PROTO_VARIABLE)
    return Path(name) if name else None


def tell_of_waiting() -> None:
    """Say once that nothing is waited for, where the environment asks for that."""
    if _is_set(WAIT_VARIABLE):
        _tell_once()


@functools.cache
def _tell_once() -> None:
    logs.LOGGER.warning("%s has no effect: the IPU is modelled, and never in use by others", WAIT_VARIABLE)
