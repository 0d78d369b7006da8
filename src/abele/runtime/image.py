"""Image: everything that an engine needs in memory to run its programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from abele.codelet import compile_codelet
from abele.compiler import Executable
from abele.graph import Execute, PrintTensor, Variable
from abele.runtime.arena import Arena
from abele.runtime.callbacks import Callbacks
from abele.runtime.effects import EffectsOf
from abele.runtime.fusion import Storage
from abele.runtime.interpreted import InterpretedSupersteps
from abele.runtime.leaf import Leaf
from abele.runtime.lower import Lowering
from abele.runtime.machine import Machine, WorkingMemory
from abele.runtime.native import Native
from abele.runtime.supersteps import Supersteps


@dataclass(eq=False)
class Image:
    """Code and data of an engine.

    Attributes:
        arena: The variables.
        machine: The virtual machine with the programs' code.
        entries: First instruction of each program.
        callbacks: Python that the code calls.
        supersteps: Vertex groups as placed, and the memory that they are gathered in.
        fused: Variables that exist only inside fused kernels.
        listing: Leaves and kernels as text.
    """

    arena: Arena
    machine: Machine
    entries: list[int]
    callbacks: Callbacks
    supersteps: Supersteps
    fused: frozenset[Variable]
    listing: str

    def load(self) -> None:
        """Set initial contents of variables and state of vertices."""
        self.arena.load()
        for group in self.supersteps.placed:
            group.reset()

    def record_counts(self, executable: Executable) -> None:
        """Tell the executable the issue slots that data-dependent codelets were counted to take."""
        for number, superstep in enumerate(executable.plan):
            node = superstep.node
            if not superstep.estimated or not isinstance(node, Execute):
                continue
            mine = [g for g in self.supersteps.placed if g.compute_set is node.compute_set]
            counted = {g.position: slots for g in mine if (slots := g.mean_slots) is not None}
            if counted:
                executable.record_counts(number, counted)


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How an image is built.

    Attributes:
        native: Let host kernels carry out library calls.
        num_threads: Host threads.
        debug: Run vertices as plain Python.
        keep: Variables that the host wants to read although only fused kernels touch them.
    """

    native: bool
    num_threads: int
    debug: bool
    keep: frozenset[Variable]


def build_image(
    executable: Executable,
    options: ImageOptions,
    print_tensor: Callable[[PrintTensor], None],
    progress: Callable[[str, float], None],
) -> Image:
    """Lower the programs of an executable, lay out its variables and load their initial contents."""
    programs = executable.programs
    arena, callbacks, memory, effects = Arena(executable.graph.variables), Callbacks(), WorkingMemory(), EffectsOf()
    placed = Supersteps(arena, compile_codelet)
    supersteps = InterpretedSupersteps(placed, callbacks) if options.debug else placed
    storage = Storage(programs, effects, arena, options.keep) if options.native else None
    native = Native(arena, effects, storage, memory) if storage is not None else None
    lowering = Lowering(arena, supersteps, native, _printer(callbacks, print_tensor), effects, programs)
    entries = []
    for number, program in enumerate(programs):
        progress("code", number / len(programs))
        entries.append(lowering.program(program))
    lowering.functions()
    machine = Machine(lowering.emitter, callbacks, options.num_threads, memory)
    fused = storage.fused if storage is not None else frozenset()
    text = _listing(lowering.emitter.leaves, native)
    image = Image(arena, machine, entries, callbacks, placed, fused, text)
    image.load()
    progress("code", 1.0)
    return image


def _listing(leaves: Iterable[Leaf], native: Native | None) -> str:
    lines = [f"{leaf.address:#x}  {leaf.units:>8} units  {leaf.name}" for leaf in leaves]
    return "\n".join([*lines, native.listing] if native is not None else lines)


def _printer(callbacks: Callbacks, print_tensor: Callable[[PrintTensor], None]) -> Callable[[PrintTensor], int]:
    """Gives each step that prints the number of a callback of its own."""
    return lambda step: callbacks.add(lambda: print_tensor(step))
