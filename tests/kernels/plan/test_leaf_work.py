"""Work of leaves: arithmetic, distinct bytes, filled lanes."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abele.expr.nodes import apply
from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import Affine, load, nest, store
from abele.kernels.nest.operation_costs import DIVISION_COST, operation_cost
from abele.kernels.plan.native_plan import distinct_elements
from abele.numerics import bf16, f32


def reached(index, shape, extents):
    """The elements that an index reaches inside an array, counted one by one."""
    dims = list(extents)
    points = itertools.product(*(range(extents[d]) for d in dims))
    places = (
        tuple(sum(c * point[dims.index(d)] for d, c in position.terms) + position.const for position in index)
        for point in points
    )
    return len({p for p in places if all(0 <= i < n for i, n in zip(p, shape, strict=True))})


@given(st.data())
def test_distinct_elements__any_access__are_never_fewer_than_there_are(data):
    extents = {d: data.draw(st.integers(1, 5)) for d in "ijk"}
    index = tuple(
        Affine(tuple((d, data.draw(st.integers(1, 4))) for d in data.draw(st.sets(st.sampled_from("ijk")))))
        for _ in range(2)
    )
    shape = tuple(1 + sum(c * (extents[d] - 1) for d, c in position.terms) for position in index)
    found = distinct_elements(index, shape, extents)
    assert reached(index, shape, extents) <= found <= math.prod(shape)


@given(
    n=st.integers(1, 6),
    taps=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    c=st.integers(1, 4),
)
def test_distinct_elements__windows_of_a_convolution__are_exact_where_they_touch(n, taps, stride, dilation, c):
    extents = {"x": n, "k": taps, "c": c}
    index = (Affine((("x", stride), ("k", dilation))), Affine((("c", 1),)))
    shape = (1 + (n - 1) * stride + (taps - 1) * dilation, c)
    exact = reached(index, shape, extents)
    found = distinct_elements(index, shape, extents)
    assert found >= exact
    if stride <= taps and dilation == 1:
        assert found == exact


@pytest.mark.parametrize(
    ("index", "shape", "expected"),
    [
        ((Affine((("i", 1),)), Affine((("j", 1),))), (5, 7), 35),  # a whole matrix
        ((Affine((("j", 1),)), Affine((("i", 1),))), (7, 5), 35),  # its transpose
        ((Affine(()), Affine((("j", 1),))), (5, 7), 7),  # a row, read for every i
        ((Affine((("i", 2),)), Affine((("j", 1),))), (10, 7), 35),  # every second row
        ((Affine((("i", 7), ("j", 1))),), (35,), 35),  # digits of one index
        ((Affine((("i", 1), ("j", 1))),), (11,), 11),  # windows one apart
        ((Affine((("j", -1),), 6),), (7,), 7),  # backwards
    ],
)
def test_distinct_elements__of_known_accesses(index, shape, expected):
    assert distinct_elements(index, shape, {"i": 5, "j": 7}) == expected


def product(m, n, k, type_=f32, transposed=False):
    x, w, y = (Buffer(i, shape, type_) for i, shape in enumerate(((m, k), (n, k) if transposed else (k, n), (m, n))))
    right = load(1, "n", "k") if transposed else load(1, "k", "n")
    loops = nest({"m": m, "n": n, "k": k}, store(2, ("m", "n"), load(0, "m", "k") * right, "add"))
    kernel = HostKernel((x.shape, w.shape, y.shape), (type_,) * 3, 2, 1, (loops,))
    return plan_native([x, w, y], [BoundKernel(kernel, (bind(x), bind(w), bind(y)), "dense")])


@pytest.mark.parametrize("type_", [f32, bf16])
def test_work__of_a_product__counts_multiply_adds_twice_and_every_byte_once(type_):
    plan = product(48, 32, 64, type_)
    number = next(n for n, leaf in enumerate(plan.leaves) if "dense" in " ".join(leaf.calls))
    total = [plan.work(n) for n in range(len(plan.leaves))]
    assert sum(work.flops for work in total) == 2 * 48 * 32 * 64
    assert plan.work(number).written_bytes == type_.bytes * 48 * 32


def test_lanes__of_a_product__are_those_of_the_machine():
    plan = product(48, 64, 64)
    parts = [part for n in range(len(plan.leaves)) for part in plan.parts(n)]
    assert max(part.lanes for part in parts) > 1


def test_lanes__of_a_nest_without_neighbours__are_one():
    # One column of each: neither loads nor the store have neighbours beside them.
    x, y = Buffer(0, (64, 7), f32), Buffer(1, (64, 5), f32)
    loops = nest({"i": 64}, store(1, ("i", 2), load(0, "i", 3) * 2.0))
    kernel = HostKernel((x.shape, y.shape), (f32,) * 2, 1, 1, (loops,))
    plan = plan_native([x, y], [BoundKernel(kernel, (bind(x), bind(y)), "column")])
    assert [part.lanes for part in plan.parts(0)] == [1]
    assert plan.work(0).read_bytes == 4 * 64


def slots_of(value, combine="set"):
    """Instructions on elements of a nest over 4 by 8 points, summed over the last dim unless ``value`` is set."""
    index = ("i",) if combine != "set" else ("i", "j")
    shapes = ((4, 8), (4, 8), (4,) if combine != "set" else (4, 8))
    kernel = HostKernel(shapes, (f32,) * 3, 2, 1, (nest({"i": 4, "j": 8}, store(2, index, value, combine)),))
    buffers = [Buffer(n, shape, f32) for n, shape in enumerate(shapes)]
    plan = plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "p")])
    return sum(plan.work(n).slots for n in range(len(plan.leaves)))


def test_slots__of_products_that_are_summed__are_multiply_adds():
    assert slots_of(load(0, "i", "j") * load(1, "i", "j"), "add") == 32


def test_slots__of_sums_and_functions__are_what_their_code_has():
    x = load(0, "i", "j")
    assert slots_of(x, "add") == 32
    assert slots_of(x + load(1, "i", "j")) == 32
    assert slots_of(apply("exp", x)) == 32 * operation_cost("exp").slots


def test_slots__of_few_divisions__are_instructions_beside_them():
    x, y = load(0, "i", "j"), load(1, "i", "j")
    assert slots_of(x / y) == 32 * DIVISION_COST
    assert slots_of(x / y + apply("exp", x)) == 32 * (1 + 1 + operation_cost("exp").instructions)


def test_slots__of_a_division_after_a_sum__are_the_sum_s_where_it_is_longer():
    # 32 multiply-adds hide what the divider does for four results.
    x = load(0, "i", "j")
    kernel = HostKernel(
        ((4, 8), (4,)), (f32,) * 2, 1, 1, (nest({"i": 4, "j": 8}, store(1, ("i",), x * x, "add")),
                                           nest({"i": 4}, store(1, ("i",), 1.0 / load(1, "i")))),
    )  # fmt: skip
    buffers = [Buffer(n, shape, f32) for n, shape in enumerate(((4, 8), (4,)))]
    plan = plan_native(buffers, [BoundKernel(kernel, tuple(map(bind, buffers)), "p")])
    assert sum(plan.work(n).slots for n in range(len(plan.leaves))) == 32 + 4
