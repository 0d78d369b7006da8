"""Systems as nested tables, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from abele.errors import MachineError
from abele.machine import System
from abele.machine.spec import Spec
from abele.words import counted

_MOST_TILES = 1 << 20
_MOST_NUMBER = 1 << 53


def system_table(spec: Spec) -> dict[str, Any]:
    """Every field of a system, nested as its parts are; sources are left out."""
    return {f.name: _plain(getattr(spec, f.name)) for f in fields(spec) if f.name != "cited"}


def _plain(value: Any) -> Any:
    if isinstance(value, Spec):
        return system_table(value)
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value


def system_of(table: Mapping[str, Any]) -> System:
    """The system that a table describes.

    Raises:
        MachineError: It is impossible.
        ValueError: It has fields that systems lack.
    """
    system: System = _built(System, table)
    if system.num_tiles > _MOST_TILES:
        raise MachineError(
            f"{counted(system.num_tiles, 'tile')}, more than the {_MOST_TILES:,} that a file may ask for"
        )
    return system


def _built(kind: type[Spec], table: Mapping[str, Any]) -> Any:
    known = {f.name: f for f in fields(kind) if f.name != "cited"}
    unknown = set(table) - set(known)
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
    return kind(**{name: _part(known[name].metadata.get("kind"), value) for name, value in table.items()})


def _part(kind: Any, value: Any) -> Any:
    if isinstance(value, int) and abs(value) > _MOST_NUMBER:
        raise MachineError(f"{value}: too large to be a figure of a machine")
    if isinstance(value, Mapping) and kind is not None:
        return _built(kind, value)
    if isinstance(value, list):
        return tuple(_part(kind, item) for item in value)
    return value
