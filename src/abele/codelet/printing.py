"""``print`` in codelets: its text, and the way of it to the host."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from abele.codelet.tree import Helper, HelperCall, Print, all_expressions, walk
from abele.llvm import ir as ll
from abele.llvm.emit import I32, I64, POINTER, VOID, Value, constant
from abele.numerics import ElementType, bool_

_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?z?#?0?\d{0,3}[,_]?(\.\d{1,3})?[a-zA-Z%]?")
"""Formats of numbers, of widths that are reasonable also where they come from a file."""
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_SIGNATURE = ll.FunctionType(VOID, [I64, I64, POINTER])
_WRITE: ContextVar[Callable[[str], None] | None] = ContextVar("write", default=None)


def prints_of(function: Helper) -> tuple[Print, ...]:
    """The prints of a codelet, those of the functions that it calls included."""
    called = {e.helper: None for e in all_expressions(function.body) if isinstance(e, HelperCall)}
    return tuple(s for f in (function, *called) for s in walk(f.body) if isinstance(s, Print))


def text_of(statement: Print, values: Sequence[Any]) -> str:
    """Text of a print for given values, which are scalars of its expressions' types; the end of the line included."""
    parts = [statement.text[0]]
    for spec, value, text in zip(statement.specs, values, statement.text[1:], strict=True):
        parts += [_shown(value, spec), text]
    return "".join(parts)


def check_format(spec: str, type_: ElementType) -> None:
    """Raise unless numbers of a type can be written by a format.

    Raises:
        ValueError: They cannot.
    """
    _shown(type_.np.type(1), spec)


def _shown(value: Any, spec: str) -> str:
    if not spec:
        return str(value)
    if not _SPEC.fullmatch(spec):
        raise ValueError(f"{spec!r} is no format of numbers")
    plain = value.dtype.kind in "biu"
    return format(value.item() if plain else float(value), spec)


def emit_print(b: ll.IRBuilder, sink: Value, site: int, vertex: Value, types: list[ElementType], values: Any) -> None:
    """Code that hands the values of a print to a :class:`PrintSink`."""
    with b.goto_entry_block():
        words = b.alloca(ll.ArrayType(I64, max(1, len(types))), name="printed")
    for number, (type_, value) in enumerate(zip(types, values, strict=True)):
        b.store(_word(b, value, type_), b.gep(words, [constant(I64, number)], source_etype=I64))
    function = b.inttoptr(b.load(sink, typ=I64), _SIGNATURE.as_pointer())
    b.call(function, [constant(I64, site), vertex, words])


def _word(b: ll.IRBuilder, value: Value, type_: ElementType) -> Value:
    if type_.is_float:
        return b.zext(b.bitcast(value, I32), I64)
    if type_ != bool_ and type_.bits == 64:
        return value
    return b.sext(value, I64) if type_.kind == "int" else b.zext(value, I64)


def _value(word: int, type_: ElementType) -> Any:
    """Scalar of a word."""
    if type_.is_float:
        return type_.np.type(np.int64(word).astype(np.uint32).view(np.float32))
    return np.int64(word).astype(type_.np)


class PrintSink:
    """Collects the prints of the vertices of one group, from any thread.

    Native code finds it through one more column of the tables, after those of the fields: a pointer to the address of
    ``void print(i64 site, i64 vertex, i64* values)``.

    Args:
        prints: The prints of the codelet.
    """

    def __init__(self, prints: tuple[Print, ...]) -> None:
        self._prints = prints
        self._said: list[tuple[int, int, list[int]]] = []
        self._call = _CALL(self._take)
        self.column = np.array([ctypes.cast(self._call, ctypes.c_void_p).value], np.int64)

    def _take(self, site: int, vertex: int, values: int) -> None:
        count = len(self._prints[site].values)
        self._said.append((vertex, site, list((ctypes.c_int64 * count).from_address(values))))

    def take(self) -> str:
        """Text that was printed since the last call, in the order of the vertices."""
        said, self._said = sorted(self._said, key=lambda s: s[0]), []
        return "".join(self._text(site, words) for _, site, words in said)

    def _text(self, site: int, words: list[int]) -> str:
        statement = self._prints[site]
        return text_of(statement, [_value(w, e.type) for w, e in zip(words, statement.values, strict=True)])


def say(statement: Print, *values: Any) -> None:
    """Print as debug mode does: at once, to standard output or where :func:`printing_to` says."""
    text, write = text_of(statement, values), _WRITE.get()
    if write is None:
        print(text, end="")
    else:
        write(text)


@contextmanager
def printing_to(write_line: Callable[[str], None]) -> Iterator[None]:
    """Pass prints of codelets in debug mode to a function, line by line."""
    lines = Lines(write_line)
    token = _WRITE.set(lines.write)
    try:
        yield
    finally:
        _WRITE.reset(token)
        lines.close()


class Lines:
    """Text that comes in pieces, handed on line by line.

    Args:
        write_line: Takes each line without its end.
    """

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._rest = ""

    def write(self, text: str) -> None:
        """More text."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._write_line(line)

    def close(self) -> None:
        """There is no more: a line that was not ended ends."""
        if self._rest:
            self._write_line(self._rest)
        self._rest = ""
