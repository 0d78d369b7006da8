"""Portable names of source files: without the folders that only their author has."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_LIBRARIES = ("site-packages", "dist-packages")
_PROJECT_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")


@cache
def portable_path(file: str) -> str:
    """Path of a source file from the root of its project, with forward slashes.

    The root is that of this package (``abele/…``), else the folder of installed packages that holds the file, else the
    nearest folder above it with a ``pyproject.toml``, ``setup.py``, ``setup.cfg``, ``.git`` or ``.hg``, else the
    working folder. A file outside all of these keeps its name alone. Relative paths and names such as ``<stdin>`` are
    kept as they are.
    """
    path = Path(file)
    if not path.is_absolute():
        return file
    root = _root(path)
    return path.relative_to(root).as_posix() if root else path.name


def _root(path: Path) -> Path | None:
    if path.is_relative_to(_PACKAGE):
        return _PACKAGE.parent
    libraries = next((p for p in path.parents if p.name in _LIBRARIES), None)
    project = next((p for p in path.parents if any((p / mark).exists() for mark in _PROJECT_MARKS)), None)
    return libraries or project or next((p for p in (Path.cwd(),) if path.is_relative_to(p)), None)


def told(full_paths: bool) -> Callable[[str], str]:
    """Function that gives the path of a file: the whole path, or its portable part."""
    return str if full_paths else portable_path
