"""Products of bf16 by an instruction that multiplies pairs, beside those in f32 and arithmetic of 64 bits."""

import kernels_kit
import llvmlite.binding as binding
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels_kit import run_kernel
from products_kit import expected, linear, listing, values

from abele.kernels import HostKernel
from abele.kernels.nest.ir import load, nest, store
from abele.kernels.products.choose import product_cost
from abele.kernels.routines.blocking import Kept, blocking
from abele.kernels.routines.costs import VARIABLE, product_costs
from abele.kernels.routines.packed import PAIRS, product_module
from abele.kernels.target import host_target
from abele.llvm.cpus import HostCpu
from abele.llvm.host import host_cpu
from abele.numerics import bf16, f16, f32
from support.examples import examples

SIZES = {word: blocking(16, 32, 1 << 15, 1 << 20, word=word) for word in (1, 2)}
ORDERS = st.tuples(st.sampled_from(["ik", "ki"]), st.sampled_from(["kj", "jk"]), st.sampled_from(["ij", "ji"]))
needs_pairs = pytest.mark.usefixtures("pairs")


@pytest.fixture
def pairs() -> None:
    """The CPU that code is made for multiplies pairs of bf16."""
    if not host_cpu().multiplies_bf16_pairs:
        pytest.skip("the CPU multiplies no pairs of bf16")


@pytest.fixture(autouse=True)
def packed(monkeypatch):
    monkeypatch.setenv(VARIABLE, "packed")


def without_pairs(kernel, arrays):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostCpu, "multiplies_bf16_pairs", False)
        assert host_target().products.pairs is None
        return run_kernel(kernel, arrays)[0]


@examples(8)
@given(
    shape=st.tuples(st.integers(1, 70), st.integers(1, 90), st.integers(1, 80)),
    orders=ORDERS,
    threads=st.integers(1, 3),
)
def test_product__of_bf16_of_any_shape_and_order__agrees_with_64_bits_and_f32(shape, orders, threads):
    kernel = linear(*shape, left=orders[0], right=orders[1], out=orders[2], types=(bf16, bf16, f32))
    arrays = values(kernel)
    (got,) = run_kernel(kernel, arrays, threads)
    atol = 2e-5 * np.sqrt(shape[2]) + 1e-6
    np.testing.assert_allclose(got, expected(kernel, arrays, *orders), rtol=0, atol=atol)
    np.testing.assert_allclose(got, without_pairs(kernel, arrays), rtol=0, atol=atol)


@pytest.mark.parametrize("orders", [("ik", "jk"), ("ki", "kj")])
def test_product__of_bf16_in_several_slices_and_strips__agrees_with_64_bits(orders):
    # Twice as many elements as in f32 make a slice, and 1,301 are odd.
    kernel = linear(50, 530, 1301, left=orders[0], right=orders[1], types=(bf16, bf16, bf16))
    arrays = values(kernel, 0.1)
    (got,) = run_kernel(kernel, arrays, 2)
    exact = expected(kernel, arrays, *orders)
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=2.0**-8 * 1.01, atol=1e-4)


@pytest.mark.parametrize(("blocks", "block"), [(3, 5), (5, 12), (2, 33)])
def test_product__of_bf16_in_blocks_of_channels__pairs_neighbours_of_two_blocks(blocks, block):
    # x[c1, b, c0], w[n, c1, c0]: where blocks are odd, pairs lie in two of them.
    extents = {"b": 20, "n": 35, "c1": blocks, "c0": block}
    value = load(0, "c1", "b", "c0") * load(1, "n", "c1", "c0")
    shapes = ((blocks, 20, block), (35, blocks, block), (20, 35))
    kernel = HostKernel(shapes, (bf16, bf16, f32), 2, 1, (nest(extents, store(2, ("b", "n"), value, "add")),))
    x, w = values(kernel)
    (got,) = run_kernel(kernel, [x, w])
    wanted = np.einsum("cbk,nck->bn", x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("orders", [("ik", "jk"), ("ki", "kj"), ("ik", "kj")])
def test_product__of_bf16_in_memory_full_of_nans__has_none_of_its_own(orders, monkeypatch):
    # Of an odd number of elements the last pair is half empty: what was there before is in neither operand.
    def nans(size):
        block = kernels_kit_aligned(size)
        block[...] = 0xFF
        return block

    kernels_kit_aligned = kernels_kit.aligned
    monkeypatch.setattr(kernels_kit, "aligned", nans)
    kernel = linear(20, 40, 29, left=orders[0], right=orders[1], types=(bf16, bf16, f32))
    arrays = values(kernel)
    (got,) = run_kernel(kernel, arrays)
    np.testing.assert_allclose(got, expected(kernel, arrays, *orders), rtol=0, atol=1e-4)


def test_product__of_denormal_bf16__is_zero_with_pairs_and_without():
    kernel = linear(20, 40, 30, types=(bf16, bf16, f32))
    a, b = values(kernel)
    a[...], b[...] = 2.0**-130, 2.0**20
    assert a[0, 0] != 0
    assert not run_kernel(kernel, [a, b])[0].any()
    assert not without_pairs(kernel, [a, b]).any()


@needs_pairs
def test_choice__of_types__takes_pairs_for_bf16_alone():
    costs = host_target().products
    assert costs.sizes_of(bf16, bf16).word == 2
    assert {costs.sizes_of(*types).word for types in ((f32, f32), (f16, f16), (bf16, f32))} == {1}


@needs_pairs
def test_product__of_bf16__runs_packed_where_f32_runs_as_loops(monkeypatch):
    monkeypatch.setenv(VARIABLE, "auto")
    if "by packed" not in listing(linear(1200, 1200, 1200, types=(bf16, bf16, f32))):
        pytest.skip("by its rates, loops are the faster way for products of any size on this host")
    assert "by packed" in listing(linear(100, 80, 200, types=(bf16, bf16, f32)))
    assert "by packed" not in listing(linear(100, 80, 200))


def test_costs__with_pairs__are_lower_and_those_of_other_types_the_same():
    plain, paired = (product_cost((512, 512, 512), 1, (128, 128), 1, SIZES[word], Kept.COLUMNS) for word in (1, 2))
    # Both in multiply-adds of their own tiles, of which pairs do twice as many a second.
    assert paired < 2 * plain
    assert product_costs(16, 32, pairs=True).sizes == product_costs(16, 32).sizes


@pytest.mark.parametrize("word", [1, 2])
def test_work__of_words__has_room_for_whole_panels(word):
    sizes = SIZES[word]
    assert sizes.work_bytes((5, 33, 301), Kept.COLUMNS) == 4 * (
        sizes.panel_elements + -(-301 // word) * 2 * sizes.columns
    )
    assert sizes.panel_elements == SIZES[1].panel_elements


def test_module__with_pairs__is_valid_and_multiplies_by_nothing_else():
    text = str(product_module(SIZES[2], "bf16", "bf16", "product"))
    binding.parse_assembly(text).verify()
    assert PAIRS in text
    assert "llvm.fmuladd" not in text
    assert PAIRS not in str(product_module(SIZES[1], "bf16", "bf16", "product"))
