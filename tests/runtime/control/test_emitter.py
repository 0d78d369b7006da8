"""Barriers between leaves: only where threads have to see what others wrote."""

from __future__ import annotations

import ctypes

from abele.runtime.control.bytecode import Opcode
from abele.runtime.control.emitter import Emitter
from abele.runtime.control.leaf import Leaf


def opcodes(*short: bool) -> list[Opcode]:
    """Instructions of leaves, one after the other, of which some are short."""
    emitter = Emitter()
    emitter.phases(
        tuple((Leaf(f"leaf{n}", 1, 5040, (), cycles=1000 if is_short else 1e6),) for n, is_short in enumerate(short))
    )
    emitter.fence()
    return [Opcode(row[0]) for row in emitter.assembler.finish()]


def test_phases__of_short_leaves__run_on_one_thread_without_barriers() -> None:
    assert opcodes(True, True, True) == [Opcode.SOLO] * 3 + [Opcode.BARRIER]


def test_phases__of_long_leaves__have_a_barrier_after_each() -> None:
    assert opcodes(False, False) == [Opcode.CALL, Opcode.BARRIER] * 2


def test_phases__of_short_leaves_between_long_ones__have_barriers_around_them() -> None:
    assert opcodes(False, True, True, False) == [
        Opcode.CALL, Opcode.BARRIER, Opcode.SOLO, Opcode.SOLO, Opcode.BARRIER, Opcode.CALL, Opcode.BARRIER
    ]  # fmt: skip


def test_phase__of_leaves_of_one_unit__has_each_thread_run_some() -> None:
    emitter = Emitter(3)
    emitter.phase(tuple(Leaf(f"leaf{n}", 1, 1, (), work_bytes=1 << 20) for n in range(4)))
    shares = [row[5] for row in emitter.assembler.finish() if row[0] == Opcode.CALL]
    cuts = [[0, 1, 1, 1] if not at else list((ctypes.c_int64 * 4).from_address(int(at))) for at in shares]
    assert cuts == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 1, 1, 1]]
