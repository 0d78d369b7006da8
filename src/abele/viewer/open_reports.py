"""Reports that a viewer shows: loaded from files or handed over, each under a key that stays."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from abele.errors import AbeleError, FileFormatError, InvalidOptionError, nearest
from abele.report import Report
from abele.trace.format import ENDING
from abele.trace.trace import Trace
from abele.words import shortened, visible

Found = TypeVar("Found")

SUFFIX = ".abele-report"
"""Suffix of reports in a folder."""
_TRACE_ENDINGS = (".json", ".json.gz")
"""Suffixes of traces by PyTorch's profiler and by Chrome."""
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
        source: Path as it was named: the file, or a folder of which the newest report is shown.
        stamp: Changes when the file does; answers are kept by key and stamp.
        beside: The shelf that it stands on.
        kept: Results that answers want again, by name.
        traces: Traces of the host that are shown beside it.
    """

    key: str
    title: str
    report: Report
    path: Path | None = None
    source: Path | None = None
    stamp: str = "0"
    beside: Shelf | None = field(default=None, repr=False)
    kept: dict[str, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    traces: tuple[Trace, ...] = ()
    _identity: tuple[int, ...] | None = None

    def once(self, name: str, make: Callable[[], Found]) -> Found:
        """Result of ``make()`` when it was first asked for under this name."""
        with self.lock:
            if name not in self.kept:
                self.kept[name] = make()
            found: Found = self.kept[name]
            return found

    @property
    def cycles(self) -> int | None:
        """Modelled cycles of a run of the first program; None where that part of the file is damaged."""
        try:
            self.check()
            return self.once("cycles", lambda: self.report.total_cycles)
        except FileFormatError:
            return None

    @property
    def listed(self) -> dict[str, Any]:
        """The report in the list of reports that the page has."""
        told = {"key": self.key, "title": self.title, "stamp": self.stamp, "cycles": self.cycles}
        return told | ({"bytes": self._identity[2]} if self._identity else {})

    def check(self) -> None:
        """Refuse to read on in a file that somebody writes into: its mapped contents have changed.

        Raises:
            FileFormatError: The file that was opened has been changed in place.
        """
        if self.path is None or self._identity is None:
            return
        now = _identity(self.path)
        if now is not None and now != self._identity and now[:2] == self._identity[:2]:
            raise FileFormatError(
                f"{self.path}: the file was changed in place while it was open",
                remedy="show it as it is now; Report.save writes beside a file and replaces it",
            )


class Shelf:
    """The reports of a viewer.

    Args:
        sources: Files, folders of which the newest report is shown with the traces in them, or reports; and beside
            these traces of the host, as ``abele.trace.Trace.load`` reads them. Of a folder of such folders, as
            ``training`` and ``inference`` of a profile are, each is shown.

    Raises:
        FileFormatError: A file cannot be read, or is no report; a folder holds none.
        InvalidOptionError: None, or too many.
    """

    def __init__(self, sources: Sequence[str | Path | Report]) -> None:
        files = [Path(source) for source in sources if not isinstance(source, Report)]
        traced = [path for path in files if is_trace(path) or _holds(path, ENDING)]
        reports = [report for source in sources for report in _reports_of(source)]
        if not reports and traced:
            raise InvalidOptionError(
                f"{traced[0]} is a trace of the host, and no report is named", remedy="abele view REPORT TRACE"
            )
        if not 1 <= len(reports) <= MOST_REPORTS:
            raise InvalidOptionError(f"{len(reports)} reports to show", remedy=f"one to {MOST_REPORTS}")
        self._opened: dict[str, Opened] = {}
        self._lock = threading.Lock()
        self._readings = 0
        self._traces: tuple[Trace, ...] = (Trace.load(*traced),) if traced else ()
        for source in reports:
            opened = self._placed(_open(source, self._opened))
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
        """Keys of the reports whose files, or traces beside them, have changed since they were read: written anew, or
        gone.
        """
        if any(trace.grown() for trace in self._traces):
            return list(self._opened)
        return [o.key for o in self if o.source and _stamp_of(o.source) != o.stamp.partition(".")[0]]

    def reload(self, key: str) -> Opened:
        """Read a report's file again; the old one stays where that fails.

        Raises:
            FileFormatError: The file cannot be read.
        """
        old = self[key]
        with self._lock:
            if any(trace.grown() for trace in self._traces):
                self._traces = tuple(trace.reload() for trace in self._traces)
                self._readings += 1
                # Answers of other reports about the traces before are no longer valid.
                for opened in self:
                    self._opened[opened.key] = self._placed(_again(opened))
            if old.source is not None:
                self._opened[key] = self._placed(_read(old.source, old.key))
            return self._opened[key]

    def _placed(self, opened: Opened) -> Opened:
        """A report on the shelf with the traces beside it; its stamp tells one reading of them from another."""
        opened.beside, opened.traces = self, self._traces
        if self._traces:
            opened.stamp = f"{opened.stamp.partition('.')[0]}.{self._readings}"
        return opened


def _again(opened: Opened) -> Opened:
    """A report as it was read, of which nothing is worked out yet."""
    new = Opened(opened.key, opened.title, opened.report, opened.path, opened.source, opened.stamp)
    new._identity = opened._identity
    return new


def is_trace(path: Path) -> bool:
    """True if a file is a trace of the host, by its ending, or a folder holds some and no report."""
    if path.name.lower().endswith((ENDING, *_TRACE_ENDINGS)):
        return True
    return _holds(path, ENDING) and not _holds(path, SUFFIX)


def _holds(path: Path, ending: str) -> bool:
    """True if a path is a folder in which a file has this ending."""
    try:
        return path.is_dir() and any(path.glob(f"*{ending}"))
    except OSError:
        return False


def _reports_of(source: str | Path | Report) -> list[str | Path | Report]:
    """Reports that a source stands for: itself, none of a trace, or the folders of reports in a folder without any."""
    if isinstance(source, Report):
        return [source]
    path = Path(source)
    # Errors of looking at a file are told when it is read.
    with contextlib.suppress(OSError):
        if path.is_dir() and not _holds(path, SUFFIX):
            inner = sorted(part for part in path.iterdir() if _holds(part, SUFFIX))
            if inner:
                return [*inner]
    return [] if is_trace(path) else [source]


def _open(source: str | Path | Report, taken: Iterable[str]) -> Opened:
    if isinstance(source, Report):
        title = str(source.meta.get("name") or "report")
        return Opened(_key(title, taken), _title(title), source)
    return _read(Path(source), None, taken)


def _read(source: Path, key: str | None, taken: Iterable[str] = ()) -> Opened:
    """The report in a file or folder; a file that is replaced meanwhile is told as changed."""
    path = newest_report(source)
    before = _identity(path)
    report = Report.load(path)
    title = source.resolve().name if path.stem == "profile" and source.is_dir() else path.stem
    opened = Opened(key or _key(title, taken), _title(title), report, path, source, _stamp(before))
    opened._identity = before
    return opened


def newest_report(source: Path) -> Path:
    """The file that is meant: the newest report in a folder, or the file itself.

    Raises:
        FileFormatError: The folder holds no report, or cannot be read.
    """
    try:
        if not source.is_dir():
            return source
        found = [path for path in source.glob(f"*{SUFFIX}") if path.is_file()]
    except OSError as error:
        raise FileFormatError(f"{source}: {error.strerror or error}") from error
    if not found:
        raise FileFormatError(
            f"{source}: the folder holds no report", remedy=f"a folder with files *{SUFFIX}, or a report file"
        )
    return max(found, key=lambda path: (_identity(path) or (0,))[-1])


def _title(name: str) -> str:
    return shortened(visible(name), 120) or "report"


def _key(name: str, taken: Iterable[str]) -> str:
    """Letters, digits and dashes of a name, and a number where that is taken."""
    base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "report"
    key, number, names = base, 2, set(taken)
    while key in names:
        key, number = f"{base}-{number}", number + 1
    return key


def _identity(path: Path) -> tuple[int, ...] | None:
    """Device, number, size and time of a file, which tell one state of it from another; None where it is gone."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


def _stamp(identity: tuple[int, ...] | None) -> str:
    """Tells one state of a file from another."""
    return "gone" if identity is None else hashlib.sha256(repr(identity).encode()).hexdigest()[:12]


def _stamp_of(source: Path) -> str:
    """Stamp of the present contents of a file or folder."""
    try:
        return _stamp(_identity(newest_report(source)))
    except FileFormatError:
        return "gone"


def unexpected(error: Exception) -> dict[str, Any]:
    """A failure of one answer, shown in the place of the answer."""
    return {
        "kind": "failure",
        "message": f"this could not be worked out: {type(error).__name__}: {shortened(visible(str(error)), 300)}",
        "remedy": "the other views go on; the terminal that abele view runs in shows where it failed",
    }


def readable(error: AbeleError) -> dict[str, Any]:
    """An error as the page shows it."""
    kind = "file" if isinstance(error, FileFormatError) else "question"
    told = {"message": error.message, "at": error.at, "because": error.because, "remedy": error.remedy}
    return {"kind": kind, **{name: visible(str(text)) for name, text in told.items() if text}}
