"""Codelets as tutorials and libraries have them."""

from __future__ import annotations

import numpy as np
import pytest

from codelet.cpp.conftest import f32, load, run, zeros

FOUND = load("wild.cpp")
RNG = np.random.default_rng(6)


def test_sum_vertex__sums() -> None:
    assert run(FOUND["SumVertex"], **{"in": f32(1, 2, 3, 4)}, out=zeros(1))["out"][0] == 10


def test_dot_product__is_that_of_numpy() -> None:
    a, b = RNG.standard_normal((2, 64)).astype("f4")
    np.testing.assert_allclose(run(FOUND["DotProductVertex"], a=a, b=b, out=zeros(1))["out"][0], a @ b, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "dtype", "out", "function"),
    [
        ("Add,float,float,false", "f4", "f4", np.sum),
        ("Add,half,float,true", "f2", "f4", np.sum),
        ("Max,half,half,false", "f2", "f2", np.max),
    ],
)
def test_continuous_reduce__in_three_variants__reduces_rows(
    name: str, dtype: str, out: str, function: np.ufunc
) -> None:
    x = RNG.standard_normal((5, 12)).astype(dtype)
    done = run(
        FOUND[f"popops::ContinuousReduce<popops::{name}>"],
        partials=x.reshape(-1),
        out=np.ones(5, out),
        numOutputsM1=4,
        numPartials=12,
    )
    wanted = function(x.astype("f8"), axis=1) + (1 if "true" in name else 0)
    np.testing.assert_allclose(done["out"], wanted.astype(out), rtol=1e-5)


@pytest.mark.parametrize(("name", "dtype"), [("int", "i4"), ("unsigned int", "u4")])
def test_iota__counts_in_every_row(name: str, dtype: str) -> None:
    rows = [zeros(4, dtype), zeros(0, dtype), zeros(7, dtype)]
    done = run(FOUND[f"popops::Iota<{name}>"], out=rows, offsets=np.array([10, 20, 30], dtype))
    assert [list(r) for r in done["out"]] == [list(range(10, 14)), [], list(range(30, 37))]


@pytest.mark.parametrize(("name", "dtype"), [("float", "f4"), ("half", "f2")])
def test_dynamic_slice__wraps_around__on_six_workers(name: str, dtype: str) -> None:
    base = np.arange(6 * 10).astype(dtype)
    done = run(
        FOUND[f"popops::DynamicSlice1d<{name}>"],
        offset=np.array([4], "u4"),
        baseT=base,
        subT=zeros(30, dtype),
        numBaseElements=6,
        numSubElements=3,
        regionSize=10,
    )
    np.testing.assert_array_equal(done["subT"].reshape(3, 10), base.reshape(6, 10)[[4, 5, 0]])


@pytest.mark.parametrize(("name", "dtype"), [("half", "f2"), ("bool", "?")])
def test_fill__of_rows__writes_them_all(name: str, dtype: str) -> None:
    done = run(FOUND[f"popops::Fill2d<{name}>"], **{"in": 1}, out=[zeros(3, dtype), zeros(5, dtype)])
    assert all((row == 1).all() for row in done["out"])


def test_memcpy__copies() -> None:
    x = RNG.integers(0, 256, 100).astype("u1")
    np.testing.assert_array_equal(run(FOUND["popops::CopyBytes"], src=x, dst=zeros(100, "u1"))["dst"], x)


def test_neurons__keep_their_potential() -> None:
    current = np.abs(RNG.standard_normal(20)).astype("f4")
    fields = {"current": current, "potential": zeros(20), "rest": zeros(20, "u2"), "spikes": zeros(20, "u1")}
    done = run(FOUND["popops::LeakyNeurons"], times=9, **fields, decay=0.9, threshold=2.0, fired=0)
    potential, rest, spikes = zeros(20), zeros(20, "i4"), zeros(20, bool)
    for _ in range(9):
        awake = rest == 0
        rest[~awake] -= 1
        potential[awake] = potential[awake] * np.float32(0.9) + current[awake]
        spikes = awake & (potential > 2)
        potential[spikes] = 0
        rest[spikes] = 2
    np.testing.assert_array_equal(done["potential"], potential)
    np.testing.assert_array_equal(done["spikes"], spikes)
