"""Errors of Abele: typed, with place, reason and remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


class AbeleError(Exception):
    """Base of every error that Abele raises on purpose.

    Args:
        message: One line: the thing that is wrong, with the numbers that make it wrong.
        at: Place: a program step, a source line, a tile.
        because: Cause, term by term.
        remedy: Advice to the reader.
    """

    def __init__(
        self, message: str, *, at: str | None = None, because: str | None = None, remedy: str | None = None
    ) -> None:
        self.message = message
        self.at = at
        self.because = because
        self.remedy = remedy
        super().__init__(message)

    def __str__(self) -> str:
        lines = [self.message]
        for label, text in (("at", self.at), ("because", self.because), ("try", self.remedy)):
            if text:
                first, *rest = text.splitlines()
                lines.append(f"  {label:<8} {first}")
                lines.extend(f"  {'':<8} {line}" for line in rest)
        return "\n".join(lines)


class MachineError(AbeleError):
    """A system description is impossible, or names something that the system lacks."""


class InvalidOptionError(AbeleError, ValueError):
    """An unknown option, or a value that it does not take."""


class MissingPackageError(AbeleError, ImportError):
    """A part of Abele without a package that it needs; ``remedy`` says how to install it."""


class PackingError(AbeleError, ValueError):
    """Items that cannot be packed: none at all, a capacity or depth below 1, other items than planned."""


class ItemSizeError(PackingError):
    """The size of an item to pack that is zero, negative, not a whole number, or over the capacity."""


class TensorError(AbeleError, ValueError):
    """A shape, rank or index that the tensor does not have."""


class TensorIndexError(TensorError, IndexError):
    """An index, slice or dimension outside a tensor."""


class TensorCreationError(TensorError):
    """A variable or constant that cannot be made: its shape, its size, or the values it starts with."""


class ElementRangeError(TensorError, OverflowError):
    """An element that its type on the device cannot hold."""


class TypeMismatchError(AbeleError, TypeError):
    """An element type that does not fit where it is used."""


class TileMappingError(AbeleError):
    """A variable, constant or vertex that is mapped nowhere, partly, or to a tile outside the system."""


class GraphConnectionError(AbeleError):
    """A vertex field that is not connected, connected twice, or connected to a wrong operand."""


class UnknownFieldError(GraphConnectionError):
    """A vertex field that the codelet does not declare."""


class UnknownVertexTypeError(GraphConnectionError):
    """A vertex of a codelet that the graph does not know."""


class FieldOverflowError(GraphConnectionError, OverflowError):
    """A size or value that its field has too few bits for."""


class MemoryElementError(GraphConnectionError):
    """Fields that must lie in different memory elements, in interleaved memory or at an alignment, and cannot."""


class DataRaceError(AbeleError):
    """Two vertices of one compute set touch the same element and at least one of them writes it."""


class TensorAccessError(AbeleError):
    """A tensor that may not be read or written in this way, by the program or by the host."""


class ConstantWriteError(TensorAccessError):
    """A write to a constant or to a view in which an element appears more than once."""


class CodeletError(AbeleError):
    """A codelet that uses something outside the vertex language; ``at`` names its line."""


class VectorSizeError(CodeletError, GraphConnectionError):
    """The size of a vector without one (a pointer without a length), or a vector that was given none."""


class CodeletParseError(CodeletError):
    """Source code of a codelet that is not valid in its language."""


class CodeletLoadError(CodeletError):
    """A file of codelets that cannot be read, or that holds none."""


class CodeletLinkError(CodeletError):
    """A codelet that calls a function outside the tile's libraries."""


class SymbolError(CodeletError):
    """A codelet whose entry point is missing or defined twice."""


class MissingPerfEstimateError(CodeletError):
    """A vertex whose cost cannot be counted and has no estimate."""


class CodeletAccessError(AbeleError, IndexError):
    """A codelet in debug mode reached outside a field, or wrote one that it may only read."""


class ControlProgramError(AbeleError):
    """A control program that cannot be lowered: a bad copy, predicate, repeat count or call."""


class GraphRecursionError(ControlProgramError):
    """A function that calls itself: the machine has no call stack for control programs."""


class GraphReplicationError(AbeleError):
    """A number of replicas that the system cannot hold, or a step without a meaning across replicas."""


class FittingError(AbeleError):
    """A model that cannot be spread over a machine: nothing fits, nothing can be cut, or a batch does not divide."""


class RemoteBufferError(AbeleError, IndexError):
    """A remote buffer that does not exist, or a row outside it."""


class StreamMemoryError(AbeleError):
    """A stream that needs a larger host buffer than the machine allows."""


class StreamConnectionError(AbeleError):
    """A host stream without a connection, or connected to data that does not fit."""


class UnsupportedOpError(AbeleError):
    """An operation of a captured model that has no lowering."""


class UnknownPrimitiveError(UnsupportedOpError, KeyError):
    """A primitive of JAX that no vertex is registered for."""


class NetworkError(AbeleError):
    """A network that is not legal: an op that breaks the rule of its kind, or a value read where it is not made."""


class StageOrderError(NetworkError):
    """An op of a pipeline that reads the result of a later stage.

    Attributes:
        kind: The op's kind.
        stage: Its stage.
        made_in: The stage of what it reads.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        stage: int,
        made_in: int,
        at: str | None = None,
        because: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, at=at, because=because, remedy=remedy)
        self.kind = kind
        self.stage = stage
        self.made_in = made_in


class NetworkTextError(NetworkError, ValueError):
    """The text of a network that does not read."""


class FileFormatError(AbeleError):
    """A file that is damaged, incomplete, or written by a newer version."""


class EngineError(AbeleError):
    """A request that an engine cannot serve: an unknown tensor, an unknown program, a model not loaded."""


class ProfilingDisabledError(EngineError):
    """A profile of an engine that was told not to record one."""


class SessionError(AbeleError, RuntimeError):
    """A request that a session cannot serve in its state: it is closed, on the device already, or not there."""


class SignatureError(AbeleError, ValueError):
    """Inputs that differ from those a session was compiled for, in number, name, shape or type."""


class BatchSizeError(SignatureError):
    """A batch that does not divide into the micro-batches of a run."""


class SparsePatternError(AbeleError, ValueError):
    """A sparse matrix with indices outside it, off the grid of blocks, doubled, or of the wrong number."""


class SparseOverflowError(SparsePatternError):
    """A sparse matrix with more values than were declared, or too uneven for the buckets of its plan."""


class PatternMismatchError(SparsePatternError):
    """A sparse matrix of another pattern, plan or options than the tensor or call that it meets."""


class PackedDataError(AbeleError, ValueError):
    """Samples, fields or packs of which no rows of packed data can be made."""


class SampleLengthError(PackedDataError):
    """Samples with fields of different lengths, without elements, or too long."""


class PackMembersError(PackedDataError):
    """Packs that leave a sample out, hold it twice, name an unknown one, or hold more than fits a row."""


class PlaceError(PackedDataError, IndexError):
    """A label, span or edge that points outside of its own sample."""


class PaddingError(PackedDataError):
    """A padding value that its field cannot hold, or that samples hold themselves."""


class UnknownArrayError(AbeleError, KeyError):
    """A parameter, buffer or piece of optimiser state of an unknown name."""


class MissingDatumError(AbeleError, AttributeError):
    """Something that a report does not hold, so that ``hasattr`` is False of it."""


class ReportIndexError(AbeleError, IndexError):
    """A place in a sequence of a report's variables, steps or tiles that it does not have."""


class QueryError(AbeleError, ValueError):
    """A query of a report that cannot be answered: not SQL, a table or column that there is not, or too much of it."""


class ProgramRuntimeError(AbeleError):
    """A program that went wrong while it ran."""


class ApplicationRuntimeError(ProgramRuntimeError):
    """The program itself is at fault: an abort, a floating-point exception, a codelet that went astray."""


class ReplicaDivergenceError(ApplicationRuntimeError):
    """Replicas of one program that would take different branches."""


class LaunchError(ProgramRuntimeError):
    """Ranks that could not be started: no host, or a launcher of MPI that fails."""


class RankLostError(ProgramRuntimeError):
    """A rank that died, hangs, or does not come to where others wait for it."""


class RankDisagreementError(ProgramRuntimeError):
    """Ranks that are not at the same step of the same program, or began with different options or weights."""


class UninitialisedReadError(ApplicationRuntimeError):
    """A read of memory that nothing has written."""


class OutOfMemoryError(AbeleError):
    """A program that needs more memory on some tile than the tile has.

    Attributes:
        tiles: The worst tiles, each a mapping with ``tile``, ``needed_bytes``, ``available_bytes`` and one entry a
            category; a program can read it.
        make_report: Makes the report of the program as it is; None where it did not get so far.
        report_path: The file that ``autoReport`` options had that report written to; None where they did not.
    """

    def __init__(
        self,
        message: str,
        *,
        tiles: tuple[dict[str, int], ...] = (),
        at: str | None = None,
        because: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message, at=at, because=because, remedy=remedy)
        self.tiles = tiles
        self.make_report: Callable[[], Any] | None = None
        self.report_path: Path | None = None

    @property
    def report(self) -> Any:
        """The :class:`abele.Report` of the program, with the bytes that have to go.

        None where the program did not get so far that there is one.
        """
        return None if self.make_report is None else self.make_report()

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process there is nothing to make the report of.
        return type(self), (self.message,), {**self.__dict__, "make_report": None}


_LONGEST_NAME = 100
"""Names that are longer are only compared for equality but for case and separators."""


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice that ``name`` was probably meant to be, or None when nothing comes close.

    Close are choices that differ in case and separators only, of which the name is the beginning, or that are a slip or
    two of the keyboard away: one for every three letters, at least one. ``foo`` is no slip of ``goto``. Of several that
    are equally close, the one that is written alike is taken.
    """
    choices, plain = list(choices), _plain(name)
    best, fewest = None, (max(1, len(plain) // 3), len(name) + _LONGEST_NAME)
    for choice in choices:
        other = _plain(choice)
        slips = 0 if plain == other else _slips(plain, other, fewest[0] + 1)
        if slips <= fewest[0]:
            found = (slips, _slips(name, choice, len(name) + len(choice)))
            best, fewest = (choice, found) if found < fewest or best is None else (best, fewest)
    if best is None and len(plain) >= _SHORTEST_BEGINNING:
        return next((choice for choice in choices if _plain(choice).startswith(plain)), None)
    return best


_SHORTEST_BEGINNING = 4
"""Letters from which on a name may be taken for the beginning of another."""


def _plain(name: str) -> str:
    return "".join(letter for letter in str(name).casefold() if letter not in "_- ")


def _slips(a: str, b: str, most: int) -> int:
    """Letters inserted, left out, replaced or swapped with a neighbour between two names, at most ``most``.

    The rows of the table of distances between beginnings of ``a`` and of ``b``, one after the other (optimal string
    alignment).
    """
    if abs(len(a) - len(b)) >= most or max(len(a), len(b)) > _LONGEST_NAME:
        return most
    before, row = list(range(len(b) + 1)), list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        two_before, before, row = before, row, [i, *[0] * len(b)]
        for j, y in enumerate(b, 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[j] = min(row[j], two_before[j - 2] + 1)
    return min(row[-1], most)
