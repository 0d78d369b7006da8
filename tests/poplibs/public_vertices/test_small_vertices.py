"""Counters, statistics, transpositions, sorts and images placed by hand, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hand_kit import Hand, listed
from poplibs_kit import assert_close

from abele.errors import UnknownVertexTypeError
from abele.numerics import as_element_type, f16, f32

rng = np.random.default_rng(11)


def test_counters__count_and_compare() -> None:
    hand = Hand()
    count, limit, more = hand.put(3, "u32"), hand.put(9, "u32"), hand.room((), "u32")
    hand.place("popops::ForLoopCounter<unsigned int>", count=count, limit=limit, comparisonResult=more, increment=2)
    index, moved = hand.put(4, "u32"), hand.room((), "u32")
    hand.place("popops::CircBufIncrIndex", index=index, hSize=5)
    hand.place("popops::CircOffset", indexIn=index, indexOut=moved, hSize=5, offset=7)
    got = hand.run(times=1)
    assert [int(got[t]) for t in (count, more, index, moved)] == [5, 1, 0, 2]


@pytest.mark.parametrize("dtype", ["float", "half"])
def test_has_nan__tells_nan_from_infinity(dtype: str) -> None:
    hand = Hand()
    kind = as_element_type(dtype)
    fine, nan, infinite = (np.array(v) for v in ([1.0, 2, 3], [1.0, np.nan, 3], [1.0, -np.inf, 3]))
    found = []
    for values in (fine, nan, infinite):
        for also in ("false", "true"):
            x = hand.put(values, kind)
            found += [hand.put(0.0, "f32"), hand.put(0.0, "f32")]
            hand.place(f"popops::HasNaNOrInf1D<{dtype},{also}>", in_=x, outSetIfFound=found[-2])
            hand.place(f"popops::HasNaNOrInf2D<{dtype},{also}>", in_=[x[:2], x[2:]], outSetIfFound=found[-1])
    got = hand.run()
    assert [float(got[t]) for t in found] == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("absolute", [False, True])
def test_histogram__as_numpy(absolute: bool) -> None:
    hand = Hand()
    x = rng.normal(size=(2, 40))
    limits = np.array([-0.5, 0.25, 1.0])
    t, bounds = hand.put(x, "f32"), hand.put(limits, "f32")
    one, two, three = hand.room(4, "u32"), hand.room(4, "f32"), hand.room(4, "u32")
    flag = str(absolute).lower()
    hand.place(f"popops::Histogram1D<float,{flag}>", data=t.flatten(), histogram=one, limits=bounds, histogramCount=4)
    hand.place(
        f"popops::Histogram2D<float,{flag},true>", data=listed(t), histogram=two, limits=bounds, histogramCount=4
    )
    hand.place(
        f"popops::HistogramSupervisor<float,{flag},false>", data=t[0], histogram=three, limits=bounds, histogramCount=4
    )
    got = hand.run()

    def wanted(values: np.ndarray) -> np.ndarray:
        held = np.abs(values) if absolute else values
        return np.histogram(held, np.concatenate([[-np.inf], limits, [np.inf]]))[0]

    np.testing.assert_array_equal(got[one], wanted(x))
    np.testing.assert_array_equal(got[two], wanted(x))
    np.testing.assert_array_equal(got[three], wanted(x[0]))


@pytest.mark.parametrize("dtype", ["half", "float", "unsigned short"])
def test_transpose__one_worker_all_workers_and_rows(dtype: str) -> None:
    hand = Hand()
    kind = as_element_type(dtype)
    x = np.arange(7 * 8 * 12).reshape(7, 8, 12).astype(kind.np)
    t = hand.put(x)
    outs = [hand.room((7, 12, 8), kind) for _ in range(3)]
    sizes = {"numSrcRowsD4Or1": 2, "numSrcColumnsD4Or1": 3}
    flat = [o.flatten() for o in outs]
    single = hand.place(
        f"popops::Transpose1DSingleWorker<{dtype}>", src=t.flatten(), dst=flat[0], numTranspositionsM1=6, **sizes
    )
    hand.place(
        f"popops::Transpose1D<{dtype}>", src=t.flatten(), dst=flat[1], numTranspositionsQ=2, workerCount=1, **sizes
    )
    hand.place(
        f"popops::Transpose2D<{dtype}>",
        src=listed(t.reshape((7, 96))),
        dst=listed(outs[2].reshape((7, 96))),
        numSrcRows=8,
        numSrcColumns=12,
    )
    older = hand.room((12, 8), kind)
    hand.place(
        f"popops::Transpose<{dtype}>",
        src=t[0].flatten(),
        dst=older.flatten(),
        numSrcRowsD4=2,
        numSrcColumnsD4=3,
        numTranspositionsM1=0,
    )
    got = hand.run()
    for out in outs:
        np.testing.assert_array_equal(got[out], x.swapaxes(1, 2))
    np.testing.assert_array_equal(got[older], x[0].T)
    assert hand.cycles(single) == 24 + 7 * (10 + 2 * (8 // kind.bytes) * 96 // (8 // kind.bytes) ** 2)


@pytest.mark.parametrize(("dtype", "size"), [("float", 1), ("float", 37), ("half", 16), ("int", 100)])
def test_heap_sort__keys_and_values(dtype: str, size: int) -> None:
    hand = Hand()
    kind = as_element_type(dtype)
    x = rng.permutation(size).astype(kind.np)
    keys, out, values = hand.put(x), hand.put(x), hand.put(np.arange(size), "u32")
    hand.place(f"popops::HeapSortVertex<{dtype}>", out=out)
    vertex = hand.place(f"popops::HeapSortVertexKV<{dtype},unsigned int>", key=keys, value=values)
    got = hand.run()
    np.testing.assert_array_equal(got[out], np.sort(x))
    np.testing.assert_array_equal(got[keys], np.sort(x))
    np.testing.assert_array_equal(got[values], np.argsort(x))
    assert hand.cycles(vertex) == 2 * 8 * (19 * size * int(np.log2(size)) + 6 * size + 2)


def test_normalise_image__bytes_to_halves_of_four_channels() -> None:
    hand = Hand()
    x = rng.integers(0, 255, (5, 3)).astype(np.uint8)
    scales, offsets = np.array([0.5, 0.25, 2.0]), np.array([1.0, 0.5, 0.0])
    out = hand.room((5, 4), "f16")
    hand.place(
        "popops::NormaliseImage<unsigned char,half>",
        inScale=hand.put(1 / 256, "f32"),
        in_=hand.put(x).flatten(),
        scales=hand.put(scales, "f16"),
        offsets=hand.put(offsets, "f16"),
        out=out.flatten(),
    )
    got = hand.run()[out]
    assert_close(got[:, :3], (x / 256 - offsets) * scales, f16)
    assert not got[:, 3].any()


def test_elements_of_rows__selected_and_taken_one_from() -> None:
    hand = Hand()
    x = rng.normal(size=(3, 5))
    index = np.array([2, 4, 0])
    t, out = hand.put(x, "f32"), hand.room(3, "f32")
    sizes = {"rowCount": 3, "paramsWidth": 5, "firstStartCol": 1, "lastEndCol": 3}
    part = t.flatten()[1:13]
    hand.place("popops::SelectFromInterval<float>", indices=hand.put(index, "u32"), params=part, output=out, **sizes)
    hand.place("popops::UpdateIntervalDEC<float>", indices=hand.put(np.array([0, 4, 1]), "u32"), params=part, **sizes)
    got = hand.run()
    assert_close(got[out], x[[0, 1, 2], index], f32)
    wanted = x.copy()
    wanted[1, 4] -= 1
    wanted[2, 1] -= 1
    assert_close(got[t], wanted, f32)


def test_vertices_that_are_withheld__say_why() -> None:
    graph = Hand().graph
    for name, why in {
        "popops::CompareAndSwapAtDistance<float>": "the coding of its work lists is not known here",
        "popops::SequenceSlice<float>": "popops.sequenceSlice does what it is for",
        "poprand::SetSeedSupervisor": "poprand.setSeed",
        "popnn::CTCAlpha<float,float,unsigned short,true>": "popnn.ctc does what it is for",
        "poplin::ConvPartial1x4SLIC<half,float,1,4,8>": "poplin.convolution places vertices of this kind itself",
    }.items():
        with pytest.raises(UnknownVertexTypeError, match=why):
            graph.addVertex(graph.addComputeSet("cs"), name)
