"""Image: everything that an engine needs in memory to run its programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from abele.codelet import compile_codelet
from abele.compiler import Executable
from abele.compiler.compile import collector_paused
from abele.graph import LibraryCall, Program, StashCopy, Steps, Variable
from abele.runtime.checks.checking import Checking, Checks
from abele.runtime.checks.ended_vertices import VertexEnds
from abele.runtime.checks.overruns import Overruns
from abele.runtime.checks.untrusted_codelets import UntrustedVertices
from abele.runtime.control.bytecode import Verdict
from abele.runtime.control.leaf import Leaf
from abele.runtime.control.virtual_machine import Callbacks, VirtualMachine, WorkingMemory
from abele.runtime.host.functions import HostFunctions
from abele.runtime.host.remote_memory import RemoteMemory
from abele.runtime.lowering.lower import LoweringContext
from abele.runtime.lowering.tallies import Tallies
from abele.runtime.lowering.timers import Clock
from abele.runtime.memory.arena import Arena
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.memory.host_memory import physical_bytes
from abele.runtime.native.fusion import Storage
from abele.runtime.native.plan_runs import HostKernels
from abele.runtime.ranks.group import Ranks
from abele.runtime.supersteps.float_behaviour import CHECKS, Behaviour
from abele.runtime.supersteps.native_supersteps import NativeSupersteps, VertexPrints
from abele.runtime.supersteps.placed_groups import CountedVertices
from abele.runtime.supersteps.seeds import Seeds


@dataclass(frozen=True, eq=False, slots=True)
class RunCounts:
    """Counts of one whole run.

    Attributes:
        program: The program that ran.
        words: Times that each way was taken that data decides, int64[words] as bytes; see ``Tallies``.
        vertices: Issue slots of vertices whose cost depends on data.
    """

    program: int
    words: bytes
    vertices: tuple[CountedVertices, ...]


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
        reordered: Variables whose order of elements only host kernels know.
        listing: Leaves and kernels as text.
        leaf_names: Names of leaves, by the first register of their arguments.
        behaviour: The floating-point behaviour.
        seeds: Seeds by which f16 results are rounded at random.
        clock: Modelled cycles.
        tallies: Ways that the last run took.
        checking: Checks that no IPU gives.
        overruns: Accesses of vertices outside their fields.
        ends: Vertices that ended before their time.
        untrusted: Vertices whose codelets come from files.
        seed: Number from which the seeds are made at load.
    """

    arena: Arena
    machine: VirtualMachine
    entries: list[int]
    callbacks: Callbacks
    supersteps: NativeSupersteps
    fused: frozenset[Variable]
    reordered: frozenset[Variable]
    listing: str
    behaviour: Behaviour
    seeds: Seeds
    clock: Clock
    tallies: Tallies
    checking: Checking
    overruns: Overruns
    ends: VertexEnds
    untrusted: UntrustedVertices
    leaf_names: Mapping[int, str]
    seed: int = 0

    def load(self) -> None:
        """Set initial contents of variables, state of vertices, the floating-point behaviour and the clock."""
        self.arena.load()
        for group in self.supersteps.placed:
            group.reset()
        self.behaviour.reset()
        self.seeds.reset(self.seed)
        self.clock.reset()
        self.checking.load()

    def begin_run(self) -> None:
        """A run is about to start."""
        self.tallies.begin()

    def end_run(self, program: int, verdict: Verdict) -> RunCounts | None:
        """End a run of a program; gives its counts, if it came to its end."""
        self.supersteps.learn()
        if verdict is not Verdict.DONE:
            self.supersteps.drop_slots()
            return None
        return RunCounts(program, self.tallies.counted(), tuple(self.supersteps.take_slots()))


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """Options by which an image is built.

    Attributes:
        native: Let host kernels carry out library calls.
        num_threads: Host threads.
        debug: Run vertices as plain Python.
        keep: Variables that the host wants to read although only fused kernels touch them.
        checks: Checks that no IPU gives.
        behaviour: Bits of the floating-point behaviour that are on at load.
        seed: Number from which the seeds of random rounding are made at load.
    """

    native: bool
    num_threads: int
    debug: bool
    keep: frozenset[Variable]
    checks: Checks = field(default_factory=Checks)
    behaviour: int = 0
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Host:
    """Host side of programs: prints, remote buffers, functions, other ranks.

    Attributes:
        print_text: Writes a line for the user.
        remote: The remote buffers.
        functions: The host functions.
        ranks: The processes that share the replicas; None where there is one.
    """

    print_text: Callable[[str], None]
    remote: RemoteMemory
    functions: HostFunctions
    ranks: Ranks | None = None


def silent(stage: str, fraction: float) -> None:
    """Progress that is not shown."""


_STASHES = 0.5
"""Share of a host's memory that stashes may take. With less, hosts make again what the machine makes again."""


def _has_room(programs: Iterable[Program], arena: Arena) -> bool:
    """True if this computer has the memory for the stashes of all replicas."""
    stashes, seen, waiting = set[Variable](), set[Program](), list(programs)
    # Functions are called in many places, and looked at once.
    while waiting:
        step = waiting.pop()
        if step in seen:
            continue
        seen.add(step)
        if isinstance(step, StashCopy):
            stashes.add(step.variable)
        if not isinstance(step, LibraryCall):
            waiting += step.children()
        if isinstance(step, Steps) and step.host_body is not None:
            waiting.append(step.host_body)
    return arena.replicas * sum(v.size * v.dtype.bytes for v in stashes) <= _STASHES * physical_bytes()


@collector_paused()
def build_image(
    executable: Executable, options: ImageOptions, host: Host, progress: Callable[[str, float], None] = silent
) -> Image:
    """Lower the programs of an executable, lay out its variables and load their initial contents."""
    programs, graph = executable.programs, executable.graph
    arena, callbacks, memory, effects = (
        Arena(graph.variables, host.remote.share.count, host.remote.share),
        Callbacks(),
        WorkingMemory(),
        EffectsOf(),
    )
    # Vertices first: everything after asks where they are and how they run.
    prints = VertexPrints(callbacks, host.print_text)
    placed = NativeSupersteps(arena, compile_codelet, executable.system.ipu, options.num_threads, prints)
    checking = Checking(options.checks)
    supersteps = checking.supersteps(placed, callbacks, options.debug)
    behaviour, clock = Behaviour(programs, options.behaviour), Clock.of(executable)
    # Storage is decided before lowering: fused kernels may leave variables out, or store them in another order.
    may_place = bool(behaviour.possible & CHECKS)
    storage = None
    if options.native:
        watched = options.checks.any or options.debug
        storage = Storage(
            programs,
            effects,
            arena,
            options.keep,
            may_place=may_place,
            watched=watched,
            stashes=_has_room(programs, arena),
        )
        arena.store_in(storage.orders)
    native = HostKernels(arena, effects, storage, memory) if storage is not None else None
    seeds = Seeds((graph.num_tiles, graph.system.ipu.num_workers), arena.replicas)
    context = LoweringContext(
        arena=arena,
        supersteps=supersteps,
        fuser=native,
        effects=effects,
        callbacks=callbacks,
        print_text=host.print_text,
        remote=host.remote,
        functions=host.functions,
        behaviour=behaviour,
        seeds=seeds,
        clock=clock,
        threads=options.num_threads,
        ranks=host.ranks,
    )
    # Programs before functions: lowering a program finds the functions that it calls.
    lowering = checking.lowering(context, programs, graph, placed)
    entries = []
    for number, program in enumerate(programs):
        progress("code", number / len(programs))
        entries.append(lowering.program(program))
    lowering.functions()
    machine = VirtualMachine(lowering.emitter, callbacks, options.num_threads, memory)
    fused, reordered = (storage.fused, storage.reordered) if storage is not None else (frozenset(), frozenset())
    text = _listing(lowering.emitter.leaves, native)
    image = Image(
        arena=arena,
        machine=machine,
        entries=entries,
        callbacks=callbacks,
        supersteps=placed,
        fused=fused,
        reordered=reordered,
        listing=text,
        behaviour=behaviour,
        seeds=seeds,
        clock=clock,
        tallies=lowering.tallies,
        checking=checking,
        overruns=Overruns(arena, placed.placed, compile_codelet),
        ends=VertexEnds(placed.placed, compile_codelet),
        untrusted=UntrustedVertices(placed.placed),
        leaf_names={register: leaf.name for leaf, register in lowering.emitter.leaves.items()},
        seed=options.seed,
    )
    image.load()
    progress("code", 1.0)
    return image


def _listing(leaves: Iterable[Leaf], native: HostKernels | None) -> str:
    lines = [f"{leaf.address:#x}  {leaf.units:>8} units  {leaf.name}" for leaf in leaves]
    return "\n".join([*lines, native.listing] if native is not None else lines)
