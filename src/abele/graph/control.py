"""Steps of control beyond loops and branches: switches, named regions, barriers, aborts, timers and modes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from abele.errors import ControlProgramError
from abele.graph.debug import here
from abele.graph.expect import expect_step
from abele.graph.flow import Flow, OneOf
from abele.graph.program import Program, Sequence, check_predicate
from abele.graph.tensor import Tensor

SYNC_KINDS = ("internal", "external", "global")


class Switch(Program):
    """Run the case whose number a scalar holds at that moment, or the default.

    Args:
        control: One i32 or u32 element.
        cases: Programs by value; a list of pairs works too.
        default: Program for any other value; none when left out.
        unreachable_default: The user's word that no other value occurs; another value aborts the program.

    Raises:
        ControlProgramError: The control is not one integer, or two cases have the same value.
    """

    def __init__(
        self,
        control: Tensor,
        cases: Mapping[int, Program] | Iterable[tuple[int, Program]],
        default: Program | None = None,
        *,
        unreachable_default: bool = False,
    ) -> None:
        self.debug = here("switch")
        expect_step(control, Tensor, "the control of a Switch is a tensor")
        self.control = control
        pairs = list(cases.items() if isinstance(cases, Mapping) else cases)
        self.cases: dict[int, Program] = {int(value): program for value, program in pairs}
        self.default = default if default is not None else Sequence()
        for program in self.children():
            expect_step(program, Program, "the cases of a Switch are programs")
        self.unreachable_default = unreachable_default
        if control.size != 1 or control.dtype.kind not in ("int", "uint") or control.dtype.bits != 32:
            raise ControlProgramError(
                f"the control {control!r} of a Switch is not one i32 or u32", at=self.debug.location
            )
        if len(self.cases) != len(pairs):
            seen = [int(v) for v, _ in pairs]
            twice = next(v for v in seen if seen.count(v) > 1)
            raise ControlProgramError(f"a Switch has two cases for {twice}", at=self.debug.location)

    def add(self, value: int, program: Program) -> Switch:
        """One more case; returns the switch.

        Raises:
            ControlProgramError: The case is there already.
        """
        if value in self.cases:
            raise ControlProgramError(f"a Switch has two cases for {value}", at=here("add").location)
        self.cases[int(value)] = program
        return self

    def reads(self) -> tuple[Tensor, ...]:
        """The control."""
        return (self.control,)

    def children(self) -> tuple[Program, ...]:
        """The cases in order, then the default."""
        return (*self.cases.values(), self.default)

    def flow(self) -> Flow:
        """The case of the control's number, or the default."""
        places = {value: way for way, value in enumerate(self.cases)}
        default = None if self.unreachable_default else len(places)
        last = "unreachable default" if self.unreachable_default else "default"
        titles = (*(f"case {value}" for value in self.cases), last)
        return OneOf(self.control, self.children(), titles, lambda value: places.get(value, default))


class Block(Program):
    """A named part of the program, for profiles and listings."""

    def __init__(self, body: Program, name: str = "block") -> None:
        expect_step(body, Program, "the body of a Block is a program")
        self.body = body
        self.debug = here(name)

    def children(self) -> tuple[Program, ...]:
        """The body."""
        return (self.body,)


class Sync(Program):
    """A barrier of the tiles of an IPU (``internal``), of all IPUs (``external``) or with the host (``global``)."""

    def __init__(self, kind: str = "internal") -> None:
        expect_step(kind, str, "a Sync is of a kind", "one of " + ", ".join(SYNC_KINDS))
        self.kind = kind.lower()
        self.debug = here(f"sync {self.kind}")
        if self.kind not in SYNC_KINDS:
            raise ControlProgramError(
                f"there is no {kind!r} sync", at=self.debug.location, remedy="one of " + ", ".join(SYNC_KINDS)
            )


class Abort(Program):
    """Stop the program with an :class:`abele.errors.ApplicationRuntimeError`, always or when a predicate is true."""

    def __init__(self, message: str = "", condition: Tensor | None = None) -> None:
        self.message = message
        self.condition = condition
        self.debug = here("abort")
        if condition is not None:
            check_predicate(condition, self.debug)

    def reads(self) -> tuple[Tensor, ...]:
        """The condition, if there is one."""
        return () if self.condition is None else (self.condition,)


def AbortOnCondition(condition: Tensor, message: str = "") -> Abort:
    """Stop the program with an error when ``condition`` is true at that moment."""
    return Abort(message, condition)


class ErrorProgram(Program):
    """Print a tensor and stop the program with an error."""

    def __init__(self, message: str, tensor: Tensor) -> None:
        expect_step(tensor, Tensor, "an ErrorProgram prints a tensor")
        self.message = message
        self.tensor = tensor
        self.debug = here("error")

    def reads(self) -> tuple[Tensor, ...]:
        """The tensor."""
        return (self.tensor,)


class CycleCount(Program):
    """Run the body and write the cycles that it took on a tile.

    Args:
        body: Program that is timed.
        result: u32[2], low word first, as the machine has it.
        tile: The tile whose counter is read.
        sync: The barrier before each reading.
    """

    def __init__(self, body: Program, result: Tensor, tile: int = 0, sync: str = "internal") -> None:
        expect_step(body, Program, "the body of a CycleCount is a program")
        self.body = body
        self.result = result
        self.tile = tile
        self.sync = Sync(sync)
        self.debug = here("cycle_count")
        _check_counter(result, self.debug.location)

    def children(self) -> tuple[Program, ...]:
        """The body."""
        return (self.body,)

    def writes(self) -> tuple[Tensor, ...]:
        """The counter."""
        return (self.result,)


class CycleStamp(Program):
    """Write the cycles since the program was loaded, on a tile, as u32[2], low word first.

    Args:
        result: u32[2]; of several tiles u32[tiles, 2].
        tile: The tile whose counter is read, or several.
        sync: The barrier before the reading; None if tiles read their counters as they come to it.
    """

    def __init__(self, result: Tensor, tile: int | Iterable[int] = 0, sync: str | None = "internal") -> None:
        self.result = result
        self.tile = tile if isinstance(tile, int) else tuple(tile)
        self.sync = None if sync is None else Sync(sync)
        self.debug = here("cycle_stamp")
        _check_counter(result, self.debug.location, 1 if isinstance(self.tile, int) else len(self.tile))

    def writes(self) -> tuple[Tensor, ...]:
        """The counter."""
        return (self.result,)


def _check_counter(result: Tensor, at: str, counters: int = 1) -> None:
    if result.size != 2 * counters or result.shape[-1] != 2 or result.dtype.name != "u32" or not result.writable:
        shown = "u32[2]" if counters == 1 else f"u32[{counters}, 2]"
        raise ControlProgramError(f"a cycle counter is a writable {shown}, not {result!r}", at=at)


@dataclass(frozen=True, slots=True)
class FloatingPointBehaviour:
    """Floating-point events that stop the program, and the rounding of f16; as in the machine's control register.

    Attributes:
        invalid: Invalid operations stop the program (``inv``).
        divide_by_zero: Divisions by zero do (``div0``).
        overflow: Overflows do (``oflo``).
        stochastic_rounding: Stores of f16 round up or down at random (``esr``).
        nan_on_overflow: f16 overflows to NaN instead of the largest number (``nanoo``).
    """

    invalid: bool = True
    divide_by_zero: bool = True
    overflow: bool = True
    stochastic_rounding: bool = False
    nan_on_overflow: bool = True


class SetFloatingPointBehaviour(Program):
    """Set the floating-point behaviour of all tiles, or of some fields of it, from here on.

    Args:
        **fields: New values of fields of :class:`FloatingPointBehaviour`; others stay as they are.
    """

    def __init__(self, **fields: bool) -> None:
        FloatingPointBehaviour(**fields)
        self.fields = fields
        self.debug = here("floating_point_behaviour")


class GetHwSeeds(Program):
    """Write the random seeds of all workers: u32[tiles, workers, 4]."""

    def __init__(self, result: Tensor) -> None:
        self.result = result
        self.debug = here("get_hw_seeds")

    def writes(self) -> tuple[Tensor, ...]:
        """The seeds."""
        return (self.result,)


class SetHwSeeds(Program):
    """Set the random seeds of all workers from u32[tiles, workers, 4]."""

    def __init__(self, seeds: Tensor) -> None:
        self.seeds = seeds
        self.debug = here("set_hw_seeds")

    def reads(self) -> tuple[Tensor, ...]:
        """The seeds."""
        return (self.seeds,)


class AssumeEqualAcrossReplicas(Program):
    """The user's word that a tensor holds the same in every replica, so that it may steer the program."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.debug = here("assume_equal")

    def reads(self) -> tuple[Tensor, ...]:
        """The tensor."""
        return (self.tensor,)
