"""Headers of the host's libraries: codelet files include them for their host half, and find them empty.

A program in one file includes ``poplar/Graph.hpp`` and ``popops/ElementWise.hpp`` before its codelets. Nothing of them
can be used in a codelet, so that any such header that is nowhere to be found is an empty file.
"""

from __future__ import annotations

import re
from pathlib import Path

LIBRARIES = (
    "gccs",
    "gcl",
    "popart",
    "popdist",
    "popfloat",
    "poplar",
    "poplibs_support",
    "poplibs_test",
    "poplin",
    "popnn",
    "popops",
    "poprand",
    "popsolver",
    "popsparse",
    "popsys",
    "poputil",
    "pva",
)
"""Directories of headers that belong to the host."""
_INCLUDED = re.compile(rf'^[ \t]*#[ \t]*include[ \t]*[<"]((?:{"|".join(LIBRARIES)})/[^">]+)[">]', re.M)
_MISSING = re.compile(rf"'((?:{'|'.join(LIBRARIES)})/[^']+)' file not found")
_TEXT = "#pragma once\n"


def write_stand_ins(text: str, folder: Path) -> None:
    """Write an empty header for each one of a host library that a source mentions; to be looked for last."""
    for name in set(_INCLUDED.findall(text)):
        _write(name, folder)


def write_missing(said: str, folder: Path) -> bool:
    """Write an empty header for the one that a compiler did not find, if it belongs to the host.

    Args:
        said: The compiler's output.
        folder: Folder of such headers.

    Returns:
        True if there is one more.
    """
    found = _MISSING.search(said)
    return found is not None and _write(found[1], folder)


def _write(name: str, folder: Path) -> bool:
    path = (folder / name).resolve()
    if folder.resolve() not in path.parents or path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_TEXT, encoding="utf-8")
    return True
