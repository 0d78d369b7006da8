"""Non-linearities, losses and pooling placed by hand, against PyTorch's definitions in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hand_kit import Hand, listed
from poplibs_kit import assert_close

from abele.compiler.cost import vertex_costs
from abele.errors import UnknownVertexTypeError
from abele.numerics import as_element_type, f16, f32
from abele.poplibs import popnn, poputil

rng = np.random.default_rng(3)
_erf = np.vectorize(math.erf)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


FORWARD = {
    "SIGMOID": _sigmoid,
    "HARD_SIGMOID": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "RELU": lambda x: np.maximum(x, 0),
    "TANH": np.tanh,
    "GELU": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "SWISH": lambda x: x * _sigmoid(x),
    "GELU_ERF": lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))),
}


@pytest.mark.parametrize("name", ["float", "half"])
def test_non_linearities__all_forms(name: str) -> None:
    hand = Hand()
    dtype = as_element_type(name)
    x = rng.normal(size=(2, 9)) * 2
    wanted = {}
    for kind, reference in FORWARD.items():
        full = poputil.templateVertex("", dtype, popnn.NonLinearityType[kind])
        if dtype == f16 and kind not in ("GELU", "RELU"):
            continue
        t, changed, held = hand.put(x, dtype), hand.put(x, dtype), hand.put(x, dtype)
        out, two = hand.room((2, 9), dtype), hand.room((2, 9), dtype)
        hand.place(f"popnn::NonLinearity1D{full}", data=t.flatten(), out=out.flatten(), n=18)
        value = reference(hand.data[t].astype(np.float64))
        wanted[out] = value
        if kind not in ("RELU", "TANH"):
            continue
        hand.place(f"popnn::NonLinearity2D{full}", data=listed(t), out=listed(two))
        hand.place(f"popnn::NonLinearity1DInPlace{full}", data=changed.flatten(), n=18)
        hand.place(f"popnn::NonLinearity2DInPlace{full}", data=listed(held))
        wanted |= dict.fromkeys((two, changed, held), value)
    got = hand.run()
    for tensor, value in wanted.items():
        assert_close(got[tensor], value, dtype)


def test_gradients__agree_with_differences() -> None:
    hand = Hand()
    x, g = rng.normal(size=16) * 2, rng.normal(size=16)
    outs = {}
    for kind, reference in FORWARD.items():
        takes_input = kind in ("GELU", "GELU_ERF", "SWISH")
        act = hand.put(x if takes_input else reference(x), "f32")
        out = hand.room(16, "f32")
        name = f"popnn::NonLinearityGrad1D<float,popnn::NonLinearityType::{kind}>"
        hand.place(name, outGrad=hand.put(g, "f32"), out=act, inGrad=out, n=16)
        slope = (reference(x + 1e-6) - reference(x - 1e-6)) / 2e-6
        outs[out] = g * slope
        if kind != "SWISH":
            continue
        rows = hand.room((2, 8), "f32")
        hand.place(
            f"popnn::NonLinearityGrad2D<float,popnn::NonLinearityType::{kind}>",
            outGrad=listed(hand.put(g.reshape(2, 8), "f32")),
            out=[act[:8], act[8:]],
            inGrad=listed(rows),
        )
        outs[rows] = (g * slope).reshape(2, 8)
    got = hand.run()
    for tensor, value in outs.items():
        assert_close(got[tensor], value, f32, 5.0)


def test_non_linearity__same_data__costs_what_the_library_function_does() -> None:
    by_hand, called = Hand(1), Hand(1)
    x = by_hand.put(np.ones(777), "f16")
    one = by_hand.place(
        "popnn::NonLinearity1D<half,popnn::NonLinearityType::TANH>", data=x, out=by_hand.room(777, "f16"), n=777
    )
    grad = by_hand.place(
        "popnn::NonLinearityGrad1D<half,popnn::NonLinearityType::TANH>",
        outGrad=x,
        out=x,
        inGrad=by_hand.room(777, "f16"),
        n=777,
    )
    g = called.graph
    y = popnn.non_linearity(g, "tanh", called.put(np.ones(777), "f16"), called.prog)
    popnn.non_linearity_input_gradient(g, "tanh", y, called.put(np.ones(777), "f16"), called.prog)
    costs = [int(vertex_costs(group, g.system.ipu).amount[0]) for cs in g.compute_sets for group in cs.groups]
    assert [by_hand.cycles(one), by_hand.cycles(grad)] == costs


@pytest.mark.parametrize("name", ["float", "half"])
def test_losses__transforms_of_probabilities(name: str) -> None:
    hand = Hand()
    dtype = as_element_type(name)
    p = rng.random(6) * 0.9 + 0.05
    t = np.eye(6)[2]
    probs, expected = hand.put(p, dtype), hand.put(t, dtype)
    deltas, loss, d2, l2 = (hand.room(6, dtype) for _ in range(4))
    hand.place(
        f"popnn::LossSumSquaredTransform<{name}>",
        probs=probs,
        expected=expected,
        deltas=deltas,
        transformed=loss,
        size=6,
    )
    hand.place(
        f"popnn::LossCrossEntropyTransform<{name}>",
        probs=probs,
        expected=expected,
        deltas=d2,
        transformed=l2,
        size=6,
        deltasScale=hand.put([2.0], dtype),
        modelOutputScaling=hand.put([4.0], dtype),
    )
    got = hand.run()
    p = hand.data[probs].astype(np.float64)
    assert_close(got[deltas], p - t, dtype)
    assert_close(got[loss], 0.5 * (p - t) ** 2, dtype)
    assert_close(got[d2], 0.5 * (p - 4 * t), dtype)
    assert_close(got[l2], -t * (np.log(p) - math.log(4)), dtype, 2.0)


def test_largest_and_smallest_classes__by_stretch_and_by_label() -> None:
    hand = Hand()
    x = rng.permutation(20).astype(np.float32)
    t = hand.put(x, "f32")
    best, where = hand.room(3, "f32"), hand.room(3, "u32")
    hand.place(
        "popnn::ReduceMaxClassGather<float,unsigned int>",
        activations=t,
        index=100,
        maxValue=best,
        maxIndex=where,
        size=20,
        divisorLog2=3,
    )
    top, label = hand.room((), "f32"), hand.room((), "u32")
    hand.place(
        "popnn::ReduceMaxClassSparse<unsigned int>", activations=best, labels=where, maxValue=top, maxIndex=label
    )
    least, at = hand.room(1, "f32"), hand.room(1, "i32")
    hand.place(
        "popnn::ReduceMinClassGather<half,int>",
        activations=hand.put(x, "f16"),
        index=0,
        minValue=least,
        minIndex=at,
        size=20,
        divisorLog2=5,
    )
    right = hand.put(1, "u32")
    hand.place(
        "popnn::CalcAccuracy<unsigned int>",
        maxPerBatch=hand.put([1, 2, 3, 4], "u32"),
        expected=hand.put([1, 0, 3, 0xFFFFFFFF], "u32"),
        numCorrect=right,
    )
    got = hand.run()
    parts = [x[:8], x[8:16], x[16:]]
    np.testing.assert_array_equal(got[best], [p.max() for p in parts])
    np.testing.assert_array_equal(got[where], [100 + 8 * k + p.argmax() for k, p in enumerate(parts)])
    assert (float(got[top]), int(got[label])) == (x.max(), 100 + x.argmax())
    assert (float(got[least][0]), int(got[at][0])) == (x.min(), x.argmin())
    assert int(got[right]) == 3


@pytest.mark.parametrize("name", ["float", "half"])
def test_pooling__windows_of_work_lists(name: str) -> None:
    """Windows of 2 with a stride of 2 over 6 positions of a group of channels of 8 bytes."""
    hand = Hand()
    dtype = as_element_type(name)
    lanes = 8 // dtype.bytes
    x = rng.permutation(6 * lanes).reshape(6, lanes).astype(np.float64)
    t, most, mean = hand.put(x, dtype), hand.room((3, lanes), dtype), hand.room((3, lanes), dtype)
    work = [hand.put(w, "u16") for w in ([0, 0, 1, 2, 4, 0], [0, 1, 2])]
    lists = {"startPos": hand.put([1, 2, 2, 2, 2, 2], "u16"), "workList": work}
    sizes = {"initInfo": 3, "numChanGroupsM1": 0, "chansPerGroupD": 1, "inStride": 2}
    hand.place(f"popnn::MaxPooling<{name}>", out=[most.flatten()], in_=[t.flatten()], **lists, **sizes)
    hand.place(f"popnn::SumPooling<{name}>", out=[mean.flatten()], in_=[t.flatten()], scale=0.5, **lists, **sizes)
    grad, back = rng.integers(1, 9, (3, lanes)), hand.room((6, lanes), dtype)
    # Of the gradient an output is an input of the pooling: runs begin there, and a stride of 2 is between them.
    turned = [hand.put(w, "u16") for w in ([0, 0, 2], [1, 0, 2])]
    hand.place(
        f"popnn::MaxPoolingGrad<{name}>",
        out=[back.flatten()],
        in_=[hand.put(grad, dtype).flatten()],
        fwdActsIn=[t.flatten()],
        fwdActsOut=[most.flatten()],
        startPos=lists["startPos"],
        workList=turned,
        initInfo=6,
        numChanGroupsM1=0,
        chansPerGroupD=1,
        outStride=2,
    )
    got = hand.run()
    windows = x.reshape(3, 2, lanes)
    np.testing.assert_array_equal(got[most], windows.max(1))
    assert_close(got[mean], windows.mean(1), f16)
    wanted = np.where(windows == windows.max(1, keepdims=True), grad[:, None], 0)
    np.testing.assert_array_equal(got[back], wanted.reshape(6, lanes))


def test_softmax__is_no_vertex__the_name_is_refused() -> None:
    graph = Hand().graph
    with pytest.raises(UnknownVertexTypeError, match="takes RELU, SIGMOID, TANH"):
        graph.addVertex(graph.addComputeSet("cs"), "popnn::NonLinearity1D<float,popnn::NonLinearityType::SOFTMAX>")
