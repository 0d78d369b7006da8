"""Main program of a rank's own process: a Python program, run as Python would, with a heartbeat beside it.

``python -P -m abele.launch.program (program.py | -m module) [arguments]``. Programs may say ``import poptorch``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from abele.job.progress import ENDED, FAILED, PROGRESS
from abele.launch.heartbeat import Heartbeat

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
