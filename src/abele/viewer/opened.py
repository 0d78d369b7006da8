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
from abele.trace.format import ENDING
from abele.trace.trace import Trace
from abele.words import shortened, visible

Found = TypeVar("Found")

_TRACE_ENDINGS = (".json", ".json.gz")
"""Of traces of PyTorch's profiler and of Chrome."""
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
        traces: Traces of the host that are shown beside it.
    """

    key: str
    title: str
    report: Report
    path: Path | None = None
    stamp: str = "0"
    beside: Shelf | None = field(default=None, repr=False)
    kept: dict[str, Any] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    traces: tuple[Trace, ...] = ()

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
        sources: Files, or reports; and beside these traces of the host, as ``abele.trace.Trace.load`` reads them.

    Raises:
        FileFormatError: A file cannot be read, or is no report.
        InvalidOptionError: None, or too many.
    """

    def __init__(self, sources: Sequence[str | Path | Report]) -> None:
        traced = [Path(source) for source in sources if not isinstance(source, Report) and is_trace(Path(source))]
        reports = [source for source in sources if isinstance(source, Report) or not is_trace(Path(source))]
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
        """Keys of the reports whose files, or traces beside them, are not what was read: written anew, or gone."""
        if any(trace.grown() for trace in self._traces):
            return list(self._opened)
        return [o.key for o in self if o.path and _stamp(o.path) != o.stamp.partition(".")[0]]

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
                # What other reports answered of the traces before is of these no more.
                for opened in self:
                    again = Opened(opened.key, opened.title, opened.report, opened.path, opened.stamp)
                    self._opened[opened.key] = self._placed(again)
            if old.path is not None:
                new = Opened(old.key, old.title, Report.load(old.path), old.path, _stamp(old.path))
                self._opened[key] = self._placed(new)
            return self._opened[key]

    def _placed(self, opened: Opened) -> Opened:
        """A report on the shelf with the traces beside it; its stamp tells one reading of them from another."""
        opened.beside, opened.traces = self, self._traces
        if self._traces:
            opened.stamp = f"{opened.stamp.partition('.')[0]}.{self._readings}"
        return opened


def is_trace(path: Path) -> bool:
    """True if a file is a trace of the host, by its ending, or a folder holds some and no report."""
    name = path.name.lower()
    if name.endswith((ENDING, *_TRACE_ENDINGS)):
        return True
    try:
        return path.is_dir() and any(path.glob(f"*{ENDING}")) and not any(path.glob("*.abele-report"))
    except OSError:
        return False


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
