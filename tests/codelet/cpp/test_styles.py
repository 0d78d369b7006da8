"""Codelets in the ways that programs from elsewhere are written. Oracles: NumPy and plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest

from abele import Engine, Execute, Graph, numerics
from abele.codelet import compile_codelet
from abele.codelet.cpp import load_codelets
from abele.errors import CodeletError
from codelet.cpp.conftest import f32, load, run, zeros

FOUND = load("styles.cpp")
RNG = np.random.default_rng(8)


def test_plaquette__of_complex_matrices__is_that_of_numpy() -> None:
    u = RNG.standard_normal((4, 3, 3, 2)).astype("f4")
    done = run(FOUND["Plaquette"], links=u.reshape(-1), action=zeros(1))["action"][0]
    c = u[..., 0].astype("c16") + 1j * u[..., 1]
    wanted = 1 - np.trace(c[0] @ c[1] @ c[2].conj().T @ c[3].conj().T).real / 3
    assert done == pytest.approx(wanted, rel=1e-5)


def test_alignment__with_pairs_and_enumerations__is_that_of_the_table() -> None:
    a, b = (RNG.integers(0, 4, n).astype("u1") for n in (20, 30))
    scores = np.where(np.eye(4, dtype=bool), 3, -1).astype("i1")
    table = np.zeros((21, 31), int)
    for i in range(20):
        for j in range(30):
            options = [0, table[i, j] + scores[a[i], b[j]], table[i, j + 1] - 2, table[i + 1, j] - 2]
            table[i + 1, j + 1] = max(options)
    fields = {"a": a, "b": b, "scores": scores.reshape(-1), "offsets": np.array([2**40], "u8")}
    done = run(FOUND["SmithWaterman"], **fields, best=zeros(2, "i4"), place=zeros(1, "i8"))
    assert done["best"].tolist() == [table.max(), np.count_nonzero(table)]
    assert done["place"][0] == 3 * 2**40


def test_int64_t__is_64_bits__where_long_is_32() -> None:
    types = {f.name: f.type for f in FOUND["SmithWaterman"].fields}
    assert (types["offsets"], types["place"]) == (numerics.u64, numerics.i64)


def test_standard_algorithms__do_what_they_say() -> None:
    x = np.sort(RNG.random(9)).astype("f4")
    done = run(FOUND["Standard"], x=x, n=zeros(6, "i4"), index=zeros(5, "u4"))
    y = x.copy()
    y[0] = y[3]
    y[:2] = y[1::-1]
    y = y[::-1].copy()
    y[2] = 2
    wanted = [10, np.searchsorted(x, 0.5), 2, np.count_nonzero(y > np.float32(0.3)), y.argmax(), 9 + 6]
    assert done["n"].tolist() == wanted
    np.testing.assert_array_equal(done["x"], np.roll(-y, -1))


@pytest.mark.parametrize("n", [1, 2, 17, 100])
def test_sort__of_elements_and_of_indices(n: int) -> None:
    x = RNG.permutation(n).astype("f4")
    done = run(FOUND["Sorted"], x=x, index=zeros(n, "u2"))
    np.testing.assert_array_equal(done["index"], np.argsort(-x))
    np.testing.assert_array_equal(done["x"], np.sort(x))


def test_quarter__of_either_format__is_a_field() -> None:
    graph = Graph("bow-2000:1")
    graph.codelets.add(FOUND)
    type_ = numerics.quarter("F152", -3)
    x = graph.variable(type_, (64,), name="x").map(0)
    again, out = (
        graph.variable(type_, (64,), name="again").map(0),
        graph.variable(numerics.f16, (64,), name="out").map(0),
    )
    metadata = graph.constant(numerics.u8, (1,), 0x80 | (-3 & 0x3F), name="metadata").map(0)
    step = graph.compute_set("step")
    step.vertex("FromQuarter", tile=0, **{"in": x}, metadata=metadata[0], out=out, again=again)
    engine = Engine(graph, Execute(step))
    values = RNG.standard_normal(64).astype("f4")
    engine["x"] = values
    engine.run()
    wanted = numerics.narrow.round_to_nearest(values, type_).astype("f4") * np.float32(2.0**-3)
    np.testing.assert_array_equal(engine["out"], wanted.astype("f2"))
    np.testing.assert_array_equal(engine["again"], engine["x"])


def test_bits_of_floats__and_results_through_pointers() -> None:
    x = f32(1.5, 2.0, 0, 3.0, 20.0, 4.25)
    done = run(FOUND["Punning"], x=x, steps=zeros(1, "i4"), seed=1)
    swapped = x[3:4].view("u4").byteswap().view("f4")[0]
    assert done["x"].tolist() == [
        -1.5,
        np.nextafter(x[1], np.float32(3)),
        np.float32(270369 * 2**-32),
        swapped,
        0.625,
        40.25,
    ]
    assert done["steps"][0] == sum(range(5))
    assert compile_codelet(FOUND["Punning"]).data_dependent  # frexp's exponent, which came through a pointer


def test_classes__that_derive_from_templates_and_abstract_ones() -> None:
    np.testing.assert_array_equal(run(FOUND["Cube"], **{"in": f32(1, 2)}, out=zeros(2), k=2.0)["out"], [2, 16])
    assert run(FOUND["Concrete"], a=np.array([4], "i4"), out=zeros(1, "i4"))["out"][0] == 5
    assert [f.name for f in FOUND["Concrete"].fields] == ["a", "out"]
    assert run(FOUND["Trailing"], a=f32(1), out=zeros(1), b=2)["out"][0] == 4.5


def test_virtual_call__is_refused() -> None:
    source = """
    #include <poplar/Vertex.hpp>
    class Base : public poplar::Vertex { public: poplar::InOut<int> x; virtual int f(int) = 0; };
    class Derived : public Base { public:
      int f(int x) override { return x; }
      bool compute() { Base *self = this; *x = self->f(*x); return true; }
    };
    """
    with pytest.raises(CodeletError, match="Derived calls a function through a pointer"):
        _ = load_codelets(source)["Derived"]


def test_elements__are_assigned_and_computed_with_on_either_side() -> None:
    h, g = np.array([3], "f2"), np.array([0.5], "f2")
    done = run(FOUND["Assigned"], a=f32(2), h=h, g=g, n=np.array([5], "i4"), m=np.array([1], "i4"))
    ratio = (h * 2 + g) / g
    a = np.float32(-2) * 2 + np.float32(ratio)
    np.testing.assert_array_equal(done["a"], a + a + np.float32(g))
    np.testing.assert_array_equal(done["h"], ratio + 1 + g)
    assert done["m"][0] == 4


def test_rows__by_iterators_pointers_and_arrows() -> None:
    rows, lists = [f32(1, 2, 3), f32(4, 5)], [f32(1), f32(2, 3)]
    done = run(FOUND["Rows"], io=rows, ends=zeros(2), list=lists)
    assert [r.tolist() for r in done["io"]] == [[2 + 4 + 1 + 6, 3, 4], [5 + 6 + 2, 6]]
    assert done["ends"].tolist() == [3, 2]


def test_draws__are_normal_and_masks_keep_their_share() -> None:
    done = run(FOUND["Draws"], normal=zeros(6000), kept=np.ones(6000, "f2"), **{"random numbers drawn": 0})
    assert abs(done["normal"].mean()) < 5 / math.sqrt(6000)
    assert abs(done["normal"].std() - 1) < 0.05
    assert set(np.unique(done["kept"])) == {0, 1}
    assert abs(done["kept"].mean() - 0.25) < 0.05
