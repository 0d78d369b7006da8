"""Lowering: from control programs to bytecode over leaves.

One walk over the program tree, step by step in program order; each kind of step registers what it becomes. Replicas
are no loop: every step is emitted once for all, with a leaf or a unit per replica, and whatever steers is the same in
all of them, or the run ends. A function that is called once is put in place; others are emitted after all programs and
called. Their code is shared, so it assumes the worst of its callers: that a step is under way which has written state
already, so that no run stops inside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from abele.codelet.rounding import NEAREST, Rounding
from abele.errors import RankDisagreementError
from abele.graph import (
    AssumeEqualAcrossReplicas,
    Block,
    Call,
    ComputeSet,
    Copy,
    CrossReplicaCopy,
    CrossReplicaExchange,
    Function,
    HostLoop,
    HostOrder,
    LibraryCall,
    Program,
    Steps,
    Sync,
    Variable,
    WriteUndef,
    walk,
)
from abele.graph.elements import elements_of
from abele.graph.interval_set import IntervalSet
from abele.graph.meanings import Meanings
from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.leaf import Phase
from abele.runtime.control.virtual_machine import Callbacks
from abele.runtime.host.functions import HostFunctions
from abele.runtime.host.remote_memory import RemoteMemory
from abele.runtime.lowering import float_modes, host_steps, steering, timers, transfers
from abele.runtime.lowering.stops import step_scopes
from abele.runtime.lowering.tallies import Tallies
from abele.runtime.lowering.timers import Clock
from abele.runtime.memory.arena import Arena, MemoryPieces
from abele.runtime.memory.effects import EffectsOf
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.native.fusion import Replaced, flattened
from abele.runtime.native.plan_runs import NO_STRIDES, FusedRun, RunKernels
from abele.runtime.ranks.group import RankMessage, Ranks
from abele.runtime.supersteps.copy_leaves import contiguous, copy_leaf, copy_phases, joined, paired
from abele.runtime.supersteps.float_behaviour import Behaviour
from abele.runtime.supersteps.placed_groups import SuperstepWatch
from abele.runtime.supersteps.seeds import Seeds

# Meetings: where the processes that share a program's replicas need each other.
#
# A copy between replicas is three steps in each process: native leaves gather what its replicas send to other
# processes into one buffer for each of them, and copy what stays; MPI moves the buffers; leaves scatter what arrived.
# The program is the same everywhere and replicas are numbered alike, so sender and receiver lay a buffer out in one
# order without asking. The first words of every buffer say which copy it belongs to and how many meetings the two had
# before it. Those that have come apart are told so at once, before anything they sent is used.

_HEADER_BYTES = 64
"""Words before the data: a whole line, so that data is aligned."""


@dataclass(frozen=True, slots=True)
class _Packed:
    """Message that one process sends another in one copy, or gets from it.

    Attributes:
        buffer: The message with its header, uint8[bytes]; empty where there is nothing.
        pieces: Places of its data in the variables, in the order of the message.
    """

    buffer: npt.NDArray[np.uint8]
    pieces: MemoryPieces

    @staticmethod
    def of(pieces: Sequence[MemoryPieces]) -> _Packed:
        """The message of some pieces."""
        found = joined(pieces) if pieces else contiguous(0, 0)
        return _Packed(aligned_block(_HEADER_BYTES + found.total_bytes if pieces else 0), found)

    @property
    def header(self) -> npt.NDArray[np.int64]:
        """The copy's number, how many meetings the two had before, and bytes."""
        return self.buffer[:24].view(np.int64)

    @property
    def data(self) -> MemoryPieces:
        """The buffer behind the header, as one piece."""
        return contiguous(address_of(self.buffer) + _HEADER_BYTES, self.pieces.total_bytes)


class Meetings:
    """The meetings of a program in this process, in the order in which they are lowered.

    Args:
        ranks: The processes.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._names: list[str] = []
        self._counts: Counter[int] = Counter()

    def every(self, words: bytes, step: Program) -> list[bytes]:
        """Words of each process at a step that steers the program."""
        return self._ranks.gather(words, step.debug.full_name)

    def copy(
        self, step: CrossReplicaCopy | CrossReplicaExchange, arena: Arena, emitter: Emitter, callbacks: Callbacks
    ) -> None:
        """Lower copies between replicas of all processes, in one meeting."""
        share = arena.share
        name = f"{step.debug.full_name} into {step.copies[0].destination.variables[0].name}"
        writes = IntervalSet.union(elements_of(copy.destination) for copy in step.copies)
        outward: dict[int, list[MemoryPieces]] = {}
        inward: dict[int, list[tuple[tuple[int, int], MemoryPieces]]] = {}
        stays: list[tuple[MemoryPieces, MemoryPieces]] = []
        # Sort what this process's replicas send and receive: by the other rank, or as a copy within the process.
        for number, copy in enumerate(step.copies):
            source_of = {to: sender for sender, to in copy.map.items()}
            for own, replica in enumerate(share.replicas):
                to, sender = copy.map[replica], source_of[replica]
                if to in share.replicas:
                    destination = arena.pieces_of(copy.destination, to - share.first)
                    stays.append((arena.pieces_of(copy.source, own), destination))
                else:
                    outward.setdefault(share.owner(to), []).append(arena.pieces_of(copy.source, own))
                if sender not in share.replicas:
                    arriving = ((number, sender), arena.pieces_of(copy.destination, own))
                    inward.setdefault(share.owner(sender), []).append(arriving)
        # Messages are in the order of the copies and their senders' replicas, which both ends know.
        sent = {rank: _Packed.of(pieces) for rank, pieces in outward.items()}
        received = {
            rank: _Packed.of([p for _, p in sorted(arriving, key=lambda item: item[0])])
            for rank, arriving in inward.items()
        }
        # Pack, copy at home, exchange, unpack. Packing comes first, as a copy may overwrite what another sends.
        gather: Phase = tuple(
            copy_leaf(f"{name} (to rank {rank})", paired(side.pieces, side.data)).keeping(side.buffer)
            for rank, side in sent.items()
        )
        scatter: Phase = tuple(
            copy_leaf(f"{name} (from rank {rank})", paired(side.data, side.pieces), writes).keeping(side.buffer)
            for rank, side in received.items()
        )
        if gather:
            emitter.phase(gather)
        if stays:
            ends = joined([source for source, _ in stays]), joined([to for _, to in stays])
            emitter.phases(copy_phases(name, *ends, writes))
        # A process whose replicas all keep to themselves has nobody to meet.
        if sent or received:
            emitter.callback(callbacks.add(self._exchange(name, sent, received)))
        if scatter:
            emitter.phase(scatter)

    def _exchange(self, name: str, sent: dict[int, _Packed], received: dict[int, _Packed]) -> _Exchange:
        self._names.append(name)
        number = len(self._names) - 1
        nothing = np.empty(0, np.uint8)
        messages = tuple(
            RankMessage(
                rank,
                sent[rank].buffer if rank in sent else nothing,
                received[rank].buffer if rank in received else nothing,
            )
            for rank in sorted(sent.keys() | received.keys())
        )
        return _Exchange(self, number, name, messages, sent, received)

    def run(self, exchange: _Exchange) -> None:
        """Carry out one exchange.

        Raises:
            RankDisagreementError: Another process is elsewhere in the program.
            RankLostError: Another process does not come.
        """
        for rank, side in exchange.sent.items():
            side.header[:] = exchange.number, self._counts[rank], side.pieces.total_bytes
        self._ranks.exchange(exchange.messages, exchange.name)
        for rank, side in exchange.received.items():
            number, count, size = side.header.tolist()
            if (number, count, size) != (exchange.number, self._counts[rank], side.pieces.total_bytes):
                raise self._apart(rank, number, count, exchange)
        self._counts.update(message.rank for message in exchange.messages)

    def _apart(self, rank: int, number: int, count: int, exchange: _Exchange) -> RankDisagreementError:
        there = self._names[number] if 0 <= number < len(self._names) else "another program"
        return RankDisagreementError(
            f"rank {rank} is at {there!r}, rank {self._ranks.rank} at {exchange.name!r}",
            because=f"they have met {self._counts[rank]} times by the count of the one, {count} by that of the other",
            remedy="let all ranks make the same calls in the same order",
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Exchange:
    """Messages of one copy; called when a run comes to it.

    Attributes:
        meetings: Those of the process.
        number: Its number among copies.
        name: Of the step.
        messages: As the ranks take them.
        sent: By rank.
        received: By rank.
    """

    meetings: Meetings
    number: int
    name: str
    messages: tuple[RankMessage, ...]
    sent: dict[int, _Packed]
    received: dict[int, _Packed]

    def __call__(self) -> None:
        self.meetings.run(self)


class SuperstepEmitter(Protocol):
    """Emits compute sets: as native leaves, or as calls back to interpreted vertices."""

    def emit(
        self,
        compute_set: ComputeSet,
        emitter: Emitter,
        watch: SuperstepWatch | None = None,
        rounding: Rounding = NEAREST,
        seeds: Seeds | None = None,
    ) -> None:
        """Append the code that executes the compute set.

        Args:
            compute_set: The vertices.
            emitter: Emitter of the code.
            watch: Watch of the superstep before and after the vertices run.
            rounding: Rounding of results to narrow floats.
            seeds: Seeds of random rounding, where that is on.
        """


class Fuser(Protocol):
    """Finds the steps of a straight run that host kernels carry out."""

    def flattened(self, steps: Steps, replaced: Replaced) -> tuple[Program, ...]:
        """The steps of a sequence as they run; ``replaced`` hears of sequences that the host's own stand in for."""

    def stands_in(self, host_body: Steps) -> bool:
        """True if a host's steps run in place of others, where the behaviour allows it."""

    def parts(
        self, steps: Sequence[Program], strides: Mapping[Variable, int] = NO_STRIDES
    ) -> Iterable[Program | FusedRun]:
        """The steps in order, some of them replaced; variables move on in the loop around them as ``strides`` says."""

    def keeps_host_order(self, variable: Variable) -> bool:
        """True if a variable always has the order that host bodies give it."""


@dataclass(frozen=True, eq=False)
class LoweringContext:
    """Memory, emitters and host side of the programs that are lowered.

    Attributes:
        arena: Memory of the variables.
        supersteps: Emits compute sets.
        fuser: Replaces library calls by host kernels; None runs the body of each.
        effects: Elements that steps touch.
        callbacks: Python that the code may call.
        print_text: Writes a line for the user.
        remote: Memory of the remote buffers.
        functions: The host functions.
        behaviour: The floating-point behaviour.
        seeds: Seeds by which f16 results are rounded at random.
        clock: Modelled cycles.
        threads: Host threads.
        ranks: The processes that share the replicas; None where there is one.
    """

    arena: Arena
    supersteps: SuperstepEmitter
    fuser: Fuser | None
    effects: EffectsOf
    callbacks: Callbacks
    print_text: Callable[[str], None]
    remote: RemoteMemory
    functions: HostFunctions
    behaviour: Behaviour
    seeds: Seeds
    clock: Clock
    threads: int
    ranks: Ranks | None = None


class ProgramLowering:
    """Turns programs into one piece of bytecode. Replicas share it: every step does its work for all of them.

    Args:
        context: Context that the programs are lowered into.
        programs: All programs that will be lowered.

    Attributes:
        emitter: The code so far.
        context: Context that the programs are lowered into.
        scopes: Loops (and the program) whose rounds are steps, with the state that rounds leave.
        tallies: Counts of ways that data decides.
        copies: Leaves of copies on the device, which steps that occur more than once share.
        meetings: Exchanges with the other processes that have replicas of the program; None where there is one process.
    """

    def __init__(self, context: LoweringContext, programs: Sequence[Program]) -> None:
        self.emitter = Emitter(context.threads)
        self.context = context
        self.scopes: dict[Program, IntervalSet] = {}
        nodes = {s for p in programs for s in walk(p)}
        self.tallies = Tallies(nodes)
        self.copies: dict[Copy, tuple[Phase, ...]] = {}
        self.meetings = None if context.ranks is None else Meetings(context.ranks)
        self._functions: dict[Function, tuple[int, int]] = {}
        self._num_calls = Counter(c.function for c in nodes if isinstance(c, Call))

    def program(self, program: Program) -> int:
        """Lower a program; returns the number of its first instruction."""
        entry = self.emitter.assembler.here
        self.scopes = step_scopes(program, self.context.effects)
        with self.emitter.whole():
            with self.emitter.step_scope(self.scopes[program]):
                self.step(program)
            self.emitter.fence()
            self.emitter.assembler.emit(Opcode.HALT)
        return entry

    def functions(self) -> None:
        """Lower the bodies of all functions called so far, and of those that they call."""
        self.scopes, done = {}, 0
        while done < len(self._functions):
            function, (label, register) = list(self._functions.items())[done]
            self.emitter.assembler.place(label)
            # The body is shared by all calls, so it cannot know whether a step has written state before it.
            self.emitter.dirty = True
            with self.emitter.whole():
                self.step(function.body)
                self.emitter.fence()
                self.emitter.assembler.emit(Opcode.RET, register)
            done += 1

    def step(self, step: Program) -> None:
        """Lower one step with all that is inside.

        Raises:
            ControlProgramError: It is of a kind that the engine does not know.
        """
        self._emit(step)
        if not step.children():
            self.tick(step)

    def _emit(self, step: Program) -> None:
        """Code of a step; its instructions are noted as its own, unless an inner step does."""
        emitter = self.emitter
        outer, emitter.step = emitter.step, step
        STEPS.of(step)(self, step)
        emitter.step = outer

    def tick(self, step: Program) -> None:
        """Advance the clock by the cycles of a step itself on the machine."""
        self.context.clock.tick(step, self.emitter)

    # --- straight code -----------------------------------------------------------------------------------------------

    def sequence(self, steps: Steps) -> None:
        """Lower steps after each other."""
        fuser = self.context.fuser
        replaced = self.context.clock.stand_in
        self.parts(tuple(flattened(steps)) if fuser is None else fuser.flattened(steps, replaced))

    def parts(self, steps: Sequence[Program]) -> None:
        """Lower steps after each other; library calls become host kernels where there is a fuser."""
        fuser = self.context.fuser
        for part in steps if fuser is None else fuser.parts(steps):
            match part:
                case FusedRun():
                    self._fused(part)
                case LibraryCall(host_body=Steps() as host_body) if fuser is not None:
                    self._host_body(part, host_body)
                case Steps(host_body=Steps() as host_body) if fuser is not None and fuser.stands_in(host_body):
                    self._host_steps(part, host_body)
                case Steps():
                    self.sequence(part)
                case LibraryCall():
                    with self.emitter.inside(part):
                        self.sequence(part.body)
                case _:
                    self.step(part)

    def _host_body(self, call: LibraryCall, host_body: Steps) -> None:
        """Emit the host's form of a call's body; the clock advances as for the body."""
        with self.emitter.inside(call):
            for step in flattened(host_body):
                self._emit(step)
        self.context.clock.tick_all(call, self.emitter)

    def _host_steps(self, steps: Steps, host_body: Steps) -> None:
        """Host kernels in place of other steps, unless the behaviour requires vertices."""
        bits = self.context.behaviour.concerns([s for s in walk(host_body) if isinstance(s, LibraryCall)])

        def on_host() -> None:
            self.emitter.expect_writes(self.context.effects(steps).written)
            self.sequence(host_body)
            self.context.clock.tick_all(steps, self.emitter)

        if bits:
            float_modes.either(self, bits, lambda: self.sequence(steps), on_host)
        else:
            on_host()

    def host_loop(self, loop: HostLoop) -> None:
        """Trips of host kernels, whose arguments move on with every trip."""
        assert self.context.fuser is not None
        parts = self.context.fuser.parts(tuple(flattened(loop.body)), loop.strides)
        runs = [part for part in parts if isinstance(part, FusedRun)]
        behaviour = self.context.behaviour
        planned = [run.kernels(way) for run in runs for way in behaviour.ways(behaviour.roundings(run.steps))]
        leaves = [leaf for kernels in planned for phases in kernels.phases for phase in phases for leaf in phase]
        with self.emitter.stepped(loop.count, leaves):
            for run in runs:
                self._kernels(run)

    def host_order(self, order: HostOrder) -> None:
        """Another order of a variable, where anything but host bodies sees which one it has."""
        assert self.context.fuser is not None
        if not self.context.fuser.keeps_host_order(order.variable):
            for copy in order.steps:
                self.parts((copy,))

    def _fused(self, fused: FusedRun) -> None:
        bits = self.context.behaviour.concerns(fused.steps)
        if not bits:
            self._kernels(fused)
            return
        # Only the vertices know what the present behaviour asks for.
        float_modes.either(self, bits, lambda: self._bodies(fused), lambda: self._kernels(fused))

    def _bodies(self, fused: FusedRun) -> None:
        for step in fused.steps:
            if isinstance(step, LibraryCall):
                with self.emitter.inside(step):
                    self.sequence(step.body)
            else:
                self.step(step)
        self.emitter.fence()

    def _kernels(self, fused: FusedRun) -> None:
        """Host kernels, their results rounded as the behaviour says."""
        bits = self.context.behaviour.roundings(fused.steps)
        float_modes.each_rounding(self, bits, lambda rounding: self._rounded(fused.kernels(rounding)))
        for step in fused.steps:
            self.context.clock.tick_all(step, self.emitter)

    def _rounded(self, kernels: RunKernels) -> None:
        with float_modes.drawing(self, kernels.seeds, kernels.offset):
            last = len(kernels.phases) - 1
            for replica, phases in enumerate(kernels.phases):
                for use in kernels.uses:
                    transfers.open_stream(self, use, replica)
                self.emitter.stash_rows(leaf for phase in phases for leaf in phase)
                self.emitter.phases(phases)
                for use in kernels.uses:
                    transfers.close_stream(self, use, replica, last)

    # --- functions ---------------------------------------------------------------------------------------------------

    def call(self, call: Call) -> None:
        """Lower a call: arguments are copied in, results out."""
        for copy in call.copies_in:
            self.step(copy)
        self._body(call.function)
        for copy in call.copies_out:
            self.step(copy)

    def _body(self, function: Function) -> None:
        if self._num_calls[function] == 1:
            self.step(function.body)
            return
        assembler = self.emitter.assembler
        if function not in self._functions:
            self._functions[function] = (assembler.label(), assembler.register())
        label, register = self._functions[function]
        self.emitter.fence()
        assembler.emit_jsr(label, register)
        self.emitter.expect_writes(self.context.effects(function.body).written)


def _nothing(lowering: ProgramLowering, step: Program) -> None:
    """A step that the host need not do anything for."""


STEPS: Meanings[Callable[[ProgramLowering, Any], None]] = Meanings(
    "the engine can run",
    {
        Steps: lambda lowering, step: lowering.parts((step,)),
        LibraryCall: lambda lowering, step: lowering.parts((step,)),
        HostLoop: ProgramLowering.host_loop,
        HostOrder: ProgramLowering.host_order,
        Block: lambda lowering, step: lowering.step(step.body),
        Call: ProgramLowering.call,
        WriteUndef: _nothing,
        AssumeEqualAcrossReplicas: _nothing,
        Sync: lambda lowering, step: lowering.emitter.fence(),
        **steering.STEPS,
        **transfers.STEPS,
        **host_steps.STEPS,
        **timers.STEPS,
        **float_modes.STEPS,
    },
)
"""Lowering of each kind of step."""
