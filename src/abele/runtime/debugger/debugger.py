"""The superstep debugger: a program run step by step, forwards and backwards, with its memory open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.compiler import Executable
from abele.compiler.timeline import parts_of
from abele.errors import AbeleError, EngineError
from abele.graph import (
    Copy,
    CycleCount,
    Execute,
    HostCall,
    PrintTensor,
    Program,
    Sequence,
    Stream,
    Tensor,
    Variable,
    walk,
)
from abele.numerics import to_host
from abele.runtime.control.bytecode import Verdict
from abele.runtime.debugger.breakpoints import Breakpoint
from abele.runtime.debugger.history import History, Outcome
from abele.runtime.debugger.walk import Stack, Walker
from abele.runtime.host.access import Handle, checked_values, find_tensor
from abele.runtime.image import Host, Image, ImageOptions, build_image
from abele.runtime.lowering.timers import READ_OUT_CYCLES
from abele.runtime.supersteps.placed_groups import PlacedGroup
from abele.words import counted

if TYPE_CHECKING:
    from abele.runtime.engine.engine import Engine


# Leaves: the steps of a program made ready to run one at a time, on memory of their own.


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


HISTORY_BYTES = 1 << 29


class Debugger:
    """One run of one program of an engine, under control.

    The program starts from what the engine's memory holds, and runs on memory of its own: every vertex as placed, also
    those of library calls. :meth:`finish` hands the memory back to the engine.

    Args:
        engine: The engine.
        program: Position or name of the program.
        history_bytes: Memory for what steps changed; beyond it the oldest can no longer be taken back.

    Attributes:
        engine: The engine.
        program: The program.
        breakpoints: Reasons to stop, by number.
        position: Steps run so far.
        cycles: Modelled cycles so far.
        step_at_hand: The step that runs next; None at the end.
        reason: Why the program stopped last.
    """

    def __init__(self, engine: Engine, program: int | str = 0, *, history_bytes: int = HISTORY_BYTES) -> None:
        self.engine = engine
        deployment = engine.deployment
        self._index = deployment.index(program)
        self.program: Program = engine.executable.programs[self._index]
        self._leaves = Leaves(engine.executable, self.program, deployment.image_options, deployment.host)
        self._history = History(self._leaves.image, deployment.remote, history_bytes)
        self._walker = Walker(self.program, self._number)
        self._costs = _cycles_by_step(engine)
        self.breakpoints: dict[int, Breakpoint] = {}
        self._next_number = 1
        self._seen: dict[int, Outcome] = {}
        self._furthest = 0
        self.position, self.cycles, self.reason = 0, 0, ""
        deployment.lend(self._leaves.image, self._index)
        self._open = True
        self.step_at_hand: Program | None = self._walker.next_leaf(0)

    # --- running -----------------------------------------------------------------------------------------------------

    @property
    def stack(self) -> Stack:
        """The steps under way, outermost first."""
        return self._walker.stack

    @property
    def done(self) -> bool:
        """True if the program has ended."""
        return self.step_at_hand is None

    def step(self, count: int = 1) -> bool:
        """Run the next ``count`` steps, or fewer where a breakpoint says so; gives whether there is a next one.

        Raises:
            AbeleError: The step fails; memory is as it was before it.
        """
        self.reason = ""
        for done in range(count):
            if self.done or (done and self._stops_before()):
                break
            if self._run_one():
                break
        return not self.done

    def run(self) -> bool:
        """Run until a breakpoint says stop, or to the end; gives whether there is a next step."""
        self.reason, first = "", True
        while not self.done:
            if not first and self._stops_before():
                break
            if self._run_one():
                break
            first = False
        return not self.done

    def out(self) -> bool:
        """Run until the innermost loop, branch, call or library call is done; gives whether there is a next step."""
        around = [frame.serial for frame in self.stack if not isinstance(frame.node, Sequence)]
        self.reason, first = "", True
        while not self.done and (not around or any(f.serial == around[-1] for f in self.stack)):
            if (not first and self._stops_before()) or self._run_one():
                break
            first = False
        return not self.done

    def back(self, count: int = 1) -> int:
        """Take back the last ``count`` steps, or as many as history has; gives how many."""
        taken = 0
        while taken < count and len(self._history):
            change = self._history.take_back()
            self._walker.stack = change.stack
            self.step_at_hand, self.cycles = change.step, change.cycles
            self.position -= 1
            taken += 1
        self.reason = ""
        return taken

    def go_to(self, position: int) -> None:
        """Go to where ``position`` steps have run, backwards or forwards, past breakpoints.

        Raises:
            EngineError: History does not reach back so far, or the program ends before.
        """
        if position < self.position and self.position - position > len(self._history):
            raise EngineError(
                f"step {position} cannot be taken back: history begins at step {self.position - len(self._history)}",
                remedy="engine.debug(history_bytes=…) keeps more",
            )
        self.back(self.position - position)
        self.reason = ""
        while self.position < position and not self.done:
            self._execute_next()
        if self.position < position:
            raise EngineError(f"the program ends after {counted(self.position, 'step')}, before step {position}")

    def finish(self) -> None:
        """Run to the end, past breakpoints, and give the memory back to the engine."""
        while not self.done:
            self._execute_next()
        self.close()

    def close(self) -> None:
        """Give the memory, in its present state, back to the engine; nothing can be run any more."""
        if self._open:
            self._open = False
            self.engine.deployment.take_back(self._leaves.image, self._index)
            self._leaves.image.machine.close()

    def _stops_before(self) -> bool:
        step = self.step_at_hand
        assert step is not None
        found = next(filter(None, (b.before(step, self) for b in self.breakpoints.values())), None)
        self.reason = f"breakpoint: {found}" if found else ""
        return found is not None

    def _run_one(self) -> bool:
        """Run the next step; gives whether a breakpoint stops after it."""
        step = self.step_at_hand
        assert step is not None
        for breakpoint_ in self.breakpoints.values():
            breakpoint_.before(step, self)
        self._execute_next()
        found = next(filter(None, (b.after(step, self) for b in self.breakpoints.values())), None)
        self.reason = found or ""
        return found is not None

    def _execute_next(self) -> None:
        if not self._open:
            raise EngineError("the debugger has given its memory back", remedy="engine.debug() starts another run")
        step = self.step_at_hand
        assert step is not None
        change = self._history.note(step, self.stack, self.cycles)
        try:
            if self.position < self._furthest and _meets_host(step):
                self._seen[self.position].apply(self._history)
            elif isinstance(step, CycleCount):
                self._store_cycles(step)
            else:
                self._leaves.run(step)
        except BaseException:
            self._history.take_back()
            raise
        if _meets_host(step) and self.position >= self._furthest:
            self._seen[self.position] = self._history.outcome(change)
        self.cycles += self._costs.get(step, 0)
        self.position += 1
        self._furthest = max(self._furthest, self.position)
        try:
            self.step_at_hand = self._walker.next_leaf(self.cycles)
        except AbeleError:
            self.back()
            raise

    def _store_cycles(self, step: CycleCount) -> None:
        elapsed = self.cycles - self.stack[-1].mark + READ_OUT_CYCLES
        self._leaves.image.arena.write_all(step.result, np.array([elapsed & 0xFFFFFFFF, elapsed >> 32], np.uint32))

    def interact(self, commands: IO[str] | None = None, output: IO[str] | None = None) -> None:
        """Serve commands in the terminal (or from a file) until ``quit``; the engine then has its memory back."""
        from abele.runtime.debugger.terminal import Terminal

        Terminal(self, commands, output).interact()

    # --- breakpoints -------------------------------------------------------------------------------------------------

    def add(self, breakpoint_: Breakpoint) -> int:
        """Stop for a reason from now on; gives its number."""
        number, self._next_number = self._next_number, self._next_number + 1
        self.breakpoints[number] = breakpoint_
        return number

    # --- memory ------------------------------------------------------------------------------------------------------

    def read(self, handle: Handle) -> npt.NDArray[Any]:
        """A copy of a tensor, by host handle, name of variable, or itself; with replicas [replicas, *shape].

        Raises:
            EngineError: No such variable.
        """
        tensor = find_tensor(self.engine.graph, handle)
        return to_host(self._leaves.image.arena.read_all(tensor), tensor.dtype)

    def write(self, handle: Handle, values: npt.ArrayLike) -> None:
        """Set a tensor. Taking steps back does not take this back where they did not write it.

        Raises:
            EngineError: No such variable.
            ConstantWriteError: It is constant.
            TensorError: The shape differs.
        """
        tensor = find_tensor(self.engine.graph, handle)
        self._leaves.image.arena.write_all(tensor, checked_values(tensor, values))

    def written(self, step: Program) -> Iterator[tuple[Variable, npt.NDArray[Any], npt.NDArray[Any]]]:
        """Variables that a step writes, the numbers of their elements, and the present values, [replicas, k]."""
        elements = self._history.elements(step)
        for part, values in zip(elements.parts, self._history.values(elements), strict=True):
            yield part.variable, part.index, values

    def placed(self, step: Program) -> list[PlacedGroup]:
        """The vertices of a step with their tables; none if it is no Execute."""
        if not isinstance(step, Execute):
            return []
        return [g for g in self._leaves.image.supersteps.placed if g.compute_set is step.compute_set]

    def _number(self, tensor: Tensor) -> int:
        values = self._leaves.image.arena.read_all(tensor).reshape(-1)
        return int(values[0])


def _meets_host(step: Program) -> bool:
    """True if the host sees a step, so that it must not happen twice."""
    ends = (step.source, step.destination) if isinstance(step, Copy) else ()
    return isinstance(step, HostCall | PrintTensor) or any(isinstance(e, Stream) for e in ends)


def _cycles_by_step(engine: Engine) -> dict[Program, int]:
    executable = engine.executable
    cycles = [sum(p.cycles for p in parts_of(s, executable.system)) for s in executable.plan]
    return {step.node: cycles[step.superstep] for step in executable.steps if is_leaf(step.node)}
