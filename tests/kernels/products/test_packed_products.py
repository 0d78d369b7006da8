"""Matrix products by the packed routine agree with 64-bit arithmetic, however operands lie and whoever runs them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import run_kernel, run_plan
from products_kit import expected, linear, listing, values

from abele.errors import InvalidOptionError
from abele.kernels import BoundKernel, Buffer, HostKernel, bind, plan_native
from abele.kernels.nest.ir import affine, load, nest, select, store
from abele.kernels.routines.costs import VARIABLE
from abele.kernels.target import host_target
from abele.numerics import bf16, f16, f32
from support.examples import examples

RNG = np.random.default_rng(20)


@pytest.fixture(autouse=True)
def packed(monkeypatch):
    monkeypatch.setenv(VARIABLE, "packed")


@examples(8)
@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 90), st.integers(1, 80)),
    orders=st.tuples(st.sampled_from(["ik", "ki"]), st.sampled_from(["kj", "jk"]), st.sampled_from(["ij", "ji"])),
    threads=st.integers(1, 3),
)
def test_product__of_any_shape_and_order__agrees_with_64_bits(shape, orders, threads):
    kernel = linear(*shape, left=orders[0], right=orders[1], out=orders[2])
    arrays = values(kernel)
    (got,) = run_kernel(kernel, arrays, threads)
    np.testing.assert_allclose(got, expected(kernel, arrays, *orders), rtol=0, atol=2e-5 * np.sqrt(shape[2]) + 1e-6)


@pytest.mark.parametrize("orders", [("ik", "jk", "ij"), ("ki", "kj", "ij"), ("ik", "kj", "ji")])
def test_product__of_several_slices_and_strips__agrees_with_64_bits(orders):
    kernel = linear(100, 530, 700, left=orders[0], right=orders[1], out=orders[2])
    arrays = values(kernel)
    assert "by packed" in listing(kernel)
    (got,) = run_kernel(kernel, arrays)
    np.testing.assert_allclose(got, expected(kernel, arrays, *orders), rtol=0, atol=3e-4)


@pytest.mark.parametrize("type_", [f16, bf16])
@pytest.mark.parametrize("orders", [("ik", "jk"), ("ki", "kj")])
def test_product__of_16_bit_operands__is_summed_in_32(type_, orders):
    kernel = linear(37, 65, 400, left=orders[0], right=orders[1], types=(type_, type_, f32))
    arrays = values(kernel)
    (got,) = run_kernel(kernel, arrays)
    np.testing.assert_allclose(got, expected(kernel, arrays, *orders), rtol=0, atol=3e-4)


def test_product__with_16_bit_results__is_rounded_once():
    kernel = linear(33, 40, 300, types=(f16, f16, f16))
    arrays = values(kernel, 0.1)
    (got,) = run_kernel(kernel, arrays)
    exact = expected(kernel, arrays)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2.0**-11 * 1.01, atol=1e-5)


def test_product__on_any_number_of_threads__has_the_same_bits():
    kernel = linear(150, 200, 300)
    arrays = values(kernel)
    first, *others = (run_kernel(kernel, arrays, threads)[0] for threads in (1, 2, 3, 7, 16))
    assert all(np.array_equal(first, other) for other in others)


def test_product__in_blocks_of_channels__is_read_as_it_lies():
    # x[c1, b, c0], w[n1, c1, n0, c0], y[n1, b, n0]: what the library's layouts come to.
    extents = {"b": 50, "n1": 3, "n0": 16, "c1": 5, "c0": 12}
    value = load(0, "c1", "b", "c0") * load(1, "n1", "c1", "n0", "c0")
    kernel = HostKernel(
        ((5, 50, 12), (3, 5, 16, 12), (3, 50, 16)),
        (f32,) * 3,
        2,
        1,
        (nest(extents, store(2, ("n1", "b", "n0"), value, "add")),),
    )
    assert "product [50, 60]x[60, 48] by packed" in listing(kernel)
    x, w = values(kernel)
    (got,) = run_kernel(kernel, [x, w])
    wanted = np.einsum("cbk,nclk->nbl", x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


def test_product__batched__multiplies_each_by_itself():
    extents = {"g": 6, "i": 20, "j": 33, "k": 40}
    value = load(0, "g", "i", "k") * load(1, "g", "j", "k")
    kernel = HostKernel(
        ((6, 20, 40), (6, 33, 40), (20, 6, 33)),
        (f32,) * 3,
        2,
        1,
        (nest(extents, store(2, ("i", "g", "j"), value, "add")),),
    )
    assert "6×[20, 40]x[40, 33]" in listing(kernel)
    a, b = values(kernel)
    (got,) = run_kernel(kernel, [a, b], 2)
    np.testing.assert_allclose(got, np.einsum("gik,gjk->igj", a, b), rtol=0, atol=1e-4)


def test_product__with_a_bias_and_an_activation__has_them_done_share_by_share():
    m, n, k = 45, 131, 64
    x, w, bias = Buffer(0, (m, k), f32, name="x"), Buffer(1, (n, k), f32, name="w"), Buffer(2, (n,), f32, name="bias")
    y, z = Buffer(3, (m, n), f32, pinned=False, name="y"), Buffer(4, (m, n), f32, name="z")
    dot = nest({"b": m, "n": n, "k": k}, store(2, ("b", "n"), load(0, "b", "k") * load(1, "n", "k"), "add"))
    total = load(0, "b", "n") + load(1, "n")
    relu = nest({"b": m, "n": n}, store(2, ("b", "n"), select(total > 0.0, total, 0.0)))
    calls = [
        BoundKernel(
            HostKernel((x.shape, w.shape, y.shape), (f32,) * 3, 2, 1, (dot,)), (bind(x), bind(w), bind(y)), "dot"
        ),
        BoundKernel(
            HostKernel((y.shape, bias.shape, z.shape), (f32,) * 3, 2, 1, (relu,)),
            (bind(y), bind(bias), bind(z)),
            "relu",
        ),
    ]
    plan = plan_native([x, w, bias, y, z], calls)
    assert len(plan.leaves) == 1
    assert "by packed" in plan.listing
    storage = {b.id: RNG.standard_normal(b.shape).astype(np.float32) for b in (x, w, bias, z)}
    run_plan(plan, storage, 3)
    wanted = np.maximum(storage[0].astype(np.float64) @ storage[1].T + storage[2], 0)
    np.testing.assert_allclose(storage[4], wanted, rtol=0, atol=1e-4)


def test_product__added_onto_what_is_there__reads_it():
    extents = {"i": 30, "j": 50, "k": 20}
    onto = store(2, ("i", "j"), load(0, "i", "k") * load(1, "k", "j"), "add", accumulate=True)
    kernel = HostKernel(((30, 20), (20, 50), (30, 50)), (f32,) * 3, 2, 1, (nest(extents, onto),))
    a, b = values(kernel)
    before = RNG.standard_normal((30, 50)).astype(np.float32)
    (got,) = run_kernel(kernel, [a, b, before])
    np.testing.assert_allclose(got, before + a.astype(np.float64) @ b, rtol=0, atol=1e-4)


def test_product__of_infinities_and_nans__has_them_where_arithmetic_puts_them():
    kernel = linear(20, 40, 30)
    a, b = values(kernel)
    a[3, 4], b[5, 6], a[7, 8], b[8, 9] = np.nan, np.inf, np.inf, 0.0
    (got,) = run_kernel(kernel, [a, b, np.full((20, 40), np.nan, np.float32)])
    with np.errstate(invalid="ignore"):
        wanted = a.astype(np.float64) @ b.astype(np.float64)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert np.array_equal(np.isinf(got), np.isinf(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(got[finite], wanted[finite], rtol=0, atol=1e-4)


def test_product__whose_result_is_an_operand__runs_as_loops():
    # x[i, j] += x[i, k] · w[k, j]: the product would read what it has written.
    extents = {"i": 40, "j": 40, "k": 40}
    x, w = Buffer(0, (40, 40), f32, name="x"), Buffer(1, (40, 40), f32, name="w")
    onto = store(2, ("i", "j"), load(0, "i", "k") * load(1, "k", "j"), "add", accumulate=True)
    kernel = HostKernel(((40, 40),) * 3, (f32,) * 3, 2, 1, (nest(extents, onto),))
    plan = plan_native([x, w], [BoundKernel(kernel, (bind(x), bind(w), bind(x)), "square")])
    assert "by packed" not in plan.listing


def test_convolution__whose_windows_overlap__runs_as_loops():
    extents = {"n": 8, "x": 30, "c": 16, "k": 3}
    value = load(0, "c", affine("x", "k")) * load(1, "n", "c", "k")
    kernel = HostKernel(
        ((16, 32), (8, 16, 3), (8, 30)), (f32,) * 3, 2, 1, (nest(extents, store(2, ("n", "x"), value, "add")),)
    )
    assert "by packed" not in listing(kernel)


def test_environment__naming_loops__runs_none_by_packing_and_agrees(monkeypatch):
    kernel = linear(64, 96, 200)
    arrays = values(kernel)
    (packed_,) = run_kernel(kernel, arrays)
    monkeypatch.setenv(VARIABLE, "loops")
    assert host_target().products is None
    assert "by packed" not in listing(kernel)
    (loops,) = run_kernel(kernel, arrays)
    np.testing.assert_allclose(packed_, loops, rtol=0, atol=1e-4)


def test_environment__naming_no_way__is_an_error_that_names_all(monkeypatch):
    monkeypatch.setenv(VARIABLE, "pack")
    with pytest.raises(InvalidOptionError, match="ABELE_PRODUCTS is 'pack'") as problem:
        host_target()
    assert "packed" in str(problem.value)
