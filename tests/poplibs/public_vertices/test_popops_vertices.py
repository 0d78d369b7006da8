"""Casts, selects, scaled additions, fills, reductions and slices placed by hand, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hand_kit import Hand, listed
from poplibs_kit import assert_close

from abele.compiler.cost import vertex_costs
from abele.errors import AbeleError, FieldOverflowError, GraphConnectionError, UnknownVertexTypeError
from abele.graph.vertices import VertexGroup
from abele.numerics import as_element_type, f16, f32
from abele.poplibs import popops

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(7)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float", "half"),
        ("half", "float"),
        ("float", "int"),
        ("int", "half"),
        ("bool", "unsigned int"),
        ("short", "int"),
    ],
)
def test_casts__vectors_and_rows__as_numpy(source: str, target: str) -> None:
    hand = Hand()
    one, other = as_element_type(source), as_element_type(target)
    values = rng.integers(-40, 40, (3, 11)) / (8 if one.is_float else 1)
    values = values != 0 if source == "bool" else values
    x = hand.put(values.astype(one.np), one)
    outs = [hand.room((3, 11), other) for _ in range(5)]
    hand.place(f"popops::Cast1D<{source},{target}>", src=x.flatten(), dst=outs[0].flatten(), numElems=33)
    hand.place(f"popops::Cast<{source},{target}>", src=x.flatten(), dst=outs[1].flatten(), numElems=33)
    hand.place(f"popops::Cast2D<{source},{target}>", src=listed(x), dst=listed(outs[2]))
    packed = 8 << 9 | 3 << 6 | 5 << 3 | 3  # 3 workers with 8 elements and 3 with 4, the last with 3 fewer
    hand.place(
        f"popops::CastSupervisor<{source},{target}>", src=x.flatten(), dst=outs[3].flatten(), partitionParams=packed
    )
    whole = hand.place(f"popops::Cast1D<{source},{target}>", src=x.flatten(), dst=outs[4].flatten())
    got = hand.run()
    wanted = hand.data[x].astype(other.np)
    for out in outs:
        np.testing.assert_array_equal(got[out], wanted)
    told = [v for v in hand.steps if v.codelet.kind == "multi"]
    assert {hand.cycles(v) for v in told} == {hand.cycles(whole)}


def test_check_accuracy_when_cast__half_holds_the_first_alone() -> None:
    hand = Hand()
    outs = []
    for value in (0.5, 0.1001, 1e9, 0.0):
        outs.append(hand.room((), "bool"))
        hand.place(
            "popops::CheckAccuracyWhenCast<float,half>", input=hand.put(value, "f32"), output=outs[-1], tolerance=1e-6
        )
    got = hand.run()
    assert [bool(got[o]) for o in outs] == [True, False, False, True]


@pytest.mark.parametrize("name", ["half", "bool"])
def test_select__every_form__as_numpy_where(name: str) -> None:
    hand = Hand()
    dtype = as_element_type(name)
    a, b = (rng.integers(0, 2 if name == "bool" else 50, (2, 9)).astype(dtype.np) for _ in range(2))
    c = rng.integers(0, 2, (2, 9)).astype(bool)
    p, q, s = hand.put(a), hand.put(b), hand.put(c)
    out = [hand.room((2, 9), dtype) for _ in range(3)]
    hand.place(f"popops::Select<{name}>", in1=listed(p), in2=listed(q), in3=listed(s), out=listed(out[0]))
    hand.place(f"popops::BroadcastSelect<{name}>", in1=p[0, 0], in2=q[0, 1], in3=listed(s), out=listed(out[1]))
    hand.place(
        f"popops::BroadcastSelectorSelect<{name}>", in1=listed(p), in2=listed(q), in3=s[0, 0], out=listed(out[2])
    )
    changed, other = hand.put(a), hand.put(a)
    hand.place(f"popops::SelectInPlace<{name}>", in1Out=listed(changed), in2=listed(q), in3=listed(s))
    hand.place(f"popops::BroadcastSelectorSelectInPlace<{name}>", in1Out=listed(other), in2=listed(q), in3=s[0, 1])
    got = hand.run()
    np.testing.assert_array_equal(got[out[0]], np.where(c, a, b))
    np.testing.assert_array_equal(got[out[1]], np.where(c, a[0, 0], b[0, 1]))
    np.testing.assert_array_equal(got[out[2]], a if c[0, 0] else b)
    np.testing.assert_array_equal(got[changed], np.where(c, a, b))
    np.testing.assert_array_equal(got[other], a if c[0, 1] else b)


@pytest.mark.parametrize("name", ["half", "int"])
def test_clamp__every_form__as_numpy_clip(name: str) -> None:
    hand = Hand()
    dtype = as_element_type(name)
    x = rng.integers(-50, 50, (3, 5)).astype(dtype.np)
    low, high = (x - 3).astype(dtype.np), np.full((3, 5), 10, dtype.np)
    a, lo, hi = hand.put(x), hand.put(low), hand.put(high)
    out, single = hand.room((3, 5), dtype), hand.room((3, 5), dtype)
    five, minus = hand.put(dtype.np.type(5)), hand.put(dtype.np.type(-5))
    hand.place(f"popops::Clamp<{name}>", in1=listed(a), in2=listed(lo), in3=listed(hi), out=listed(out))
    hand.place(f"popops::BroadcastClamp<{name}>", in1=listed(a), in2=minus, in3=five, out=listed(single))
    held, kept = hand.put(x), hand.put(x)
    hand.place(f"popops::ClampInPlace<{name}>", in1Out=listed(held), in2=listed(lo), in3=listed(hi))
    hand.place(f"popops::BroadcastClampInPlace<{name}>", in1Out=listed(kept), in2=minus, in3=five)
    got = hand.run()
    np.testing.assert_array_equal(got[out], np.clip(x, low, high))
    np.testing.assert_array_equal(got[held], np.clip(x, low, high))
    np.testing.assert_array_equal(got[single], np.clip(x, -5, 5))
    np.testing.assert_array_equal(got[kept], np.clip(x, -5, 5))


SCALED = {
    "ScaledAdd": lambda a, b, s, t: a + t * b,
    "ScaledSubtract": lambda a, b, s, t: a - t * b,
    "aXPlusbY": lambda a, b, s, t: s * a + t * b,
    "aXMinusbY": lambda a, b, s, t: s * a - t * b,
    "XMinusaXPlusbY": lambda a, b, s, t: a - s * a + t * b,
}


@pytest.mark.parametrize("form", SCALED)
def test_scaled_additions__numbers_and_tensors__as_numpy(form: str) -> None:
    hand = Hand()
    a, b = rng.normal(size=(2, 13)), rng.normal(size=(2, 13))
    both = form not in ("ScaledAdd", "ScaledSubtract")
    wanted = {}

    def add(arguments: str, kind: str, second: str, scale: Any, tile_rows: bool) -> None:
        x, y = hand.put(a, kind), hand.put(b, second)
        scales = {"scaleA": 0.5, "scaleB": 0.25} if both else {"scaleB": 0.25}
        given = {n: hand.put([v], scale) if scale else v for n, v in scales.items()}
        if tile_rows:
            hand.place(f"popops::{form}2D<{arguments}>", A=listed(x), B=listed(y), **given)
        else:
            hand.place(f"popops::{form}Supervisor<{arguments}>", A=x.flatten(), B=y.flatten(), size=26, **given)
        wide = hand.data[x].astype(np.float64), hand.data[y].astype(np.float64)
        wanted[x] = SCALED[form](*wide, 0.5, 0.25)

    add("float,float,float,false,false", "f32", "f32", "f32", False)
    add("half,half,float,false,true", "f16", "f16", "f32", False)
    if form == "aXPlusbY":
        add("half,float,half,false,false", "f16", "f32", "f16", True)
        add("float,float,float,true,false", "f32", "f32", None, False)
    add("float,true,false", "f32", "f32", None, True)
    add("half,false,false" if both else "half,half,half,false", "f16", "f16", "f16", True)
    got = hand.run()
    for tensor, value in wanted.items():
        assert_close(got[tensor], value, tensor.dtype)


def test_hadamard_product__of_rows() -> None:
    hand = Hand()
    a, b = rng.normal(size=(2, 2, 9))
    x = hand.put(a, "f16")
    vertex = hand.place("popops::HadamardProd<half>", A=listed(x), B=listed(hand.put(b, "f16")))
    assert_close(hand.run()[x], a * b, f16)
    assert hand.cycles(vertex) == 5 + 2 * (6 + 2 * 3)


def test_scaled_add__same_data__costs_what_the_library_function_does() -> None:
    by_hand, called = Hand(1), Hand(1)
    a, b, s = by_hand.put(np.ones(500), "f32"), by_hand.put(np.ones(500), "f32"), by_hand.put([2.0], "f32")
    vertex = by_hand.place("popops::ScaledAddSupervisor<float,float,float,false,false>", A=a, B=b, scaleB=s, size=500)
    x, y, t = called.put(np.ones(500), "f32"), called.put(np.ones(500), "f32"), called.put([2.0], "f32")
    popops.scaled_add_to(called.graph, x, y, t, called.prog)
    assert by_hand.cycles(vertex) == _costs(called)[0]


def _costs(hand: Hand, group: VertexGroup | None = None) -> list[int]:
    """Cost of every vertex of a group, or of the first of each group."""
    ipu = hand.graph.system.ipu
    if group is not None:
        return [int(c) for c in vertex_costs(group, ipu).amount]
    return [int(vertex_costs(g, ipu).amount[0]) for cs in hand.graph.compute_sets for g in cs.groups]


def test_fill_and_iota__whole_and_rows() -> None:
    hand = Hand()
    a, b, c = hand.room(9, "f16"), hand.room((2, 5), "i32"), hand.room((2, 6), "u32")
    d, e = hand.room(4, "bool"), hand.room((1, 5), "f16")
    hand.place("popops::Fill<half>", in_=1.5, out=a)
    hand.place("popops::Fill2d<int>", in_=-3, out=listed(b))
    hand.place("popops::Iota<unsigned int>", offsets=[7, 100], out=listed(c))
    hand.place("popops::Fill<bool>", in_=True, out=d)
    hand.place("popops::Iota<half>", offsets=[2], out=listed(e))
    got = hand.run()
    np.testing.assert_array_equal(got[a], np.full(9, 1.5))
    np.testing.assert_array_equal(got[b], np.full((2, 5), -3))
    np.testing.assert_array_equal(got[c], np.arange(6) + np.array([[7], [100]]))
    assert got[d].all()
    np.testing.assert_array_equal(got[e], [np.arange(2.0, 7.0)])


@pytest.mark.parametrize("custom", [False, True])
def test_encode_one_hot__slices_of_rows_and_a_masked_index(custom: bool) -> None:
    hand = Hand()
    indices = hand.put([1, 4, 0xFFFFFFFF], "u32")
    out = hand.room(12, "f16")
    more = {"On": hand.put(3.0, "f16"), "Off": hand.put(-1.0, "f16")} if custom else {}
    name = f"popops::EncodeOneHot{'CustomValues' if custom else ''}<unsigned int,half>"
    hand.place(name, indices=indices, out=out, offsets=[0, 2, 0], sliceLen=[5, 4, 3], outLength=12, **more)
    on, off = (3.0, -1.0) if custom else (1.0, 0.0)
    wanted = np.full(12, off)
    wanted[[1, 7]] = on
    np.testing.assert_array_equal(hand.run()[out], wanted)


REDUCTIONS: dict[str, Any] = {
    "ReduceAdd": lambda x: x.sum(0),
    "ReduceSquareAdd": lambda x: (x * x).sum(0),
    "ReduceLogAdd": lambda x: np.log(np.exp(x).sum(0)),
    "ReduceMul": lambda x: x.prod(0),
    "ReduceMax": lambda x: x.max(0),
    "ReduceMin": lambda x: x.min(0),
}


def test_reduce__every_operation_on_rows__as_numpy() -> None:
    hand = Hand()
    x = rng.normal(size=(6, 4))
    t, wanted = hand.put(x, "f32"), {}
    for op, reference in REDUCTIONS.items():
        out = hand.room(4, "f32")
        hand.place(f"popops::Reduce<popops::{op},float,float,false>", out=[out], numPartials=[6], partials=listed(t))
        wanted[out] = reference(hand.data[t].astype(np.float64))
    got = hand.run()
    for tensor, value in wanted.items():
        assert_close(got[tensor], value, f32, 3.0)


@pytest.mark.parametrize("op", ["ReduceSquareAdd", "ReduceMax"])
def test_reduce__every_specialisation_on_floats__as_numpy(op: str) -> None:
    hand = Hand()
    x = rng.normal(size=(6, 4))
    reference = REDUCTIONS[op]
    wanted = {}

    def name(kind: str, partials: str = "float", out: str = "float", update: str = "false", prefix: str = "") -> str:
        special = kind if kind[0].isdigit() else f"popops::ReductionSpecialisation::{kind}"
        return f"popops::{prefix}Reduce<popops::{op},{partials},{out},{update},{special}>"

    t = hand.put(x, "f32")
    wide = hand.data[t].astype(np.float64)
    a, b = hand.room(4, "f32"), hand.room(2, "f16")
    half = hand.put(x[:, :2], "f16")
    hand.place(name("DEFAULT"), out=[a], numPartials=[6], partials=listed(t))
    wanted[a] = reference(wide)
    hand.place(
        name("DEFAULT", "half", "half"),
        out=[b],
        numPartials=[3],
        partials=[half[:2].flatten(), half[2:3].flatten(), half[3:].flatten()],
    )
    wanted[b] = reference(hand.data[half].astype(np.float64))
    c, d = hand.room((1,), "f32"), hand.room(4, "f32")
    hand.place(name("SCALAR_OUTPUT_SINGLE_INPUT"), out=c, numPartials=24, partials=t.flatten())
    wanted[c] = reference(wide.reshape(24, 1))
    hand.place(name("3u"), out=d[:3], numOutputsM1=2, numPartialsM1=5, partialsWidth=4, partials=t.flatten())
    hand.place(name("ALL_REGIONS_CONTINUOUS"), out=d[3:], numOutputsM1=0, numPartials=4, partials=t[0])
    wanted[d] = np.concatenate([reference(wide)[:3], [reference(wide[0])]])
    e = hand.put([1.0, 2.0, 3.0], "f32")
    hand.place(
        f"popops::ScaledContinuousReduce<popops::{op},float,float,true>",
        out=e,
        numOutputsM1=2,
        numPartials=4,
        partials=t[:3].flatten(),
        k=hand.put([0.5], "f32"),
    )
    scaled = reference(wide[:3].T) * 0.5
    held = np.arange(1.0, 4.0)
    wanted[e] = held + scaled if op == "ReduceSquareAdd" else reference(np.stack([held, scaled]))
    f = hand.room(2, "f32")
    hand.place(
        f"popops::StridedReduce<popops::{op},float,float,false>",
        out=f,
        numOutputsM1=1,
        numPartialsM1=1,
        partialsWidth=4,
        numOuterStridesM1=1,
        outerStride=12,
        partials=t.flatten(),
    )
    wanted[f] = reference(wide[[0, 1, 3, 4], :2])
    got = hand.run()
    for tensor, value in wanted.items():
        assert_close(got[tensor], value, f16 if tensor is b else f32, 3.0)


def test_reduce__several_outputs_integers_and_truth_values() -> None:
    hand = Hand()
    x = rng.integers(-9, 9, (5, 3)).astype(np.int32)
    t, flags = hand.put(x), hand.put(x > 0)
    first, second = hand.room(3, "i32"), hand.room(1, "i32")
    hand.place(
        "popops::Reduce<popops::ReduceAdd,int,int,false,0>",
        out=[first, second],
        numPartials=[2, 3],
        partials=[t[0], t[1], t[2], t[3], t[4]],
    )
    any_, all_ = hand.room(3, "bool"), hand.room(3, "bool")
    hand.place("popops::Reduce<popops::ReduceOr,bool,bool,false>", out=[any_], numPartials=[5], partials=listed(flags))
    hand.place("popops::Reduce<ReduceAnd,bool,bool,false>", out=[all_], numPartials=[5], partials=listed(flags))
    equal = hand.room(2, "f32")
    y = hand.put(np.arange(8.0).reshape(2, 4), "f32")
    hand.place(
        "popops::ReducePartialsEqualSize<popops::ReduceAdd,float,float,false>",
        out=equal,
        outCount=1,
        partials=listed(y),
        partialsSizeM1=1,
    )
    got = hand.run()
    np.testing.assert_array_equal(got[first], x[:2].sum(0))
    np.testing.assert_array_equal(got[second], [x[2:].sum()])
    np.testing.assert_array_equal(got[any_], (x > 0).any(0))
    np.testing.assert_array_equal(got[all_], (x > 0).all(0))
    np.testing.assert_array_equal(got[equal], np.arange(8.0).reshape(4, 2).sum(0))
    with pytest.raises(UnknownVertexTypeError, match="a reduction of i32 does not give f32"):
        hand.graph.addVertex(hand.graph.addComputeSet("x"), "popops::Reduce<popops::ReduceAdd,int,float,false,0>")
    with pytest.raises(UnknownVertexTypeError, match="takes bool"):
        hand.graph.addVertex(hand.graph.addComputeSet("x"), "popops::ContinuousReduce<ReduceOr,float,float,false>")


# Data of one worker: what several share is one vertex of theirs, which PopLibs does not have.
@pytest.mark.parametrize("shape", [(4, 4), (4, 12), (9, 8)])
def test_strided_reduce__same_data__costs_what_the_vertex_of_the_library_function_does(shape: tuple[int, int]) -> None:
    by_hand, called = Hand(1), Hand(1)
    popops.reduce(called.graph, called.put(np.ones(shape), "f32"), [0], "ADD", called.prog)
    group = called.graph.compute_sets[0].groups[0]
    x = by_hand.put(np.ones(shape), "f32")
    placed = by_hand.place(
        "popops::StridedReduce<popops::ReduceAdd,float,float,false>",
        out=by_hand.room(shape[1], "f32"),
        numOutputsM1=shape[1] - 1,
        numPartialsM1=shape[0] - 1,
        partialsWidth=shape[1],
        partials=x.flatten(),
    )
    assert [by_hand.cycles(placed)] == _costs(called, group)


@pytest.mark.parametrize("columns", [3, 64, 101])
def test_continuous_reduce__same_data__costs_what_the_vertex_of_the_library_function_does(columns: int) -> None:
    by_hand, called = Hand(1), Hand(1)
    popops.reduce(called.graph, called.put(np.ones((1, columns)), "f32"), [1], "ADD", called.prog)
    group = called.graph.compute_sets[0].groups[0]
    x = by_hand.put(np.ones((1, columns)), "f32")
    placed = by_hand.place(
        "popops::ContinuousReduce<popops::ReduceAdd,float,float,false>",
        out=by_hand.room(1, "f32"),
        numOutputsM1=0,
        numPartials=columns,
        partials=x.flatten(),
    )
    assert [by_hand.cycles(placed)] == _costs(called, group)


@pytest.mark.parametrize("kind", ["half", "unsigned char"])
def test_dynamic_slices__windows_that_wrap_around(kind: str) -> None:
    hand = Hand()
    dtype = as_element_type(kind)
    x = rng.integers(0, 99, (7, 5)).astype(dtype.np)
    base, offset = hand.put(x), hand.put(5, "u32")
    sub, two = hand.room((3, 5), dtype), hand.room((3, 5), dtype)
    sizes = {"numBaseElements": 7, "numSubElements": 3}
    hand.place(
        f"popops::DynamicSlice1D<{kind}>",
        offset=offset,
        baseT=base.flatten(),
        subT=sub.flatten(),
        regionSize=5,
        **sizes,
    )
    hand.place(
        f"popops::DynamicSlice2D<{kind}>", offset=offset, baseT=listed(base), subT=listed(two), numRegions=1, **sizes
    )
    changed, rows, other = hand.put(x), hand.put(x), hand.put(np.ones((3, 5)), dtype)
    hand.place(
        f"popops::DynamicUpdateSlice1d<{kind}>",
        offset=offset,
        baseT=changed.flatten(),
        subT=other.flatten(),
        regionSize=5,
        **sizes,
    )
    hand.place(
        f"popops::DynamicUpdateSlice2d<{kind}>",
        offset=offset,
        baseT=[rows.flatten()],
        subT=[other.flatten()],
        numRegions=1,
        **sizes,
    )
    got = hand.run()
    at = np.array([5, 6, 0])
    np.testing.assert_array_equal(got[sub], x[at])
    np.testing.assert_array_equal(got[two], x[at])
    wanted = x.copy()
    wanted[at] = 1
    np.testing.assert_array_equal(got[changed], wanted)
    np.testing.assert_array_equal(got[rows], wanted)


@pytest.mark.parametrize("kind", ["half", "int"])
def test_multi_slice_and_updates__rows_by_index__those_outside_are_passed_over(kind: str) -> None:
    hand = Hand()
    dtype = as_element_type(kind)
    x, u = rng.integers(-9, 9, (6, 4)).astype(dtype.np), rng.integers(-9, 9, (5, 4)).astype(dtype.np)
    index = np.array([12, 10, 10, 99, 15])
    offsets = hand.put(index, "u32")
    state = {"baseOffset": 10, "numBaseElements": 6, "regionSize": 4}
    inside = [(i, o - 10) for i, o in enumerate(index) if 10 <= o < 16]
    wanted = {}
    sub = hand.put(np.full((5, 4), 7), dtype)
    hand.place(f"popops::MultiSlice<{kind}>", offsets=offsets, baseT=hand.put(x).flatten(), subT=sub.flatten(), **state)
    wanted[sub] = np.full((5, 4), 7)
    given = hand.put(u).flatten()
    names = {
        "none": f"popops::MultiUpdate<{kind}>",
        "add": f"popops::MultiUpdateAdd<{kind},{kind},false>",
        "max": f"popops::MultiUpdateOp<{kind},false,popops::Operation::MAX>",
        "mul": f"popops::MultiUpdateOp<{kind},true,popops::Operation::MUL>",
    }
    for join, name in names.items():
        base = hand.put(x)
        more = {"scale": hand.put(2, dtype)} if join == "add" else {}
        hand.place(name, offsets=offsets, baseT=base.flatten(), subT=given, **state, **more)
        value = x.astype(np.float64)
        for i, o in inside:
            value[o] = {
                "none": u[i],
                "add": value[o] + 2.0 * u[i],
                "max": np.maximum(value[o], u[i]),
                "mul": value[o] * u[i],
            }[join]
        wanted[base] = value
    for i, o in inside:
        wanted[sub][i] = x[o]
    got = hand.run()
    for tensor, value in wanted.items():
        np.testing.assert_array_equal(got[tensor], value.astype(dtype.np))


def test_slices__same_data__cost_what_the_library_functions_do() -> None:
    by_hand, called = Hand(1), Hand(1)
    table, offsets = by_hand.put(np.ones((50, 8)), "f32"), by_hand.put(np.arange(6), "u32")
    state = {"baseOffset": 0, "numBaseElements": 50, "regionSize": 8}
    take = by_hand.place(
        "popops::MultiSlice<float>", offsets=offsets, baseT=table.flatten(), subT=by_hand.room(48, "f32"), **state
    )
    add = by_hand.place(
        "popops::MultiUpdateAdd<float,float,false>",
        offsets=offsets,
        baseT=table.flatten(),
        subT=by_hand.put(np.ones(48), "f32"),
        scale=by_hand.put(1.0, "f32"),
        **state,
    )
    x, o = called.put(np.ones((50, 8)), "f32"), called.put(np.arange(6).reshape(6, 1), "u32")
    popops.multi_slice(called.graph, x, o, [0], [1], called.prog)
    sliced = _costs(called)[0]
    popops.multi_update_add(
        called.graph, x, called.put(np.ones((6, 1, 8)), "f32"), o, called.put(1.0, "f32"), [0], [1], called.prog
    )
    assert by_hand.cycles(take) == sliced
    assert by_hand.cycles(add) in _costs(called)


def test_misuse__sizes_that_fields_do_not_hold__typed_errors() -> None:
    hand = Hand()
    a = hand.put(np.ones(70000), "f32")
    cs = hand.graph.addComputeSet("cs")
    vertex = hand.graph.addVertex(cs, "popops::ScaledAddSupervisor<float,float,float,true,false>", {"A": a, "B": a})
    hand.graph.setInitialValue(vertex["scaleB"], 1.0)
    hand.graph.setTileMapping(vertex, 0)
    with pytest.raises(GraphConnectionError, match=r"ScaledAddSupervisor.*size is not connected"):
        _ = cs.groups
    hand.graph.setInitialValue(vertex["size"], 70000)
    with pytest.raises(FieldOverflowError, match="from 0 to 65,535; it was given 70,000"):
        _ = cs.groups
    with pytest.raises(UnknownVertexTypeError, match="takes 5 template arguments, not 1"):
        hand.graph.addVertex(cs, "popops::ScaledAddSupervisor<float>")
    with pytest.raises(UnknownVertexTypeError, match="mixes floats and integers"):
        hand.graph.addVertex(cs, "popops::ScaledAddSupervisor<float,int,int,true,false>")


def test_bounds__a_vector_that_is_too_short__the_checks_name_vertex_and_field() -> None:

    hand = Hand()
    hand.place("popops::Cast1D<float,half>", src=hand.put(np.ones(4), "f32"), dst=hand.room(8, "f16"), numElems=8)
    with pytest.raises(AbeleError, match="src"):
        hand.run(checks="bounds")


@pytest.mark.parametrize(("size", "cycles", "silicon"), [(10, 203, 285), (1024, 1733, 1815)])
def test_sum__cost__the_published_estimate_and_what_silicon_adds_to_it(size: int, cycles: int, silicon: int) -> None:
    """Machine reference §4.0: a Bow takes 82 cycles more, whatever the size."""
    hand = Hand(1)
    a, b, c = (hand.put(np.zeros(size), "f32") for _ in range(3))
    vertex = hand.place("popops::BinaryOp1D<popops::expr::BinaryOpType::ADD,float>", in1=a, in2=b, out=c)
    assert hand.cycles(vertex) == cycles == silicon - 82


@pytest.mark.parametrize(("size", "cycles"), [(64, 286), (128, 376), (256, 574), (512, 952)])
def test_scaled_subtract__cost__the_published_estimate(size: int, cycles: int) -> None:
    """Machine reference §4.0: a Bow takes 44 to 46 cycles more."""
    hand = Hand(1)
    a, b, s = hand.put(np.zeros(size), "f32"), hand.put(np.zeros(size), "f32"), hand.put([1.0], "f32")
    name = "popops::ScaledSubtractSupervisor<float,float,float,false>"
    assert hand.cycles(hand.place(name, A=a, B=b, scaleB=s, size=size)) == cycles
