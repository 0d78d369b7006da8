"""Random vertices placed by hand: their distributions, and that numbers are reproduced."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hand_kit import Hand
from poplibs_kit import system_of

from abele.numerics import as_element_type
from abele.poplibs import poprand
from abele.poplibs.poprand.draw import DrawCycles

N = 20000


@pytest.mark.parametrize("dtype", ["float", "half"])
def test_distributions_of_floats__moments_and_bounds(dtype: str) -> None:
    hand = Hand()
    out = [hand.room(N, as_element_type(dtype)) for _ in range(4)]
    hand.place(f"poprand::Uniform<{dtype}>", out=out[0], scale=4.0, offset=1.0, shift=0)
    hand.place(f"poprand::Normal<{dtype}>", out=out[1], mean=2.0, stdDev=0.5)
    hand.place(f"poprand::TruncatedNormal<{dtype}>", out=out[2], mean=1.0, stdDev=2.0, alpha=1.5, iterations=4)
    hand.place(f"poprand::Bernoulli<{dtype}>", out=out[3], prob=16384)
    got = hand.run()
    uniform, normal, cut, one = (got[o].astype(np.float64) for o in out)
    assert uniform.min() >= -1
    assert uniform.max() <= 3
    assert abs(uniform.mean() - 1) < 0.03
    assert abs(uniform.var() - 16 / 12) < 0.03
    assert abs(normal.mean() - 2) < 0.02
    assert abs(normal.std() - 0.5) < 0.02
    assert cut.min() >= 1 - 3.01
    assert cut.max() <= 1 + 3.01
    density = math.exp(-1.125) / math.sqrt(2 * math.pi) / math.erf(1.5 / math.sqrt(2))
    assert abs(cut.std() - 2 * math.sqrt(1 - 3 * density)) < 0.04
    assert set(np.unique(one)) == {0.0, 1.0}
    assert abs(one.mean() - 0.25) < 0.02


def test_whole_numbers__every_one_of_the_range() -> None:
    hand = Hand()
    a, b, c = (hand.room(N, "i32") for _ in range(3))
    hand.place("poprand::Uniform<int>", out=a, scale=6, offset=-2, shift=0)
    hand.place("poprand::UniformInt<int>", out=b, scale=0, offset=0)
    hand.place("poprand::Bernoulli<int>", out=c, prob=65536)
    got = hand.run()
    np.testing.assert_array_equal(np.unique(got[a]), np.arange(-2, 4))
    assert abs((got[a] == 0).mean() - 1 / 6) < 0.02
    assert got[b].min() < -(2**30)
    assert got[b].max() > 2**30
    assert (got[c] == 1).all()


def test_dropout__keeps_and_scales() -> None:
    hand = Hand()
    x, out = hand.put(np.arange(1.0, N + 1), "f32"), hand.room(N, "f32")
    hand.place("poprand::Dropout<float>", in_=x, out=out, numElems=N, scale=2.0, prob=32768)
    got = hand.run()[out]
    kept = got != 0
    assert abs(kept.mean() - 0.5) < 0.02
    np.testing.assert_array_equal(got[kept], 2 * np.arange(1.0, N + 1)[kept])


def test_numbers__differ_by_vertex_and_run__and_are_those_of_an_equal_graph() -> None:
    def drawn(times: int) -> list[np.ndarray]:
        hand = Hand()
        outs = [hand.room(64, "f32") for _ in range(2)]
        for out in outs:
            hand.place("poprand::Uniform<float>", out=out, scale=1.0, offset=0.5)
        got = hand.run(times=times)
        return [got[o] for o in outs]

    first, second = drawn(1), drawn(2)
    np.testing.assert_array_equal(first, drawn(1))
    assert not np.isin(first[0], first[1]).any()
    assert not np.isin(first[0], second[0]).any()


def test_numbers__of_one_graph__do_not_depend_on_threads_or_on_compiling_again() -> None:
    hand = Hand()
    outs = [hand.room(40, "f16", tile) for tile in range(4)]
    for tile, out in enumerate(outs):
        hand.place("poprand::Normal<half>", tile, out=out, mean=0.0, stdDev=1.0)
    once, again, plain = hand.run(), hand.run(threads=2), hand.run(debug=True)
    for out in outs:
        np.testing.assert_array_equal(once[out], again[out])
        np.testing.assert_array_equal(once[out], plain[out])


def test_cost__same_data__that_of_the_library_function() -> None:
    hand = Hand(1)
    vertex = hand.place("poprand::Normal<float>", out=hand.room(1000, "f32"), mean=0.0, stdDev=1.0)
    called = Hand(1)
    like = called.put(np.zeros(1000), "f32")
    poprand.normal(called.graph, called.put(np.zeros(2), "u32"), 0, like, called.prog)
    ipu = system_of(1).ipu
    formula = DrawCycles(4, 22, 4.0, like.dtype)
    assert hand.cycles(vertex) == int(formula(np.array([1000]), ipu)[0])
