"""Reading the description of a system, or of a host, from a file."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from abele.errors import MachineError
from abele.machine.spec import Spec

Described = TypeVar("Described", bound=Spec)


def read_overrides(path: Path) -> dict[str, Any]:
    """The table that a TOML or JSON file holds.

    Raises:
        MachineError: The file is missing, not text, or not well formed; the error names the line where there is one.
    """
    try:
        text = path.read_text(encoding="utf-8")
        table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise MachineError(
            f"{path}: {error.strerror or error}", remedy="give the path of a TOML or JSON file"
        ) from error
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise MachineError(f"{path}: not a well-formed system description", because=str(error)) from error
    if not isinstance(table, dict):
        raise MachineError(f"{path}: a system description is a table of fields, not a {type(table).__name__}")
    return table


def read_described(path: Path, get: Callable[[str], Described], *, what: str, example: str) -> Described:
    """Object that a TOML or JSON file describes: the name of a preset as ``base``, and fields that differ from it.

    Args:
        path: The file.
        get: Gives a preset by name.
        what: Name of the kind of preset, in a word.
        example: Name of a preset.

    Raises:
        MachineError: The file cannot be read, has no ``base``, or describes something impossible.
    """
    overrides = read_overrides(path)
    base = overrides.pop("base", None)
    if not isinstance(base, str):
        raise MachineError(
            f"{path}: no base {what} is named", remedy=f'begin the file with base = "{example}" (see {what}s.names())'
        )
    overrides.setdefault("name", path.stem)
    overrides.setdefault("title", f"{overrides['name']} (after {base})")
    try:
        return get(base).evolve(**overrides)
    except MachineError as error:
        raise MachineError(error.message, at=str(path), because=error.because, remedy=error.remedy) from error
