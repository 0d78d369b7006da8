"""The heartbeat of a rank: a thread that tells how far the process is, and whether it comes any further.

A process comes further when something is counted in :data:`~abele.job.progress.PROGRESS`. While it compiles or runs,
it is enough that it uses the processor. In the program's own code it has to come to places other than the last few
besides: a loop that waits for something goes round the same ones.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import OrderedDict
from types import FrameType

from abele.job.progress import PROGRAM, PROGRESS

SECONDS = 0.25
"""Between two beats."""
_LOOKS = 8
"""Looks at where the program is between two beats: one alone may find a busy loop at the same place each time."""
_LEAST_USE = 0.05
"""Part of the time between two beats that a process uses a processor for, if it does anything."""
_PLACES = 4
"""Places that a loop may go round without being at work."""
_MOST_TEXT = 150
"""Characters of each text; a beat is to fit in one frame."""


class Heartbeat:
    """Beats into a pipe, as lines of JSON, until the process ends.

    Args:
        pipe: The file descriptor to write to.
        folder: Files below it are the program's own.
    """

    def __init__(self, pipe: int, folder: str) -> None:
        self._pipe = pipe
        self._folder = folder
        self._main = threading.main_thread().ident
        self._changes = -1
        self._used = time.process_time()
        self._moved = self._at = time.monotonic()
        self._places: OrderedDict[int, None] = OrderedDict()
        self._elsewhere = False
        self._writing = threading.Lock()

    def start(self) -> None:
        """Beat from now on, and whenever the process is about to fall silent."""
        PROGRESS.listener = self.beat
        threading.Thread(target=self._beat_on, name="abele-heartbeat", daemon=True).start()

    def _beat_on(self) -> None:
        while True:
            for _ in range(_LOOKS):
                time.sleep(SECONDS / _LOOKS)
                with self._writing:
                    self._look(self._frame())
            self.beat()

    def beat(self, **more: str | int) -> None:
        """Tell the place of the process, with further facts."""
        with self._writing:
            frame = self._frame()
            self._note(frame)
            told = PROGRESS.told() | {"place": self._place(frame), "idle": time.monotonic() - self._moved} | more
            told = {name: value[-_MOST_TEXT:] if isinstance(value, str) else value for name, value in told.items()}
            try:
                os.write(self._pipe, json.dumps(told, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            except OSError:
                # Nobody listens any longer; whoever kept this process ends it.
                PROGRESS.listener = None

    def _frame(self) -> FrameType | None:
        """Frame that the main thread runs."""
        return sys._current_frames().get(self._main or 0)

    def _note(self, frame: FrameType | None) -> None:
        """Find out whether the process has come any further since the last beat."""
        self._look(frame)
        now, used = time.monotonic(), time.process_time()
        works = used - self._used > _LEAST_USE * (now - self._at)
        changed = PROGRESS.changes != self._changes
        if changed or (works and (self._elsewhere or PROGRESS.phase != PROGRAM)):
            self._moved = now
        self._changes, self._used, self._at, self._elsewhere = PROGRESS.changes, used, now, False

    def _look(self, frame: FrameType | None) -> None:
        """Note whether the program is at a place that is none of the last few different ones."""
        place = _fingerprint(frame)
        self._elsewhere |= place not in self._places
        self._places[place] = None
        self._places.move_to_end(place)
        if len(self._places) > _PLACES:
            self._places.popitem(last=False)

    def _place(self, frame: FrameType | None) -> str:
        """File and line of the innermost frame in the program's own code."""
        while frame is not None and not os.path.abspath(frame.f_code.co_filename).startswith(self._folder):
            frame = frame.f_back
        return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _fingerprint(frame: FrameType | None) -> int:
    """A number for all that is being called, down to the instruction."""
    calls = []
    while frame is not None:
        calls.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return hash(tuple(calls))
