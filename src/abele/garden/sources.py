"""Python's own standard library as data: the source files that ship with the interpreter.

Nothing is downloaded. The files are those of the Python that runs, so figures differ a little from version to version;
tests, generated tables and what some distributions leave out are left out here too.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from abele.errors import AbeleError

T = TypeVar("T")

SKIPPED = frozenset({"site-packages", "dist-packages", "test", "tests", "pydoc_data", "__phello__", "__pycache__"})
"""Folders that are no part of the library, or hold its tests or generated text."""
LEAST_FILES = 100
"""Fewer files than this are not a standard library that one can learn from."""


@dataclass(frozen=True)
class LibraryModule:
    """A module of the standard library.

    Attributes:
        module: Its dotted name; a package has the name of its folder.
        is_package: It is the ``__init__.py`` of a folder.
        text: Its source.
    """

    module: str
    is_package: bool
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The text, parsed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the parser has to say of escapes in it
            return ast.parse(self.text)

    @property
    def package(self) -> str:
        """Package from which its relative imports start."""
        return self.module if self.is_package else self.module.rpartition(".")[0]


def standard_library(root: Path | None = None) -> list[LibraryModule]:
    """The modules of the standard library in the order of their names.

    Args:
        root: The folder to read; by default that of the Python that runs.

    Raises:
        AbeleError: There are too few files, as where the library is kept in an archive.
    """
    folder = Path(sysconfig.get_paths()["stdlib"]) if root is None else root
    files = sorted((file for found in folder.rglob("*.py") if (file := _read(folder, found))), key=lambda f: f.module)
    if len(files) < LEAST_FILES:
        raise AbeleError(
            f"{folder} has the source of {len(files)} modules, at least {LEAST_FILES} of them are needed",
            remedy="run the demo with a Python whose library is installed as files",
        )
    return files


def _read(root: Path, path: Path) -> LibraryModule | None:
    parts = path.relative_to(root).with_suffix("").parts
    if any(part in SKIPPED or not part.isidentifier() for part in parts):
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (ValueError, OSError):
        return None
    is_package = parts[-1] == "__init__"
    return LibraryModule(".".join(parts[:-1] if is_package else parts), is_package, text)


def without_tables(files: Sequence[LibraryModule]) -> list[LibraryModule]:
    """The files that people write: those of ``encodings`` are tables that a tool made, a hundred alike."""
    return [file for file in files if not file.module.startswith("encodings.")]


def held_out_split(items: Sequence[T], share: float, seed: int) -> tuple[list[T], list[T]]:
    """Items to train on and a share of them held out, drawn at random, each in its old order."""
    order = np.random.default_rng(seed).permutation(len(items))
    held_out = set(order[: round(share * len(items))].tolist())
    train = [item for index, item in enumerate(items) if index not in held_out]
    return train, [item for index, item in enumerate(items) if index in held_out]
