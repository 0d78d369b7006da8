"""Leaves: the steps of a program made ready to run one at a time, on memory of their own."""

from __future__ import annotations

from dataclasses import replace

from abele.compiler import Executable
from abele.graph import CycleCount, Program, Sequence, walk
from abele.runtime.control.bytecode import Verdict
from abele.runtime.image import Host, Image, ImageOptions, build_image


class Leaves:
    """An image in which every leaf of a program is an entry of its own.

    Args:
        executable: The compiled programs.
        program: The one to debug.
        options: Options of the image; host kernels are never used.
        host: Host side of the program.

    Attributes:
        image: The image.
    """

    def __init__(self, executable: Executable, program: Program, options: ImageOptions, host: Host) -> None:
        steps = tuple(dict.fromkeys(s for s in walk(program) if is_leaf(s)))
        names = tuple(str(number) for number in range(len(steps)))
        apart = replace(executable, programs=steps, program_names=names)
        self.image: Image = build_image(apart, replace(options, native=False), host)
        self._entries = dict(zip(steps, self.image.entries, strict=True))

    def run(self, step: Program) -> None:
        """Run one leaf.

        Raises:
            Exception: Error of a callback.
        """
        machine = self.image.machine
        machine.start(self._entries[step])
        verdict = machine.wait()
        failure = self.image.callbacks.take_error()
        if failure is not None:
            raise failure
        assert verdict is not Verdict.FAILED


def is_leaf(step: Program) -> bool:
    """True if a step does something itself; a timed program is run by the debugger around its body."""
    return not step.children() and not isinstance(step, Sequence | CycleCount)
