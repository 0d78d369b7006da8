"""The user's lines of source: which frames are theirs, and what errors and names of calls say of them."""

from __future__ import annotations

import linecache
import re
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch

_HERE = Path(__file__).parents[1]
# Both as they were imported and without links: environments often link to the packages of others.
PYTORCH = tuple({str(path) for path in (Path(torch.__file__).parent, Path(torch.__file__).resolve().parent)})
PACKAGES = (*PYTORCH, *{str(path) for path in (_HERE, _HERE.resolve())})
"""Folders of PyTorch, and of PyTorch and this front end: code in them is not the user's."""

_LONGEST = 160
"""Characters of a line that an error shows."""

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class OriginScope:
    """Choice of the origins of calls to be recorded."""

    excludes: tuple[str, ...] = ()
    modules: bool = True


ORIGINS: ContextVar[OriginScope] = ContextVar("abele_origins", default=OriginScope())  # noqa: B039  # frozen


@contextmanager
def origins(excludes: Collection[str], *, modules: bool) -> Iterator[None]:
    """Files whose paths hold one of ``excludes`` are no source of calls; without ``modules``, names have none."""
    token = ORIGINS.set(OriginScope(tuple(excludes), modules))
    try:
        yield
    finally:
        ORIGINS.reset(token)


def user_frame(stack_trace: str) -> tuple[str, int]:
    """File and line of the innermost frame of a stack trace that is neither PyTorch's nor ours."""
    return _last_own((file, int(line)) for file, line in _FRAME.findall(stack_trace))


def users_frame(tracer: object, frames: traceback.StackSummary) -> traceback.StackSummary:
    """The innermost of the user's frames alone."""
    file, line = _last_own((frame.filename, frame.lineno or 0) for frame in frames)
    return traceback.StackSummary.from_list([f for f in frames if (f.filename, f.lineno) == (file, line)][-1:])


def line_now() -> tuple[str, int]:
    """File and line that the user's code is at."""
    frame, found = sys._getframe(), []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back  # type: ignore[assignment]
    return _last_own(reversed(found))


def line_of(trace: TracebackType | None) -> tuple[str, int]:
    """File and line of the innermost of the user's frames that an error went through."""
    return _last_own((frame.filename, frame.lineno or 0) for frame in traceback.extract_tb(trace))


def shown(place: tuple[str, int]) -> tuple[str | None, str | None]:
    """A line as errors say where it is, and its text; None for what there is not."""
    file, line = place
    text = linecache.getline(file, line).strip()
    return (f"{file}:{line}" if file else None), (text if 0 < len(text) <= _LONGEST else None)


def _last_own(frames: Iterable[tuple[str, int]]) -> tuple[str, int]:
    excludes = ORIGINS.get().excludes
    own = [f for f in frames if not f[0].startswith(PACKAGES) and not any(part in f[0] for part in excludes)]
    return own[-1] if own else ("", 0)
