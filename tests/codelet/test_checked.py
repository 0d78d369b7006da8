"""Compiled codelets whose accesses are checked: nothing outside fields is touched."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.codelet import InOut, Input, Output, Vector, Vertex, codelet, compile_codelet
from abele.codelet.driver import WORDS, Violation
from abele.numerics import f32, i32
from support.examples import examples

GUARD = -7.0


@codelet
class Move(Vertex):
    x: Input[Vector[f32]]
    y: InOut[Vector[f32]]
    source: i32
    target: i32

    def compute(self):
        self.y[self.target] = self.x[self.source] + 1.0


@codelet
class Rows(Vertex):
    rows: Vector[Input[Vector[f32]]]
    out: Output[f32]
    row: i32
    index: i32

    def compute(self):
        named = self.rows[self.row]
        self.out = named[self.index] + f32(len(self.rows[self.row]))


def run(definition: Any, columns: list[np.ndarray]) -> Violation | None:
    tables = (ctypes.c_void_p * len(columns))(*(c.ctypes.data for c in columns))
    report = np.zeros(WORDS, np.int64)
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    signature(compile_codelet(definition).run_checked)(0, 1, ctypes.addressof(tables), report.ctypes.data)
    return Violation.of(report)


def pointer(array: np.ndarray) -> np.ndarray:
    return np.array([array.ctypes.data], np.int64)


def size(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@examples(12)
@given(st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 8), st.integers(-3, 8))
def test_vector__any_index__is_inside_or_reported_and_leaves_the_rest_alone(source: int, target: int) -> None:
    x, y = np.arange(5, dtype=np.float32), np.full(12, GUARD, np.float32)
    inner = y[4:8]
    violation = run(
        Move.codelet,
        [pointer(x), size(5), pointer(inner), size(4), np.array([source], np.int32), np.array([target], np.int32)],
    )
    good = 0 <= source < 5 and 0 <= target < 4
    assert (violation is None) == good
    changed = np.flatnonzero(y != GUARD)
    if good:
        assert changed.tolist() == [4 + target]
        assert y[4 + target] == x[source] + 1
    elif 0 <= target < 4:
        assert violation == Violation(0, 0, source, 5)
        assert changed.tolist() in ([], [4 + target])
    else:
        assert len(changed) == 0


@pytest.mark.parametrize(
    ("row", "index", "expected"),
    [
        (0, 1, None),
        (1, 0, None),
        (1, 1, Violation(0, 0, 1, 1)),
        (2, 0, Violation(0, 0, 2, 2)),
        (-1, 0, Violation(0, 0, -1, 2)),
        (0, 99, Violation(0, 0, 99, 3)),
    ],
)
def test_rows__any_row_and_index__are_inside_or_reported(row: int, index: int, expected: Violation | None) -> None:
    rows = [np.array([1, 2, 3], np.float32), np.array([4], np.float32)]
    out = np.zeros(1, np.float32)
    pointers = np.array([r.ctypes.data for r in rows], np.int64)
    found = run(
        Rows.codelet,
        [size(0, 2), pointers, size(3, 1), pointer(out), np.array([row], np.int32), np.array([index], np.int32)],
    )
    assert found == expected
    if expected is None:
        assert out[0] == rows[row][index] + len(rows[row])
