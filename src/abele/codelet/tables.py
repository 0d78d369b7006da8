"""Tables: arguments of a codelet's native functions for all vertices at once."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from abele.codelet.compiled import compile_codelet
from abele.codelet.fields import FieldDef
from abele.codelet.printing import PrintSink
from abele.codelet.vertex import CodeletDef
from abele.errors import CodeletError

Column = npt.NDArray[Any]


class Tables:
    """Columns of pointers, lengths and state, and native calls on them.

    Attributes:
        num: Number of vertices.
        columns: In the order that :class:`~abele.codelet.compiled.CompiledCodelet` expects.
        sink: Takes what codelets that print say.
        fields: Arrays that the columns point into, kept alive for as long as the tables are.
    """

    def __init__(
        self, num: int, columns: Sequence[Column], sink: PrintSink | None = None, fields: Sequence[Column] = ()
    ) -> None:
        self.num = num
        self.sink = sink
        self.fields = fields
        self.columns = [np.ascontiguousarray(c) for c in columns]
        self.pointers = (ctypes.c_void_p * max(1, len(self.columns)))(*(c.ctypes.data for c in self.columns))

    def run(self, address: int, begin: int = 0, end: int | None = None) -> None:
        """Call a ``run`` function on vertices ``begin`` to ``end``."""
        call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(address)
        call(begin, self.num if end is None else end, ctypes.addressof(self.pointers))

    def count(self, address: int) -> npt.NDArray[np.int64]:
        """Call a ``slots`` or ``run_counted`` function on all vertices; the costs, int64[num]."""
        out = np.zeros(self.num, np.int64)
        types = (ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
        ctypes.CFUNCTYPE(None, *types)(address)(0, self.num, ctypes.addressof(self.pointers), out.ctypes.data)
        return out


def build_tables(definition: CodeletDef, vertices: Sequence[Mapping[str, Any]]) -> Tables:
    """Tables of vertices that are given field by field; they point into the arrays and keep them alive.

    Args:
        definition: The codelet.
        vertices: Of each vertex, every field: an array of its element type; a list of arrays for a vector of vectors;
            an array of one element for a rank-0 edge; a number or an array for state.

    Raises:
        CodeletError: A field is missing, or an array is not contiguous and of the field's type.
    """
    columns: list[Column] = []
    pointed: list[Column] = []
    for field in definition.fields:
        values = [_field(definition, v, field) for v in vertices]
        if not field.is_edge and field.rank == 0:
            columns.append(np.array([np.asarray(v).reshape(()) for v in values], dtype=field.type.np))
            continue
        rows = [r for v in values for r in v] if field.rank == 2 else values
        for row in rows:
            _check(definition, field.name, row, field.type.np)
        pointed.extend(rows)
        if field.rank == 2:
            columns.append(np.cumsum([0, *map(len, values)], dtype=np.int64))
        columns.append(np.array([r.ctypes.data for r in rows], dtype=np.int64))
        if field.rank:
            columns.append(np.array([r.size for r in rows], dtype=np.int64))
    prints = compile_codelet(definition).prints
    sink = PrintSink(prints) if prints else None
    return Tables(len(vertices), columns if sink is None else [*columns, sink.column], sink, pointed)


def _field(definition: CodeletDef, vertex: Mapping[str, Any], field: FieldDef) -> Any:
    if field.name in vertex:
        return vertex[field.name]
    if field.initial is not None:
        return field.initial(1)
    raise CodeletError(f"vertex of {definition.name} without field {field.name}", at=definition.location)


def _check(definition: CodeletDef, name: str, array: Any, dtype: np.dtype[Any]) -> None:
    if isinstance(array, np.ndarray) and array.dtype == dtype and array.flags.c_contiguous:
        return
    got = f"{array.dtype} of shape {list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
    raise CodeletError(
        f"field {definition.name}.{name} needs a contiguous array of {dtype}, got {got}", at=definition.location
    )
