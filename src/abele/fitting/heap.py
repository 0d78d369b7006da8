"""The heap of processes that compile: memory that is freed stays there.

Compiling asks for large arrays over and over. The C library gives each back to the system and asks for it again, page
by page, all of them cleared: for an attention layer of BERT-Large that is two of seven seconds.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Parameters of glibc's ``mallopt``."""


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, for what it asks for next; False where that is not known.

    Its peak stays about the same, and it has that until it ends: this is for processes that compile and end.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, 2**31 - 1))
