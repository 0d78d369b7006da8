"""Switches of passes in the environment: whether forms are checked, and where they are written."""

from __future__ import annotations

import os
from pathlib import Path

CHECK_VARIABLE = "ABELE_CHECK_PASSES"
"""Set to anything but 0: every form between passes is checked."""
DUMP_VARIABLE = "ABELE_DUMP_PASSES"
"""A folder: every form of every plan is written there as text."""


def checks_passes() -> bool:
    """True if forms between passes are checked."""
    return os.environ.get(CHECK_VARIABLE, "0") not in ("", "0")


def dump_folder() -> Path | None:
    """Folder that forms are written to, or None."""
    folder = os.environ.get(DUMP_VARIABLE)
    return Path(folder) if folder else None


def new_folder(parent: Path) -> Path:
    """A folder in ``parent`` that did not exist, numbered in order: ``plan-001``, ``plan-002`` and so on."""
    number = sum(1 for _ in parent.glob("plan-*")) + 1
    while True:
        try:
            (made := parent / f"plan-{number:03}").mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return made
