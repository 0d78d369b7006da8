"""Reports that a viewer shows: loaded from files or handed over, each under a key that stays."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from abele.errors import AbeleError, FileFormatError, InvalidOptionError, nearest
from abele.report import Report
from abele.words import shortened, visible

Found = TypeVar("Found")

MOST_REPORTS = 8
"""Reports that are shown beside each other at most."""


@dataclass(eq=False)
class Opened:
    """A report that is shown.

    Attributes:
        key: Names it in addresses of the page: letters, digits and dashes.
        title: Names it to people.
        report: The report.
        path: Its file; None for a report of this process.
        stamp: Changes when the file does; answers are kept by key and stamp.
        beside: The shelf that it stands on.
        kept: What answers have worked out and want again, by name.
    """

    key: str
    title: str
    report: Report
    path: Path | None = None
    stamp: str = "0"
    beside: Shelf | None = field(default=None, repr=False)
    kept: dict[str, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def once(self, name: str, make: Callable[[], Found]) -> Found:
        """What ``make()`` returned when it was first asked for under this name."""
        with self.lock:
            if name not in self.kept:
                self.kept[name] = make()
            found: Found = self.kept[name]
            return found


class Shelf:
    """The reports of a viewer.

    Args:
        sources: Files, or reports.

    Raises:
        FileFormatError: A file cannot be read, or is no report.
        InvalidOptionError: None, or too many.
    """

    def __init__(self, sources: Sequence[str | Path | Report]) -> None:
        if not 1 <= len(sources) <= MOST_REPORTS:
            raise InvalidOptionError(f"{len(sources)} reports to show", remedy=f"one to {MOST_REPORTS}")
        self._opened: dict[str, Opened] = {}
        self._lock = threading.Lock()
        for source in sources:
            opened = _open(source, self._opened)
            opened.beside = self
            self._opened[opened.key] = opened

    def __iter__(self) -> Iterator[Opened]:
        return iter(list(self._opened.values()))

    def __len__(self) -> int:
        return len(self._opened)

    def __getitem__(self, key: str) -> Opened:
        if key not in self._opened:
            close = nearest(key, self._opened)
            raise InvalidOptionError(
                f"no report {shortened(visible(key), 60)!r} is open",
                remedy=f"did you mean {close!r}?" if close else "one of " + ", ".join(self._opened),
            )
        return self._opened[key]

    def changed(self) -> list[str]:
        """Keys of the reports whose files are not what was read: written anew, or gone."""
        return [opened.key for opened in self._opened.values() if opened.path and _stamp(opened.path) != opened.stamp]

    def reload(self, key: str) -> Opened:
        """Read a report's file again; the old one stays where that fails.

        Raises:
            FileFormatError: The file cannot be read.
        """
        old = self[key]
        if old.path is None:
            return old
        with self._lock:
            new = Opened(old.key, old.title, Report.load(old.path), old.path, _stamp(old.path), self)
            self._opened[key] = new
        return new


def _open(source: str | Path | Report, taken: Iterable[str]) -> Opened:
    if isinstance(source, Report):
        title = str(source.meta.get("name") or "report")
        return Opened(_key(title, taken), _title(title), source)
    path = Path(source)
    stamp = _stamp(path)
    report = Report.load(path)
    return Opened(_key(path.stem, taken), _title(path.stem), report, path, stamp)


def _title(name: str) -> str:
    return shortened(visible(name), 120) or "report"


def _key(name: str, taken: Iterable[str]) -> str:
    """Letters, digits and dashes of a name, and a number where that is taken."""
    base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "report"
    key, number, names = base, 2, set(taken)
    while key in names:
        key, number = f"{base}-{number}", number + 1
    return key


def _stamp(path: Path) -> str:
    """Tells one state of a file from another."""
    try:
        facts = path.stat()
    except OSError:
        return "gone"
    told = f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns}"
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def readable(error: AbeleError) -> dict[str, Any]:
    """An error as the page shows it."""
    kind = "file" if isinstance(error, FileFormatError) else "question"
    told = {"message": error.message, "at": error.at, "because": error.because, "remedy": error.remedy}
    return {"kind": kind, **{name: visible(str(text)) for name, text in told.items() if text}}
