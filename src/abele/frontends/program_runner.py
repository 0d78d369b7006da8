"""Programs that run unchanged: ``python -m abele.poptorch program.py``, and the same of the other front ends."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def run_program(usage: str, arguments: Sequence[str], install: Callable[[], None]) -> None:
    """Run a program, or a module after ``-m``, with the arguments after its name, as Python itself would.

    Args:
        usage: Line that is shown where no program is named, or help is asked for.
        arguments: The program and what it is given.
        install: Called before the program begins.

    Raises:
        SystemExit: No program is named, or there is no such file.
    """
    if not arguments or arguments[0] in ("-h", "--help") or list(arguments) == ["-m"]:
        sys.exit(usage)
    if arguments[0] != "-m" and not Path(arguments[0]).exists():
        sys.exit(f"there is no program {arguments[0]!r} in {Path.cwd()}\n{usage}")
    install()
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")
