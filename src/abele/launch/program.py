"""Main program of a rank's own process: a Python program, run as Python would, with a heartbeat beside it.

``python -P -m abele.launch.program (program.py | -m module) [arguments]``. Programs may say ``import poptorch``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import runpy
import sys
import threading
import time
import types
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, ModuleType

from abele.job.progress import ENDED, FAILED, PROGRAM, PROGRESS

# The heartbeat of a rank: a thread that tells how far the process is, and whether it comes any further.
#
# A process comes further when something is counted in :data:`~abele.job.progress.PROGRESS`. While it compiles or runs,
# it is enough that it uses the processor. In the program's own code it has to come to places other than the last few
# besides: a loop that waits for something goes round the same ones.

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


PIPE_VARIABLE = "ABELE_RANK_PIPE"
"""The file descriptor that the heartbeat is written to."""
_MOST_ERROR = 150
"""Characters of an error that are told on; its traceback is printed whole."""


class PopTorchFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``poptorch`` where no other package of this name is installed."""

    _spec: importlib.machinery.ModuleSpec | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Spec of ``poptorch``; nothing else is found here."""
        return importlib.util.spec_from_loader(name, self) if name == "poptorch" else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """``abele.poptorch``, with its submodules under the name that programs import."""
        from abele import poptorch

        self._spec = poptorch.__spec__
        # The module being imported is in nobody's hands yet.
        sys.modules.pop(spec.name, None)
        poptorch.install(spec.name)
        return poptorch

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module is complete."""
        module.__spec__ = self._spec


def main() -> None:
    """Run the program named by the arguments; this process ends as the program does."""
    arguments = sys.argv[1:]
    heart = _heartbeat(_folder(arguments))
    for stream in (sys.stdout, sys.stderr):
        # The last output must be seen even where the process is killed.
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.meta_path.append(PopTorchFinder())
    try:
        _run(arguments)
    except SystemExit as error:
        failed = error.code not in (None, 0)
        status = error.code if isinstance(error.code, int) else 1
        if failed and heart is not None:
            heart.beat(error=f"sys.exit({error.code!r})"[:_MOST_ERROR], status=status)
        PROGRESS.come_to_end(FAILED if failed else ENDED)
        raise
    except BaseException as error:
        if heart is not None:
            heart.beat(error=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"[:_MOST_ERROR], status=1)
        _show(error)
        # The rest of the process may wait for others, so the launcher is told that nothing good comes of it.
        PROGRESS.come_to_end(FAILED)
        sys.exit(1)
    PROGRESS.come_to_end(ENDED)


def _heartbeat(folder: str) -> Heartbeat | None:
    """The heartbeat, where somebody listens."""
    pipe = os.environ.pop(PIPE_VARIABLE, "")
    if not pipe.isdigit():
        return None
    os.set_inheritable(int(pipe), False)
    heart = Heartbeat(int(pipe), folder)
    heart.start()
    return heart


def _folder(arguments: list[str]) -> str:
    """Folder of the program's own files."""
    return str(Path.cwd() if arguments[0] == "-m" else Path(arguments[0]).resolve().parent)


def _run(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = arguments
    program = Path(arguments[0])
    if program.is_dir() or program.suffix != ".py":
        runpy.run_path(str(program), run_name="__main__")
        return
    sys.path.insert(0, str(program.resolve().parent))
    code = compile(program.read_bytes(), str(program), "exec", dont_inherit=True)
    # A module that stays: what the program leaves to be done at the end still finds its names.
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=str(program), __builtins__=__builtins__)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _show(error: BaseException) -> None:
    """Print an error as Python does, without the calls that lead to the program."""
    trace = error.__traceback__
    own = {__file__, runpy.__file__, "<frozen runpy>"}
    while trace is not None and trace.tb_frame.f_code.co_filename in own:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


if __name__ == "__main__":
    main()
