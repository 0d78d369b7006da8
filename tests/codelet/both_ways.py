"""Runs a vertex compiled and in debug mode, and demands the same bits."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from abele.codelet import compile_codelet, interpret
from abele.codelet.tables import build_tables


def arrays(cls: type, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as arrays of their element types; single elements that are not given are 0."""
    kinds = {f.name: f for f in cls.codelet.fields}

    def one(name: str, value: Any) -> Any:
        if kinds[name].rank == 2:
            return [np.array(row, kinds[name].type.np) for row in value]
        return np.atleast_1d(np.array(value, kinds[name].type.np))

    fields = {f.name: 0 for f in cls.codelet.fields if not f.rank} | fields
    return {name: one(name, value) for name, value in fields.items()}


def same_bits(one: Any, two: Any) -> bool:
    """True if two fields hold the same bits; any NaN is the same as any other."""
    if isinstance(one, list):
        return all(same_bits(a, b) for a, b in zip(one, two, strict=True))
    if one.dtype.kind in "biu":
        return bool(np.array_equal(one, two))
    wide = [_flushed(a.astype(np.float32)) for a in (one, two)]
    nans = np.isnan(wide[0]) & np.isnan(wide[1])
    return bool((nans | (wide[0].view(np.uint32) == wide[1].view(np.uint32))).all())


def _flushed(values: np.ndarray) -> np.ndarray:
    """Denormals as what they count as: min and max pass one on as itself or as zero."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)


def run(cls: type, **fields: Any) -> dict[str, Any]:
    """The fields after one vertex of ``cls`` has run, compiled; checked against debug mode and the counting variant."""
    given = arrays(cls, fields)
    native, plain, counted = given, copy.deepcopy(given), copy.deepcopy(given)
    code = compile_codelet(cls.codelet)
    table = build_tables(cls.codelet, [native])
    table.run(code.run)
    for field in cls.codelet.fields:  # scalar state is copied into the table
        if not field.is_edge and field.rank == 0:
            native[field.name] = _column(cls, table, field.name)
    interpret(cls.codelet, plain)
    again = build_tables(cls.codelet, [counted])
    slots = again.count(code.run_counted)
    for name in given:
        assert same_bits(native[name], plain[name]), f"{name}: compiled {native[name]}, plain Python {plain[name]}"
    if not code.data_dependent:
        assert build_tables(cls.codelet, [arrays(cls, fields)]).count(code.slots).tolist() == slots.tolist()
    return native


def slots(cls: type, **fields: Any) -> int:
    """Cost of one vertex, by the counting function where that is possible, else by running it."""
    code = compile_codelet(cls.codelet)
    table = build_tables(cls.codelet, [arrays(cls, fields)])
    return int(table.count(code.run_counted if code.data_dependent else code.slots)[0])


def _column(cls: type, table: Any, name: str) -> Any:
    at = 0
    for field in cls.codelet.fields:
        if field.name == name:
            return table.columns[at]
        at += 3 if field.rank == 2 else 1 if field.rank == 0 else 2
    raise KeyError(name)
