"""``abele debug``: a Python program whose engine's runs are stepped through in the terminal."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from abele.errors import InvalidOptionError
from abele.words import counted, ordinal

if TYPE_CHECKING:
    from abele.report import CallTimes
    from abele.runtime import Engine


def debug(
    program: Annotated[Path, typer.Argument(help="The Python file.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the file is given.")] = None,
    run: Annotated[int, typer.Option(help="Which call of engine.run to step through, counted from 1.")] = 1,
    commands: Annotated[Path | None, typer.Option(help="Read debugger commands from a file.")] = None,
) -> None:
    """Run a Python file and step through its engine's run: breakpoints, tensors, tiles, forwards and backwards."""
    if not program.is_file():
        raise InvalidOptionError(f"there is no file {program}", remedy="abele debug PROGRAM.py")
    before, path = sys.argv, sys.path[:]
    sys.argv, sys.path[0] = [str(program), *(arguments or [])], str(program.resolve().parent)
    try:
        with _stepped(run, commands):
            runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before, path


@contextmanager
def _stepped(number: int, commands: Path | None) -> Iterator[None]:
    """Let call ``number`` of ``Engine.run`` open the debugger."""
    from abele.runtime import Engine

    plain, calls = Engine.run, 0

    def run(self: Engine, program: int | str = 0, name: str = "", *, times: CallTimes | None = None) -> bool:
        nonlocal calls
        calls += 1
        if calls != number:
            return plain(self, program, name, times=times)
        debugger = self.debug(program)
        if commands is None:
            debugger.interact()
        else:
            with commands.open(encoding="utf-8") as lines:
                debugger.interact(lines)
        return debugger.done

    # The program that is debugged calls this method itself, so that only replacing it can stop there.
    Engine.run = run  # type: ignore[method-assign]
    try:
        yield
    finally:
        # As above: the method is put back.
        Engine.run = plain  # type: ignore[method-assign]
        if calls < number:
            made = f"the program called engine.run {counted(calls, 'time')}; there was no {ordinal(number)} call"
            print(f"abele: {made}", file=sys.stderr)
