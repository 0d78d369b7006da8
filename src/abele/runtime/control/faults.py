"""Faults of the processor in leaves (an access to memory that is not there, an illegal instruction) as ends of runs.

A leaf is called through ``abele_guarded``, which notes the stack and the registers that a called function keeps in the
thread's *guard*. When the operating system signals a fault to a thread whose guard is active, the handler lets the
thread go on behind that call, as ``longjmp`` does: the leaf is given up where it is, the other threads meet this one at
the next barrier, and the run fails. Faults anywhere else, in Python or in other libraries, go to whoever handled them
before. No lock is held in a leaf, and none of its frames has anything to undo, so nothing is lost by leaving it. Leaves
have a stack of their own, so that what they do to it, be it too deep or beyond an array there, harms nobody else's.

Other libraries may put the system's own actions back: a trainer of Lightning restores all signals as Python knows them,
and Python does not know this handler. So every run installs it again where it was lost.

The handler finds the guard of its thread in a table of fixed size, by the number of the thread: it can do that without
thread-local storage, which code made at run time does not have.

Example: if one of 4 threads reads address 0 in a leaf, it goes on behind the call. The other 3 finish their shares, and
the run ends at the barrier.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from abele.arrays import Int64
from abele.runtime.control.bytecode import ACTION_BYTES, GuardWord
from abele.runtime.control.primitives import can_recover, primitives
from abele.runtime.memory.host_memory import address_of, aligned_block, forbid_page, guarded_or_none

_NUM_GUARDS = 1024
_SIGNALS = (signal.SIGSEGV, signal.SIGFPE, signal.SIGILL) + ((signal.SIGBUS,) if hasattr(signal, "SIGBUS") else ())
_SA_SIGINFO, _SA_ONSTACK = 0x4, 0x08000000
_SS_DISABLE = 2
_STACK_BYTES = 1 << 17
_LEAF_STACK_BYTES = 1 << 23
_BEYOND_STACK = 1 << 30
_NOTED = (GuardWord.LEAF, GuardWord.BEGIN, GuardWord.END, GuardWord.ARGS, GuardWord.STACK)
_ROOM_ABOVE = 4096
"""Bytes by which an array on the stack may be left upwards without a fault."""
_CALL = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A leaf that faulted.

    Attributes:
        signal: Name of the signal.
        address: The address that the fault was about.
        leaf: Address of the leaf's code.
        begin: First unit of the share that it ran.
        end: One past the last.
        args: Address of its argument list.
        stack: Begin of the stack of leaves, which grows downwards; 0 if they have none of their own.
    """

    signal: str
    address: int
    leaf: int
    begin: int
    end: int
    args: int
    stack: int = 0

    @property
    def reason(self) -> str:
        """Cause of the fault, in words."""
        end = self.stack - _LEAF_STACK_BYTES + _ROOM_ABOVE
        if self.stack and end - _BEYOND_STACK <= self.address < end + mmap.PAGESIZE:
            return "more on the stack than it holds"
        if self.signal in ("SIGSEGV", "SIGBUS"):
            return "an access to memory that belongs to nothing"
        return "an operation that the host's processor refuses" if self.signal == "SIGFPE" else f"signal {self.signal}"


class Guards:
    """Guards of some threads, which run leaves at the same time.

    Args:
        num: Number of threads.

    Attributes:
        pointers: Address of each, int64[num].
    """

    def __init__(self, num: int) -> None:
        taken = _taken(num)
        self._rows = [row for _, row in taken]
        self._stacks = guarded_or_none(num * _LEAF_STACK_BYTES, huge=False) if can_recover() else None
        for number, row in enumerate(self._rows):
            row[GuardWord.STACK], row[GuardWord.SELF] = self._stack(number), address_of(row)
        self.pointers = np.array([address_of(row) for row in self._rows], dtype=np.int64)
        weakref.finalize(self, _give_back, [number for number, _ in taken if number is not None])

    def _stack(self, number: int) -> int:
        """Begin of the stack of one thread, which grows downwards; below it is a page without access."""
        if self._stacks is None:
            return 0
        begin = address_of(self._stacks) + number * _LEAF_STACK_BYTES
        return begin + _LEAF_STACK_BYTES - _ROOM_ABOVE if forbid_page(begin) else 0

    def take_faults(self) -> Iterator[Fault]:
        """Faults since the last call of this."""
        for row in self._rows:
            if row[GuardWord.SIGNAL]:
                words = (int(row[w]) for w in _NOTED)
                yield Fault(signal.Signals(int(row[GuardWord.SIGNAL])).name, int(row[GuardWord.ADDRESS]), *words)
                # The word is the flag: cleared after all others were read.
                row[GuardWord.SIGNAL] = 0


class GuardedCalls:
    """Calls of leaves from Python."""

    def __init__(self) -> None:
        self._guards: Guards | None = None

    def run(self, leaf: int, begin: int, end: int, args: int, extra: int = 0) -> Fault | None:
        """Run units of a leaf, which may take one word more; the fault that ended it, if one did."""
        prepare_thread()
        if self._guards is None:
            self._guards, self._call = Guards(1), _CALL(primitives().call_guarded)
        hear_faults()
        if not self._call(int(self._guards.pointers[0]), leaf, begin, end, args, extra):
            return None
        return next(self._guards.take_faults(), None)


_lock = threading.RLock()  # guards may be given back by a garbage collection while others are taken
_local = threading.local()


@cache
def _table() -> Int64:
    """Guards of this process, int64[guards, words]; the handler gets their address."""
    table = aligned_block(8 * _NUM_GUARDS * GuardWord.WORDS).view(np.int64).reshape(_NUM_GUARDS, GuardWord.WORDS)
    if can_recover():
        _install(table)
    return table


@cache
def _free() -> list[int]:
    return list(range(_NUM_GUARDS))


def _taken(num: int) -> list[tuple[int | None, Int64]]:
    """Rows of the table; where it is full, rows elsewhere, which leave faults to the system."""
    with _lock:
        table, free = _table(), _free()
        if len(free) < num:
            gc.collect()  # engines that nobody has any more may hold some
        numbers = [free.pop() if free else None for _ in range(num)]
    spare = aligned_block(8 * num * GuardWord.WORDS).view(np.int64).reshape(num, GuardWord.WORDS)
    return [(n, spare[k] if n is None else table[n]) for k, n in enumerate(numbers)]


def _give_back(numbers: list[int]) -> None:
    with _lock:
        _table()[numbers] = 0
        _free().extend(numbers)


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Stack(ctypes.Structure):
    _fields_ = (("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("bytes", ctypes.c_size_t))


_before = (_Action * 65)()
"""Actions of the process at each signal before."""


def _install(table: Int64) -> None:
    assert ctypes.sizeof(_Action) == ACTION_BYTES
    native, library = primitives().native, ctypes.CDLL(None, use_errno=True)
    words = {
        "abele_guards": address_of(table),
        "abele_guard_count": len(table),
        "abele_actions": ctypes.addressof(_before),
    }
    for name, value in words.items():
        ctypes.c_int64.from_address(native.address(name)).value = value
    action = _Action(handler=native.address("abele_on_fault"), flags=_SA_SIGINFO | _SA_ONSTACK)
    for number in _SIGNALS:
        library.sigaction(int(number), ctypes.byref(action), ctypes.byref(_before[int(number)]))
    numbers = np.array(_SIGNALS, dtype=np.int64)
    hear = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)(native.address("hear_again"))
    _heard.append(partial(hear, address_of(numbers), len(numbers), ctypes.addressof(action)))
    _kept.extend((numbers, action))


_heard: list[Callable[[], None]] = []
"""Installs the handler again where the system's own is in its place; empty as long as it was never installed."""
_kept: list[Any] = []
"""Objects referred to by the function, kept alive with it."""


def hear_faults() -> None:
    """Make sure before a run that its faults come to the handler; one that another library put before it stays."""
    for hear in _heard:
        hear()


def prepare_thread() -> None:
    """Let the handler run in this thread even where its stack has overflowed."""
    if not can_recover() or hasattr(_local, "stack"):
        return
    _local.stack = _OwnStack()


class _OwnStack:
    """A stack for handlers of signals, as long as its thread lives and has none."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        known = _Stack()
        self._library.sigaltstack(None, ctypes.byref(known))
        self._memory = None
        # A debugger or another library may have given this thread a stack already; theirs serves as well.
        if known.flags & _SS_DISABLE:
            self._memory = aligned_block(_STACK_BYTES)
            mine = _Stack(memory=address_of(self._memory), flags=0, bytes=_STACK_BYTES)
            self._library.sigaltstack(ctypes.byref(mine), None)

    def __del__(self) -> None:
        if self._memory is not None:
            self._library.sigaltstack(ctypes.byref(_Stack(flags=_SS_DISABLE)), None)
