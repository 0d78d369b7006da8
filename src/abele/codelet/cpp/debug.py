"""C++ codelets in debug mode, where Python ones are interpreted: their native code, on one vertex."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from abele.codelet.compiled import compile_codelet
from abele.codelet.tables import build_tables
from abele.codelet.vertex import CodeletDef
from abele.errors import CodeletError


def run_natively(definition: CodeletDef, fields: Mapping[str, Any], worker: int | None = None) -> None:
    """Run one vertex; nothing about its accesses is checked.

    Args:
        definition: The codelet.
        fields: Every field by name, as ``interpret`` takes them; arrays of state are written in place.
        worker: None: all workers of a MultiVertex.

    Raises:
        CodeletError: One worker alone is to run.
    """
    if worker is not None and definition.kind == "multi":
        raise CodeletError(
            f"worker {worker} of {definition.name} cannot run alone: the codelet is in C++", at=definition.location
        )
    scalars = [f for f in definition.fields if f.rank == 0]
    given = dict(fields)
    for field in scalars:
        if field.is_edge:
            given[field.name] = np.ascontiguousarray(given[field.name], dtype=field.type.np).reshape(1)
        elif field.initial is not None:
            given.setdefault(field.name, field.initial(1))
    tables = build_tables(definition, [given])
    tables.run(compile_codelet(definition).run_aliasing)
    column = 0
    for field in definition.fields:
        target = fields.get(field.name)
        if field in scalars and isinstance(target, np.ndarray):
            target.reshape(-1)[:] = given[field.name] if field.is_edge else tables.columns[column]
        column += {0: 1, 1: 2, 2: 3}[field.rank]
