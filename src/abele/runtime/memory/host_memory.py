"""Host memory for variables, in the middle of address space without access.

An index of 32 bits, whatever its sign and up to eight bytes per element, leads from any variable to the variables, or
to a page without access, where :mod:`abele.runtime.control.faults` turns it into an error; never to memory of
Python's. Reserving address space costs two system calls and no memory. It is done far from where libraries and code
made at run time lie, which must stay within 2 GiB of each other, in slots of one size. Where the process may only have
so much address space (``RLIMIT_AS``), or all slots are taken, nothing is reserved.
"""

from __future__ import annotations

import ctypes
import heapq
import mmap
import os
import sys
import threading
import weakref
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

ALIGNMENT = 64
"""Bytes that every variable starts at a multiple of: one cache line, one widest vector."""
_SLOT_BYTES = (1 << 36) + (1 << 33)
"""2^32 elements of eight bytes on either side of eight GiB; less on either side of more."""
_FIRST_SLOT, _END_OF_SLOTS = 0x1000_0000_0000, 0x5000_0000_0000
"""Address space that Linux leaves alone: programs lie above, and libraries above those."""
_HUGE = 1 << 21
_PROT_NONE, _READ_WRITE, _HUGE_PAGES = 0, 3, 14
_NO_RESERVE, _NO_REPLACE = 0x4000, 0x100000
_lock = threading.Lock()


def aligned_block(size: int) -> npt.NDArray[np.uint8]:
    """``size`` zero bytes that start at a multiple of 64."""
    raw = np.zeros(size + ALIGNMENT, dtype=np.uint8)
    skip = -address_of(raw) % ALIGNMENT
    return raw[skip : skip + size]


def guarded_block(size: int) -> npt.NDArray[np.uint8]:
    """Zero bytes, at least ``size``, in whole pages with no access around them; plain memory where that is missing."""
    found = guarded_or_none(size)
    return aligned_block(size) if found is None else found


def guarded_or_none(size: int, *, huge: bool = True) -> npt.NDArray[np.uint8] | None:
    """As :func:`guarded_block`, in large pages where it is ``huge``; None on systems without that."""
    if sys.platform == "linux" and sys.maxsize > 1 << 32 and size <= _SLOT_BYTES // 2 and _is_unlimited():
        region = _MappedRegion.reserved(max(1, -(-size // mmap.PAGESIZE)) * mmap.PAGESIZE, huge)
        return None if region is None else np.asarray(region)
    return None


def forbid_page(address: int) -> bool:
    """Forbid access to one page of a guarded block; true if that worked."""
    return not _library().mprotect(address, mmap.PAGESIZE, _PROT_NONE)


def physical_bytes() -> int:
    """Memory of this computer; 0 where the system does not say."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


def address_of(array: npt.NDArray[Any]) -> int:
    """Address of an array's first byte."""
    return int(array.__array_interface__["data"][0])


class _MappedRegion:
    """Memory of the operating system, given back with the last array over it."""

    def __init__(self, slot: int, begin: int, size: int) -> None:
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (begin, False), "version": 3}
        weakref.finalize(self, _give_back, slot)

    @staticmethod
    def reserved(size: int, huge: bool) -> _MappedRegion | None:
        """Memory between two guards, or None where there is no room."""
        library, slot = _library(), _reserved_slot()
        if slot is None:
            return None
        begin = (slot + (_SLOT_BYTES - size) // 2) // _HUGE * _HUGE
        region = _MappedRegion(slot, begin, size)
        if library.mprotect(begin, size, _READ_WRITE):
            return None
        if huge and size >= _HUGE:
            library.madvise(begin, size, _HUGE_PAGES)
        return region


def _reserved_slot() -> int | None:
    """Address of a slot without access that is ours now."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE | _NO_REPLACE
    with _lock:
        free = _free_slots()
        while free:
            slot = heapq.heappop(free)
            found = _library().mmap(slot, _SLOT_BYTES, _PROT_NONE, flags, -1, 0)
            if found == slot:
                return slot
            if found is not None and found < 1 << 63:  # a kernel that takes the address as a wish
                _library().munmap(found, _SLOT_BYTES)
                free.clear()
    return None


def _give_back(slot: int) -> None:
    _library().munmap(slot, _SLOT_BYTES)
    heapq.heappush(_free_slots(), slot)


@cache
def _free_slots() -> list[int]:
    """Slots that nothing was found in so far, a heap."""
    return list(range(_FIRST_SLOT, _END_OF_SLOTS - _SLOT_BYTES, _SLOT_BYTES))


@cache
def _library() -> Any:
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    library.munmap.argtypes = (ctypes.c_size_t, ctypes.c_size_t)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


def _is_unlimited() -> bool:
    """True if address space costs the process nothing."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
