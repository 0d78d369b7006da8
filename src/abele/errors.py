"""The errors that Abele raises: typed, and telling where, why and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AbeleError(Exception):
    """Base of every error that Abele raises on purpose.

    Args:
        message: One line: the thing that is wrong, with the numbers that make it wrong.
        at: Where: a program step, a source line, a tile.
        because: What led to it, term by term.
        remedy: What the reader can do about it.
    """

    def __init__(
        self, message: str, *, at: str | None = None, because: str | None = None, remedy: str | None = None
    ) -> None:
        self.message = message
        self.at = at
        self.because = because
        self.remedy = remedy
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        for label, text in (("at", self.at), ("because", self.because), ("try", self.remedy)):
            if text:
                first, *rest = text.splitlines()
                lines.append(f"  {label:<8} {first}")
                lines.extend(f"  {'':<8} {line}" for line in rest)
        return "\n".join(lines)


class MachineError(AbeleError):
    """A system description is impossible, or names something that the system lacks."""


class InvalidOptionError(AbeleError, ValueError):
    """An option that does not exist, or a value that it does not take."""


class TensorError(AbeleError, ValueError):
    """A shape, rank or index that the tensor does not have."""


class TypeMismatchError(AbeleError, TypeError):
    """An element type that does not fit where it is used."""


class TileMappingError(AbeleError):
    """A variable, constant or vertex that is mapped nowhere, partly, or to a tile that the system lacks."""


class GraphConnectionError(AbeleError):
    """A vertex field that is not connected, connected twice, or connected to something that does not fit."""


class DataRaceError(AbeleError):
    """Two vertices of one compute set touch the same element and at least one of them writes it."""


class ConstantWriteError(AbeleError):
    """A write to a constant or to a view in which an element appears more than once."""


class CodeletError(AbeleError):
    """A codelet that uses something outside the vertex language; ``at`` names its line."""


class CodeletAccessError(AbeleError, IndexError):
    """A codelet in debug mode reached outside a field, or wrote one that it may only read."""


class ControlProgramError(AbeleError):
    """A control program that cannot be lowered: a bad copy, predicate, repeat count or call."""


class StreamConnectionError(AbeleError):
    """A host stream without a connection, or connected to data that does not fit."""


class UnsupportedOpError(AbeleError):
    """An operation of a captured model that has no lowering."""


class FileFormatError(AbeleError):
    """A file that is damaged, incomplete, or written by a newer version."""


class EngineError(AbeleError):
    """A request that an engine cannot serve: an unknown tensor, an unknown program, a model not loaded."""


class OutOfMemoryError(AbeleError):
    """A program that needs more memory on some tile than the tile has.

    Attributes:
        tiles: The worst tiles, each a mapping with ``tile``, ``needed_bytes``, ``available_bytes`` and one entry a
            category; a program can read it.
    """

    def __init__(
        self,
        message: str,
        *,
        tiles: tuple[dict[str, int], ...] = (),
        at: str | None = None,
        because: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, at=at, because=because, remedy=remedy)
        self.tiles = tiles


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice that ``name`` was probably meant to be, or None when nothing comes close."""
    matches = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return matches[0] if matches else None
