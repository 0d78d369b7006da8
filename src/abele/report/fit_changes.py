"""Changes that were tried so that a program fits, and the bytes of each; written into a report by who can try them.

A report holds no network, so nothing can be tried from a file. The session that compiles one records what it tries in
the ``meta`` of the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from abele.errors import FileFormatError, InvalidOptionError
from abele.report.text import aligned_lines, bytes_text
from abele.words import counted, visible

if TYPE_CHECKING:
    from abele.report.report import Report

ENTRY = "changes_to_fit"
"""Entry of a report's ``meta``."""


@dataclass(frozen=True)
class TriedChange:
    """Changes with which a program was compiled.

    Attributes:
        changes: The changes in words, all at once.
        bytes: Bytes of the fullest tile with them.
        fits: True if every tile has room, code and interleaved memory too.
    """

    changes: tuple[str, ...]
    bytes: int
    fits: bool


@dataclass(frozen=True)
class FitChanges:
    """Result of trying to make a program fit.

    Attributes:
        bytes: Bytes of the fullest tile of the program as it is.
        available_bytes: Bytes of a tile.
        fits: True if it fits as it is.
        tried: What was tried, in order.
        found: The shortest list found that fits, each entry with the changes before it and one more; empty for none.
    """

    bytes: int
    available_bytes: int
    fits: bool
    tried: tuple[TriedChange, ...] = ()
    found: tuple[TriedChange, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All as plain data."""
        return msgspec.to_builtins(asdict(self))  # type: ignore[no-any-return]

    def to_meta(self) -> dict[str, Any]:
        """Entries of a report's ``meta``, from which :func:`fit_changes` reads it."""
        rows = self.to_json()
        for name in ("tried", "found"):
            rows[name] = [each | {"changes": _AND.join(each["changes"])} for each in rows[name]]
        return {ENTRY: rows}

    def text(self) -> str:
        """What makes it fit, with the bytes that each change saves on the fullest tile, and what was tried."""
        over = self.bytes - self.available_bytes
        lines = [f"the fullest tile needs {bytes_text(self.bytes)} of {bytes_text(self.available_bytes)}"]
        if self.fits:
            return f"{lines[0]}: it fits"
        lines[0] += f", {bytes_text(over)} too much" if over > 0 else ", but not where its code or data must lie"
        if self.found:
            lines += ["", f"it fits with {counted(len(self.found), 'change')}:", *self._found_lines()]
        else:
            lines += ["", "nothing that was tried makes it fit" if self.tried else "nothing was tried"]
        if self.tried:
            rows = [
                (f"{self.bytes - t.bytes:,}", f"{t.bytes:,}", "fits" if t.fits else "", visible(" + ".join(t.changes)))
                for t in self.tried
            ]
            lines += ["", "tried:", *aligned_lines([("saved", "needed", "", "changes"), *rows], ">><<")]
        return "\n".join(lines)

    def _found_lines(self) -> list[str]:
        rows, before, known = [("saved", "needed", "change")], self.bytes, set[str]()
        for each in self.found:
            new = visible(" + ".join(change for change in each.changes if change not in known))
            rows.append((f"{before - each.bytes:,}", f"{each.bytes:,}", new))
            before, known = each.bytes, set(each.changes)
        return aligned_lines(rows, ">><")


# In ``meta`` the changes of one trial are one string, since its entries are no deeper.

_AND = "\n"


class _ToldTrial(msgspec.Struct):
    changes: str
    bytes: int
    fits: bool


class _Told(msgspec.Struct):
    bytes: int
    available_bytes: int
    fits: bool
    tried: list[_ToldTrial] = []
    found: list[_ToldTrial] = []


def _read(told: _ToldTrial) -> TriedChange:
    return TriedChange(tuple(told.changes.split(_AND)), told.bytes, told.fits)


def fit_changes(report: Report) -> FitChanges:
    """What was tried so that a program fits, as its report tells.

    Raises:
        InvalidOptionError: It does not fit, and the report tells nothing.
        FileFormatError: What it tells is damaged.
    """
    told = report.meta.get(ENTRY)
    if isinstance(told, Mapping):
        try:
            known = msgspec.convert(told, _Told)
            tried, found = (tuple(map(_read, each)) for each in (known.tried, known.found))
            return FitChanges(known.bytes, known.available_bytes, known.fits, tried, found)
        except msgspec.ValidationError as error:
            raise FileFormatError(f"the report's {ENTRY} are damaged: {error}") from error
    memory = report.memory
    if not memory.fits:
        raise InvalidOptionError(
            "the report does not say what would make its program fit",
            because="a report holds no network, and changes are tried where it is compiled",
            remedy="the report of the OutOfMemoryError has what the session tried; abele.session.changes_to_fit(net, "
            "schedule, groups=…).report.save(…) tries all",
        )
    return FitChanges(int(memory.by_tile.max(initial=0)), memory.available_bytes, fits=True)
