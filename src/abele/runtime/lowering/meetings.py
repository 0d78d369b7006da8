"""Meetings: where the processes that share a program's replicas need each other.

A copy between replicas is three steps in each process: native leaves gather what its replicas send to other processes
into one buffer for each of them, and copy what stays; MPI moves the buffers; leaves scatter what arrived. The program
is the same everywhere and replicas are numbered alike, so sender and receiver lay a buffer out in one order without
asking. The first words of every buffer say which copy it belongs to and how many meetings the two had before it. Those
that have come apart are told so at once, before anything they sent is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from abele.errors import RankDisagreementError
from abele.graph import CrossReplicaCopy, CrossReplicaExchange, Program
from abele.graph.interval_set import IntervalSet
from abele.runtime.control.callbacks import Callbacks
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.leaf import Phase
from abele.runtime.memory.arena import Arena, MemoryPieces
from abele.runtime.memory.effects import elements_of
from abele.runtime.memory.host_memory import address_of, aligned_block
from abele.runtime.ranks.group import RankMessage, Ranks
from abele.runtime.supersteps.copy_leaves import contiguous, copy_leaf, copy_phases, joined, paired

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
