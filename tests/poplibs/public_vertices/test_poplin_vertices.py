"""Partial products, sums of partials, transforms and factors placed by hand, against NumPy and silicon."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hand_kit import Hand, listed
from poplibs_kit import assert_close

from abele.errors import UnknownVertexTypeError
from abele.numerics import as_element_type, f16, f32
from abele.numerics import types as kinds

rng = np.random.default_rng(5)


def conv_1x1(
    hand: Hand, positions: int, dtype: str, partials: str, groups: tuple[int, int, int], stride: int = 1
) -> Any:
    """A ConvPartial1x1Out of ``groups`` (conv, out, in) groups of 16 channels over so many output positions."""
    conv, out_groups, in_groups = groups
    one, other = as_element_type(dtype), as_element_type(partials)
    x = rng.normal(size=(conv, in_groups, positions * stride, 16))
    w = rng.normal(size=(conv, in_groups, out_groups, 16, 16))
    tx, tw = hand.put(x, one), hand.put(w, one)
    out = hand.room((conv, out_groups, positions, 16), other)
    per_out, per_in = 8 // other.bytes, 8 // one.bytes
    share, lists, begin = -(-positions // 6), [], 0
    for _ in range(6):
        count = max(min(share, positions - begin), 0)
        lists += [begin * 16 // per_out, count - 3 & 0xFFFF, begin * stride * 16 // per_in]
        begin += count
    vertex = hand.place(
        f"poplin::ConvPartial1x1Out<{dtype},{partials},true,false,{16 if one == f16 else 8},{per_in},false>",
        in_=listed(tx.reshape((conv * in_groups, -1))),
        weights=listed(tw.reshape((conv * in_groups * out_groups, 256))),
        out=listed(out.reshape((conv * out_groups, -1))),
        worklists=hand.put(np.array(lists), "u16"),
        numConvGroupsM1=conv - 1,
        numOutGroupsM1=out_groups - 1,
        numInGroups=in_groups,
        transformedInStride=1 + (stride - 1) * 16 // per_in,
        outChansPerGroup=16,
        inChansPerGroup=16,
        transformedOutStride=-6,
    )
    # Groups of output channels lie backwards in the weights.
    used = hand.data[tw].astype(np.float64)[:, :, ::-1]
    wanted = np.einsum("gipc,giohc->goph", hand.data[tx].astype(np.float64)[:, :, ::stride], used)
    return vertex, out, wanted


@pytest.mark.parametrize(
    ("dtype", "partials", "groups", "stride"),
    [("half", "half", (1, 1, 1), 1), ("half", "float", (2, 2, 3), 1), ("float", "float", (1, 2, 1), 2)],
)
def test_conv_partial_1x1__groups_and_strides(
    dtype: str, partials: str, groups: tuple[int, int, int], stride: int
) -> None:
    hand = Hand()
    _, out, wanted = conv_1x1(hand, 20, dtype, partials, groups, stride)
    assert_close(hand.run()[out], wanted, as_element_type(partials), 4.0)


@pytest.mark.parametrize(
    ("positions", "silicon"), [(32, 461), (64, 584), (128, 845), (256, 1352), (512, 2381), (1024, 4424), (2048, 8525)]
)
def test_conv_partial_1x1__cost__within_a_hundredth_of_silicon(positions: int, silicon: int) -> None:
    """Measured on a Bow, machine reference §4.0: half to half, 16 by 16 weights."""
    hand = Hand()
    vertex, *_ = conv_1x1(hand, positions, "half", "half", (1, 1, 1))
    assert abs(hand.cycles(vertex) - silicon) <= max(8, silicon * 0.01)


@pytest.mark.parametrize("name", ["float", "half"])
def test_outer_product_and_reduce_add(name: str) -> None:
    hand = Hand()
    dtype = as_element_type(name)
    x, w = rng.integers(-4, 4, 5), rng.integers(-4, 4, 12)
    out = hand.room((3, 20), dtype)
    hand.place(
        f"poplin::OuterProduct<{name}>",
        in_=hand.put(x, dtype),
        weights=hand.put(w, dtype),
        out=listed(out),
        chansPerGroup=4,
    )
    p = rng.integers(-9, 9, (4, 10))
    t, total, rest = hand.put(p, dtype), hand.room(10, dtype), hand.room(10, "f32")
    listed_ = hand.place(
        f"poplin::ReduceAdd<{name},{name},false,false>", partials=listed(t), out=total, numPartials=4, numElems=10
    )
    hand.place(
        f"poplin::ReduceAdd<float,{name},true,false>",
        initialPartial=t[0],
        partials=t[1:].flatten(),
        out=rest,
        numPartials=3,
        numElems=10,
    )
    got = hand.run()
    np.testing.assert_array_equal(got[out].reshape(3, 5, 4), np.einsum("i,gc->gic", x, w.reshape(3, 4)))
    np.testing.assert_array_equal(got[total], p.sum(0))
    np.testing.assert_array_equal(got[rest], p.sum(0))
    assert hand.cycles(listed_) > 0


def test_inverse_deviation__both_algorithms() -> None:
    hand = Hand()
    mean, power = rng.random((2, 7)), rng.random((2, 7)) + 1.0
    m, p = hand.put(mean, "f32"), hand.put(power, "f32")
    plain, stable = hand.room((2, 7), "f32"), hand.room((2, 7), "f16")
    given = {"mean": listed(m), "power": listed(p), "scaleVar": 1.25, "eps": 0.01}
    vertex = hand.place("poplin::InverseStdDeviation<float,float,float,false>", iStdDev=listed(plain), **given)
    hand.place("poplin::InverseStdDeviation<float,float,half,true>", iStdDev=listed(stable), **given)
    got = hand.run()
    assert_close(got[plain], 1 / np.sqrt(1.25 * (power - mean**2) + 0.01), f32)
    assert_close(got[stable], 1 / np.sqrt(1.25 * power + 0.01), kinds.f16)
    assert hand.cycles(vertex) == 6 + 2 * (4 + 5 * 4)


def test_winograd__transforms_make_a_convolution() -> None:
    hand = Hand()
    data, kernel = rng.normal(size=(2, 4, 4, 3)), rng.normal(size=(2, 3, 3, 3))
    sizes = "<float,4,4,3,3>"
    d, w = hand.put(data.reshape(32, 3), "f32"), hand.put(kernel.reshape(18, 3), "f32")
    d_t, w_t, m, out = (
        hand.room((32, 3), "f32"),
        hand.room((32, 3), "f32"),
        hand.room((32, 3), "f32"),
        hand.room((8, 3), "f32"),
    )
    hand.place(f"poplin::WgdDataTransform{sizes}", dIn=listed(d), dTf=listed(d_t))
    hand.place(f"poplin::WgdKernelTransform{sizes}", wIn=listed(w), wTf=listed(w_t))
    hand.place(
        "popops::BinaryOp1D<popops::expr::BinaryOpType::MULTIPLY,float>",
        in1=d_t.flatten(),
        in2=w_t.flatten(),
        out=m.flatten(),
    )
    hand.place(f"poplin::WgdInverseTransform{sizes}", dTf=listed(m), dOut=listed(out))
    got = hand.run()[out].reshape(2, 2, 2, 3)
    wanted = np.zeros((2, 2, 2, 3))
    for i in range(2):
        for j in range(2):
            wanted[:, i, j] = (data[:, i : i + 3, j : j + 3] * kernel).sum((1, 2))
    assert_close(got, wanted, f32, 10.0)
    with pytest.raises(UnknownVertexTypeError, match="only patches of 4×4"):
        hand.graph.addVertex(hand.graph.addComputeSet("cs"), "poplin::WgdDataTransform<float,6,6,3,3>")


@pytest.mark.parametrize("lower", [True, False])
def test_factors_and_solves__of_one_block(lower: bool) -> None:
    hand = Hand()
    root = np.tril(rng.normal(size=(6, 6))) + 3 * np.eye(6)
    spd, half = root @ root.T, root if lower else root.T
    text = str(lower).lower()
    b = rng.normal(size=6)
    factor, x, inverse = hand.room((6, 6), "f32"), hand.room(6, "f32"), hand.room((6, 6), "f32")
    given = spd if not lower else np.tril(spd)
    vertex = hand.place(
        f"poplin::Cholesky<float,{text}>", in_=hand.put(given, "f32").flatten(), out=factor.flatten(), dim=6
    )
    a = hand.put(half, "f32").flatten()
    hand.place(f"poplin::TriangularSolve<float,{text}>", a=a, b=hand.put(b, "f32"), x=x, dim=6)
    hand.place(f"poplin::TriangularInverseWithTranspose<float,{text}>", in_=a, out=inverse.flatten(), dim=6)
    got = hand.run()
    assert_close(got[factor], half, f32, 20.0)
    assert_close(got[x], np.linalg.solve(half, b), f32, 20.0)
    assert_close(got[inverse], np.linalg.inv(half).T, f32, 20.0)
    assert hand.cycles(vertex) == 6**3 + 102 * 36 + 101 * 6 + 102


def _conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of images [height, width, in] and kernels [ky, kx, out, in], without padding."""
    ky, kx, *_ = w.shape
    high, wide = x.shape[0] - ky + 1, x.shape[1] - kx + 1
    return sum(np.einsum("yxi,oi->yxo", x[a : a + high, b : b + wide], w[a, b]) for a in range(ky) for b in range(kx))


def _lists(high: int, wide: int, in_wide: int, kernel: tuple[int, int], units: tuple[int, int]) -> list[list[int]]:
    """Work lists of a convolution: rows of the output dealt out to six workers, for every kernel position."""
    lists = []
    for a in range(kernel[0]):
        for b in range(kernel[1]):
            for worker in range(6):
                mine = range(worker, high, 6)
                lists.append([v for y in mine for v in (y * wide * units[0], wide, ((y + a) * in_wide + b) * units[1])])
    return lists


@pytest.mark.parametrize(("dtype", "partials"), [("half", "float"), ("float", "float")])
def test_conv_partial_nx1_and_horizontal__kernels_of_2_by_3(dtype: str, partials: str) -> None:
    hand = Hand()
    one, other = as_element_type(dtype), as_element_type(partials)
    x, w = rng.normal(size=(2, 8, 7, 4)), rng.normal(size=(2, 2, 3, 8, 4))
    tx, tw = hand.put(x, one), hand.put(w, one)
    amp, mac = hand.room((7, 5, 8), other), hand.room((7, 5, 8), other)
    sizes = {"numOutGroupsM1": 0, "numInGroups": 2, "numConvGroupsM1": 0, "outChansPerGroup": 8, "inChansPerGroup": 4}
    edges = {"in_": listed(tx.reshape((2, -1))), "weights": listed(tw.reshape((2, -1)))}

    def lists(units: tuple[int, int]) -> list[Any]:
        return [hand.put(np.array(row), "u16") for row in _lists(7, 5, 7, (2, 3), units)]

    units = 16 if one == f16 else 8
    first = hand.place(
        f"poplin::ConvPartialnx1<{dtype},{partials},true,false,{units},{8 // one.bytes},false>",
        out=[amp.flatten()],
        worklists=lists((8 * other.bytes // 8, 4 * one.bytes // 8)),
        kernelOuterSizeM1=1,
        kernelInnerElementsM1=2,
        transformedInStride=1,
        **edges,
        **sizes,
    )
    second = hand.place(
        f"poplin::ConvPartialHorizontalMac<{dtype},{partials},true>",
        out=[mac.flatten()],
        worklists=lists((1, 1)),
        kernelSizeM1=5,
        transformedInStride=1,
        **edges,
        **sizes,
    )
    got = hand.run()
    wide_x, wide_w = hand.data[tx].astype(np.float64), hand.data[tw].astype(np.float64)
    wanted = _conv(wide_x[0], wide_w[0]) + _conv(wide_x[1], wide_w[1])
    for out in (amp, mac):
        assert_close(got[out], wanted, other, 8.0)
    assert 0 < hand.cycles(first) < hand.cycles(second)
