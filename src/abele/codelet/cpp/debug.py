"""C++ codelets in debug mode, where Python ones are interpreted: their native code, on one vertex."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from abele.codelet.compiled import compile_codelet
from abele.codelet.cpp.checking import WORDS, WORKER
from abele.codelet.tables import Tables, build_tables
from abele.codelet.vertex import CodeletDef
from abele.llvm.flush import denormals_flushed

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)


def run_natively(definition: CodeletDef, fields: Mapping[str, Any], worker: int | None = None) -> None:
    """Run one vertex, every access checked.

    Args:
        definition: The codelet.
        fields: Every field by name, as ``interpret`` takes them; arrays of state are written in place.
        worker: None: all workers of a MultiVertex.

    Raises:
        CodeletAccessError: An access outside a field; it touched nothing.
    """
    scalars = [f for f in definition.fields if f.rank == 0]
    given = dict(fields)
    for field in scalars:
        if field.is_edge:
            given[field.name] = np.ascontiguousarray(given[field.name], dtype=field.type.np).reshape(1)
        elif field.initial is not None:
            given.setdefault(field.name, field.initial(1))
    tables = build_tables(definition, [given])
    _run(definition, tables, worker if definition.kind == "multi" else None)
    column = 0
    for field in definition.fields:
        target = fields.get(field.name)
        if field in scalars and isinstance(target, np.ndarray):
            target.reshape(-1)[:] = given[field.name] if field.is_edge else tables.columns[column]
        column += {0: 1, 1: 2, 2: 3}[field.rank]


def _run(definition: CodeletDef, tables: Tables, worker: int | None) -> None:
    code = compile_codelet(definition)
    report = np.zeros(WORDS, np.int64)
    given = (0, 1, ctypes.addressof(tables.pointers), report.ctypes.data)
    report[WORKER] = worker or 0
    with denormals_flushed():
        _RUN(code.run_checked if worker is None else code.run_worker_checked)(*given)
    found = code.access_error(report.tolist())
    if found is not None:
        raise found[1]
