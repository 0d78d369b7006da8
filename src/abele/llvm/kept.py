"""Findings on disk: what was found out once is found again by all that it depends on.

They are objects of the cache of compiled code (:mod:`abele.llvm.cache`), which checks that they are whole, keeps to
its limit, and removes first what was not used for longest.
"""

from __future__ import annotations

import contextlib
import hashlib
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np

from abele.llvm.cache import load_object, store_object

T = TypeVar("T")


def kept(of: str, kind: type[T], measure: Callable[[], T]) -> T:
    """A finding of before, by this process or another; otherwise it is made now.

    Args:
        of: Stands for all that it depends on, the code of this package included.
        kind: Its type: a dataclass of texts, numbers, tuples of these, and arrays of int64 with one dimension.
        measure: Finds it.
    """
    known = stored(of, kind)
    if known is not None:
        return known
    found = measure()
    store_object(_key(of, kind), zlib.compress(msgspec.msgpack.encode(found, enc_hook=_content)))
    return found


def stored(of: str, kind: type[T]) -> T | None:
    """A finding of before; None where there is none."""
    found = load_object(_key(of, kind))
    if found is not None:
        with contextlib.suppress(zlib.error, msgspec.DecodeError):
            return msgspec.msgpack.decode(zlib.decompress(found), type=kind, dec_hook=_array)
    return None


def _key(of: str, kind: type) -> str:
    return f"{hashlib.sha256(f'{kind.__qualname__} {of}'.encode()).hexdigest()}-kept"


def _content(array: Any) -> bytes:
    return np.ascontiguousarray(array, "<i8").tobytes()


def _array(_: type, content: bytes) -> Any:
    return np.frombuffer(content, "<i8").astype(np.int64)
