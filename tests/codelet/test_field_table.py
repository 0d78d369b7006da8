"""Every kind of field, in every direction, of every element type: compiled, in debug mode and in NumPy alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from both_ways import run

from abele.codelet import (
    DELTAN,
    ONE_PTR,
    SCALED_PTR64,
    SHORT_SPAN,
    InOut,
    Input,
    MultiVertex,
    Output,
    SupervisorVertex,
    Vector,
    VectorList,
    Vertex,
    codelet,
)
from abele.numerics import (
    ElementType,
    bf16,
    bool_,
    f8_143,
    f8_152,
    f16,
    f32,
    i8,
    i16,
    i32,
    i64,
    to_device,
    to_host,
    u8,
    u16,
    u32,
    u64,
)

NUMBERS = [f32, f16, bf16, f8_143, f8_152, i8, i16, i32, i64, u8, u16, u32, u64]
TYPES = [*NUMBERS, bool_]
Combine = Callable[[Any, Any], Any]


def both(a, b):
    return a and not b


def added(a, b):
    return a + b


def combined(kind: ElementType) -> Combine:
    """Combination of two elements that the codelets compute."""
    return both if kind == bool_ else added


def expected(kind: ElementType, a: Any, b: Any) -> np.ndarray[Any, Any]:
    """The same of arrays, in NumPy: rounded once to the type that the language computes in, then to the field's."""
    if kind == bool_:
        return np.logical_and(a, np.logical_not(b))
    with np.errstate(over="ignore"):
        if kind.is_quarter:
            total = to_host(a).astype(np.float16) + to_host(b).astype(np.float16)
            return to_device(total.astype(np.float32), kind)
        if kind.is_narrow:
            return (a.astype(np.float32) + b.astype(np.float32)).astype(kind.np)
        return a + b


def values(kind: ElementType, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([seed, *shape])
    if kind == bool_:
        return rng.random(shape) < 0.5
    if kind.is_float:
        return to_device(rng.normal(0, 3, shape), kind)
    limits = np.iinfo(kind.np)
    return rng.integers(limits.min, limits.max, shape, dtype=kind.np, endpoint=True)


def scalars(kind: ElementType) -> tuple[type, dict[str, Any], dict[str, Any]]:
    op = combined(kind)

    @codelet
    class Scalars(Vertex):
        x: Input[kind]
        y: InOut[kind]
        z: Output[kind]
        s: kind

        def compute(self):
            self.z = op(self.x, self.s)
            self.y = op(self.y, self.x)
            self.s = op(self.s, self.y)

    x, y, s = values(kind, 3)[:, None]
    new = expected(kind, y, x)
    return Scalars, {"x": x, "y": y, "s": s}, {"z": expected(kind, x, s), "y": new, "s": expected(kind, s, new)}


def vectors(kind: ElementType) -> tuple[type, dict[str, Any], dict[str, Any]]:
    op = combined(kind)

    @codelet
    class Vectors(Vertex):
        x: Input[Vector[kind]]
        y: InOut[Vector[kind]]
        z: Output[Vector[kind]]
        s: Vector[kind]

        def compute(self):
            for i in range(len(self.x)):
                self.z[i] = op(self.x[i], self.s[i])
                self.y[i] = op(self.y[i], self.x[i])
                self.s[i] = op(self.s[i], self.y[i])

    x, y, s = values(kind, 3, 37)
    new = expected(kind, y, x)
    given = {"x": x, "y": y, "s": s, "z": np.zeros(37, kind.np)}
    return Vectors, given, {"z": expected(kind, x, s), "y": new, "s": expected(kind, s, new)}


def rows(kind: ElementType) -> tuple[type, dict[str, Any], dict[str, Any]]:
    op = combined(kind)

    @codelet
    class Rows(Vertex):
        x: Vector[Input[Vector[kind]]]
        y: Vector[InOut[Vector[kind]], ONE_PTR]
        z: Vector[Output[Vector[kind, ONE_PTR]]]

        def compute(self):
            for r in range(len(self.x)):
                for i in range(len(self.x[r])):
                    self.z[r][i] = op(self.x[r][i], self.y[r][i])
                    self.y[r][i] = op(self.y[r][i], self.x[r][i])

    return _jagged(Rows, kind)


def lists(kind: ElementType) -> tuple[type, dict[str, Any], dict[str, Any]]:
    op = combined(kind)

    @codelet
    class Lists(Vertex):
        x: Input[VectorList[kind]]
        y: InOut[VectorList[kind, DELTAN]]
        z: Output[VectorList[kind, DELTAN, 8]]

        def compute(self):
            for r in range(len(self.x)):
                row = self.x[r]
                for i in range(len(row)):
                    new = self.y[r][i]
                    self.z[r][i] = op(row[i], new)
                    self.y[r][i] = op(new, row[i])

    return _jagged(Lists, kind)


def _jagged(cls: type, kind: ElementType) -> tuple[type, dict[str, Any], dict[str, Any]]:
    sizes = (1, 5, 16, 40)
    x, y = ([values(kind, n, seed=s) for n in sizes] for s in (1, 2))
    given = {"x": x, "y": y, "z": [np.zeros(n, kind.np) for n in sizes]}
    want = [
        [expected(kind, a, b) for a, b in zip(x, y, strict=True)],
        [expected(kind, b, a) for a, b in zip(x, y, strict=True)],
    ]
    return cls, given, {"z": want[0], "y": want[1]}


def scattered(kind: ElementType) -> tuple[type, dict[str, Any], dict[str, Any]]:
    op = combined(kind)

    @codelet
    class Scattered(Vertex):
        x: Vector[Input[kind]]
        y: Vector[InOut[kind]]
        z: Vector[Output[kind]]

        def compute(self):
            for i in range(len(self.x)):
                self.z[i] = op(self.x[i], self.y[i])
                self.y[i] = op(self.y[i], self.x[i])

    x, y = values(kind, 2, 9)
    return (
        Scattered,
        {"x": x, "y": y, "z": np.zeros(9, kind.np)},
        {"z": expected(kind, x, y), "y": expected(kind, y, x)},
    )


def pointers(kind: ElementType) -> tuple[type, dict[str, Any], dict[str, Any]]:
    op = combined(kind)

    @codelet
    class Pointers(SupervisorVertex):
        x: Input[Vector[kind, ONE_PTR, 16, True]]
        y: InOut[Vector[kind, SCALED_PTR64, 8]]
        z: Output[Vector[kind, SHORT_SPAN]]
        n: u16

        def compute(self):
            for i in range(self.n):
                self.z[i] = op(self.x[i], self.y[i])
                self.y[i] = op(self.y[i], self.x[i])

    x, y = values(kind, 2, 21)
    given = {"x": x, "y": y, "z": np.zeros(21, kind.np), "n": 21}
    return Pointers, given, {"z": expected(kind, x, y), "y": expected(kind, y, x)}


def shared_out(kind: ElementType) -> tuple[type, dict[str, Any], dict[str, Any]]:
    op = combined(kind)

    @codelet
    class SharedOut(MultiVertex):
        x: Input[Vector[kind]]
        y: InOut[Vector[kind]]
        z: Output[Vector[kind]]
        rows: Vector[Output[Vector[kind]]]

        def compute(self, worker_id):
            for i in range(worker_id, len(self.x), 6):
                self.z[i] = op(self.x[i], self.y[i])
                self.y[i] = op(self.y[i], self.x[i])
            self.rows[worker_id][0] = self.x[worker_id]

    x, y = values(kind, 2, 45)
    given = {"x": x, "y": y, "z": np.zeros(45, kind.np), "rows": [np.zeros(1, kind.np) for _ in range(6)]}
    want = {"z": expected(kind, x, y), "y": expected(kind, y, x), "rows": list(x[:6, None])}
    return SharedOut, given, want


SHAPES = [scalars, vectors, rows, lists, scattered, pointers, shared_out]


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.__name__)
def test_fields__of_any_shape_and_type__compute_what_numpy_does(shape: Any, kind: ElementType) -> None:
    cls, given, want = shape(kind)
    got = run(cls, **given)
    for name, value in want.items():
        pairs = zip(got[name], value, strict=True) if isinstance(value, list) else [(got[name], value)]
        for one, two in pairs:
            assert one.dtype == kind.np
            np.testing.assert_array_equal(to_host(one), to_host(two), err_msg=name)


def converting(have: ElementType, wanted: ElementType) -> type:
    @codelet
    class Convert(Vertex):
        x: Input[Vector[have]]
        y: Output[Vector[wanted]]

        def compute(self):
            for i in range(len(self.x)):
                self.y[i] = wanted(self.x[i])

    return Convert


@pytest.mark.parametrize("have", TYPES, ids=str)
@pytest.mark.parametrize("wanted", [f32, f16, i32, u8, bool_], ids=str)
def test_elements__of_every_type__convert_to_others(have: ElementType, wanted: ElementType) -> None:
    x = values(have, 33)
    got = run(converting(have, wanted), x=x, y=np.zeros(33, wanted.np))["y"]
    wide = to_host(x)
    if wanted == bool_:
        want = wide != 0
    elif have.is_float and not wanted.is_float:
        limits = np.iinfo(wanted.np)
        want = np.clip(np.trunc(wide.astype(np.float64)), limits.min, limits.max).astype(wanted.np)
    else:
        with np.errstate(over="ignore"):
            want = (wide.astype(np.float32) if wanted.is_float else wide).astype(wanted.np)
    np.testing.assert_array_equal(got, want)
